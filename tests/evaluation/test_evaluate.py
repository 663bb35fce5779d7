import itertools
import json
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest
from fabricated import KEPT, SHOTS, Fabricated

from faze.base.geometry import angular_error, vector_from_pitchyaw
from faze.base.result_paths import ResultPaths
from faze.data.store.codes import write_codes
from faze.evaluation.pixel_checks import permuted_error, pixel_blind_error, unadapted_error
from faze.evaluation.statistics import holm
from faze.stages import evaluate

SMALL = {"tiers": ("baseline", "amp", "ddp"), "people": (6, 5), "entries": 40, "query": 20}


def run(folder: Path, monkeypatch, case: Fabricated, **changed) -> tuple[int, dict[str, pd.DataFrame], dict]:
    """Evaluate a tree that is already written; exit code, tables, summary."""
    config = case.config_file(folder / "evaluate.config.yaml", "evaluate", **{"evaluate__resamples": 200} | changed)
    arguments = ["evaluate", "--config", str(config), "--results", str(folder), "--out", str(folder / "evaluation")]
    monkeypatch.setattr(sys, "argv", arguments)
    code = evaluate.main()
    out = folder / "evaluation"
    if not out.exists():
        return code, {}, {}
    tables = {path.stem: pd.read_csv(path, dtype={"person": str}) for path in out.glob("*.csv")}
    return code, tables, json.loads((out / "summary.json").read_text())


@pytest.fixture
def small(tmp_path) -> tuple[Fabricated, ResultPaths]:
    case = Fabricated(**SMALL)
    return case, case.write(tmp_path)


def test_tables_hold_every_run(tmp_path, monkeypatch):
    case = Fabricated(**SMALL, seeds=(0, 1, 2))
    case.write(tmp_path)
    code, tables, summary = run(tmp_path, monkeypatch, case)
    cells = 1 + len(KEPT) * len(SHOTS)
    assert code == 0
    assert len(tables["runs"]) == 3 * 3 * 2 * cells
    assert len(tables["persons"]) == 3 * 3 * (6 + 5) * cells
    assert len(tables["tiers"]) == 3 * 2 * cells
    assert len(tables["changes"]) == 2 * 2 * cells
    assert len(tables["pixel_checks"]) == 3 * 3 * 2 * 2
    assert len(tables["learners"]) == 3 * 2 * len(SHOTS)  # tiers, data sets; one pair
    assert list(tables["performance"]["tier"]) == ["baseline", "amp", "ddp"]
    assert list(tables["convergence"]["tier"]) == ["baseline"] * 3 + ["amp"] * 3 + ["ddp"] * 3
    keys = ["tier", "seed", "dataset", "learner", "k"]
    assert list(tables["runs"].columns[:8]) == [*keys, "mean_deg", "low_deg", "high_deg"]
    assert list(tables["persons"].columns[:7]) == ["tier", "seed", "dataset", "person", "learner", "k", "error_deg"]
    assert [(r["tier"], r["seed"]) for r in summary["runs"]] == list(itertools.product(case.tiers, case.seeds))


def test_run_errors_are_means_over_people_of_means_over_repeats(small, tmp_path, monkeypatch):
    case, paths = small
    _, tables, summary = run(tmp_path, monkeypatch, case)
    rows = pd.read_parquet(paths.errors("amp", 0, "maml"))
    rows = rows[(rows["dataset"] == "mpiigaze") & (rows["k"] == 9)]
    expected = rows.groupby("person")["error_deg"].mean().mean()
    runs = tables["runs"].set_index(["tier", "dataset", "learner", "k"])
    found = runs.loc[("amp", "mpiigaze", "maml", 9)]
    assert found["mean_deg"] == pytest.approx(expected, rel=1e-5)
    assert found["low_deg"] < expected < found["high_deg"]
    assert found["start_deg"] == pytest.approx(
        1.3 * runs.loc[("amp", "mpiigaze", "unadapted", 0)]["mean_deg"], rel=1e-5
    )
    fall = 1 - expected / runs.loc[("amp", "mpiigaze", "unadapted", 0)]["mean_deg"]
    assert found["reduction"] == pytest.approx(fall, rel=1e-4)
    metrics = summary["runs"][1]["metrics"]
    assert metrics["error/mpiigaze_k9_deg"] == pytest.approx(expected)
    names = {f"error/{d}{k}_deg" for d in ("mpiigaze", "gazecapture") for k in ("", "_k9")}
    shares = {"speed/share_of_matmul_roof", "speed/share_of_copy_roof"}
    pictures = {f"redirection/{d}_{n}" for d in ("mpiigaze", "gazecapture") for n in ("l1", "spread", "right_person")}
    made = ["gaze_gain", "head_gain", "head_by_gaze_deg", "gaze_by_head_deg", "both_gaze_error_deg"]
    made += ["both_head_error_deg", *(f"both_{name}" for name in ("psnr", "ssim", "ms_ssim"))]
    pictures |= {f"redirection/{d}_{n}" for d in ("mpiigaze", "gazecapture") for n in made}
    controls = [f"{v}_{f}_error_deg" for v in ("real", "oracle", "other", "still") for f in ("gaze", "head")]
    controls += ["gaze_gain_real", "head_gain_real"]
    pictures |= {f"redirection_control/{d}_{n}" for d in ("mpiigaze", "gazecapture") for n in controls}
    named = names | shares | pictures | {"speed/images_per_s", "speed/step_ms", "memory/peak_gib"}
    assert set(metrics) - {"speed/time_to_baseline_error_s"} == named
    curve = summary["runs"][1]["curves"]["mpiigaze_maml"]
    assert [k for k, _ in curve] == [0, *SHOTS]
    assert curve[-1][1] == pytest.approx(expected)


def test_redirected_strips_are_averaged_over_people(small, tmp_path, monkeypatch):
    case, paths = small
    path = paths.redirection("amp", 0)
    rows = pd.read_parquet(path)
    rows["deviation"] = np.linspace(0.01, 0.05, len(rows))
    rows.to_parquet(path, index=False)
    _, tables, summary = run(tmp_path, monkeypatch, case)
    found = tables["redirection"].set_index(["tier", "dataset"]).loc[("amp", "mpiigaze")]
    people = rows[rows["dataset"] == "mpiigaze"]
    assert found["people"] == len(people) and found["strips"] == 30
    assert found["l1"] == pytest.approx(people["l1"].mean(), rel=1e-5)
    assert found["spread"] == pytest.approx(np.sqrt(people["deviation"].mean()), rel=1e-5)
    assert found["real_spread"] == pytest.approx(0.25) and found["right_person"] == 0.5
    metrics = summary["runs"][1]["metrics"]
    assert metrics["redirection/mpiigaze_spread"] == pytest.approx(found["spread"], rel=1e-5)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda rows: rows.drop(columns="deviation"), "has no column deviation; delete it and run redirect again"),
        (lambda rows: rows.assign(l1=np.nan), "holds what is not a number; look into the log of redirect"),
    ],
)
def test_what_is_wrong_with_redirected_strips_is_said(small, tmp_path, monkeypatch, capfd, change, told):
    case, paths = small
    path = paths.redirection("ddp", 0)
    change(pd.read_parquet(path)).to_parquet(path, index=False)
    code, tables, _ = run(tmp_path, monkeypatch, case)
    assert code and not tables
    assert f"redirection.parquet: {told}" in capfd.readouterr().err


def test_how_far_redirected_strips_turn_is_averaged_over_people_and_judged_as_the_angular_error(
    small, tmp_path, monkeypatch
):
    """Seen red: every pair counted once, however many of a person; a control's variant taken for the redirected one."""
    case, paths = small
    for tier in case.tiers:
        path = paths.redirected_pairs(tier, 0)
        rows = pd.read_parquet(path)
        first = rows["person"] == rows["person"].iloc[0]
        rows[~first | (rows["pair"] < 2)].to_parquet(path, index=False)  # fewer pairs of one person
    rows = pd.read_parquet(paths.redirected_pairs("amp", 0))
    _, tables, summary = run(tmp_path, monkeypatch, case)
    some = rows[(rows["variant"] == "both") & (rows["dataset"] == "mpiigaze")]
    error = np.degrees(
        angular_error(
            *(
                vector_from_pitchyaw(some[[f"{kind}_gaze_pitch", f"{kind}_gaze_yaw"]].to_numpy())
                for kind in ("seen", "wanted")
            )
        )
    )
    expected = pd.Series(error).groupby(some["person"].to_numpy()).mean().mean()
    means = tables["redirected"].set_index(["tier", "dataset", "variant", "number"])
    found = means.loc[("amp", "mpiigaze", "both", "gaze_error_deg")]
    assert found["mean"] == pytest.approx(expected, rel=1e-5)
    assert found["low"] < found["mean"] < found["high"] and found["people"] == some["person"].nunique()
    assert summary["runs"][1]["metrics"]["redirection/mpiigaze_both_gaze_error_deg"] == pytest.approx(expected)
    changes = tables["redirection_changes"].set_index(["tier", "dataset", "factor"])
    before = means.loc[("baseline", "mpiigaze", "both", "gaze_error_deg"), "mean"]
    assert changes.loc[("amp", "mpiigaze", "gaze"), "difference_deg"] == pytest.approx(expected - before, abs=1e-4)
    assert set(changes["verdict"]) == {"not judged"}  # of one seed
    told = summary["verdict"]["redirection"]
    assert "as an independent estimator sees it" in told and "whether by more than chance is not judged" in told
    assert f"{means.loc[('ddp', 'mpiigaze', 'still', 'gaze_error_deg'), 'mean']:.1f}° on MPIIGaze" in told


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (
            lambda rows: rows.drop(columns="seen_head_yaw"),
            "has no column seen_head_yaw; delete it and run redirect again",
        ),
        (lambda rows: rows.assign(seen_gaze_yaw=np.nan), "holds an angle that is not a number; look into the log of"),
        (  # seen red: another's errors were taken from this person's
            lambda rows: rows.assign(person=rows["person"].replace("p01", "p99")),
            "person p01 of mpiigaze was not turned as in the first run; run redirect again for all",
        ),
        (
            lambda rows: rows[rows["pair"] < 5],
            "person 00300 of gazecapture was not turned as in the first run; run redirect again for all",
        ),
    ],
)
def test_what_is_wrong_with_the_pairs_is_said(small, tmp_path, monkeypatch, capfd, change, told):
    case, paths = small
    path = paths.redirected_pairs("ddp", 0)
    change(pd.read_parquet(path)).to_parquet(path, index=False)
    code, tables, _ = run(tmp_path, monkeypatch, case)
    assert code and not tables
    assert f"redirected_pairs.parquet: {told}" in capfd.readouterr().err


def test_only_the_last_adaptation_step_and_the_test_people_count(small, tmp_path, monkeypatch):
    case, paths = small
    _, before, _ = run(tmp_path, monkeypatch, case)
    path = paths.errors("ddp", 0, "maml")
    rows = pd.read_parquet(path)
    early = rows[rows["k"] > 0].assign(steps=20, error_deg=50.0)
    training = rows.assign(split="train", person="99999", error_deg=50.0)
    pd.concat([rows, early, training]).to_parquet(path, index=False)
    code, after, _ = run(tmp_path, monkeypatch, case)
    assert code == 0
    pd.testing.assert_frame_equal(before["runs"], after["runs"])


SEEDS = (0, 1, 2)


@pytest.mark.parametrize(("settings", "word"), [
    ({"person_spread_deg": 0.0, "seed_spread_deg": 0.0}, "identical"),
    ({"person_spread_deg": 0.01, "seed_spread_deg": 0.0}, "not judged"),
    ({"person_spread_deg": 0.01, "seed_spread_deg": 0.0, "shift_deg": 4.0, "seeds": (0, 1)}, "not judged"),
    ({"person_spread_deg": 0.01, "seed_spread_deg": 0.005, "seeds": SEEDS, "shift_deg": 0.7}, "different"),
    ({"person_spread_deg": 0.01, "seed_spread_deg": 0.005, "seeds": SEEDS}, "equivalent"),
    ({"person_spread_deg": 0.5, "seed_spread_deg": 0.5, "seeds": SEEDS}, "not shown"),
])  # fmt: skip
def test_changes_are_judged_against_the_baseline(settings, word, tmp_path, monkeypatch):
    """Seen red: one seed was judged, as if seeds did nothing."""
    case = Fabricated(**SMALL | {"tiers": ("baseline", "amp")}, **settings)
    case.write(tmp_path)
    _, tables, summary = run(tmp_path, monkeypatch, case)
    changes = tables["changes"]
    assert set(changes.loc[changes["decides"], "verdict"]) == {word}
    assert set(changes.loc[~changes["decides"], "verdict"].fillna("")) == {"identical" if word == "identical" else ""}
    assert (
        list(changes.loc[changes["decides"], ["learner", "k"]].itertuples(index=False, name=None))
        == [
            ("unadapted", 0),
            ("maml", 9),
        ]
        * 2
    )
    assert summary["verdict"]["error_word"] == summary["tier_verdicts"]["amp"] == word
    assert (changes["tost_p"].isna() == (word == "identical")).all()
    others = set(re.findall("identical|equivalent|unchanged|different|not shown", summary["verdict"]["error"]))
    assert others == {"identical": {"identical"}, "different": {"different"}, "not judged": set()}.get(word, others)
    shift = settings.get("shift_deg")
    if shift:
        assert changes["difference_deg"].between(shift - 0.05, shift + 0.05).all()
        np.testing.assert_allclose(changes["tier_deg"] - changes["baseline_deg"], changes["difference_deg"], atol=1e-4)


def test_a_margin_is_a_parameter(tmp_path, monkeypatch):
    spread = {"person_spread_deg": 0.01, "seed_spread_deg": 0.005}
    case = Fabricated(**SMALL | {"tiers": ("baseline", "amp")}, shift_deg=0.7, seeds=SEEDS, **spread)
    case.write(tmp_path)
    _, tables, _ = run(tmp_path, monkeypatch, case, evaluate__margin_deg=0.8)
    assert set(tables["changes"]["verdict"].dropna()) == {"equivalent"}


def test_differences_of_all_tiers_are_judged_together(tmp_path, monkeypatch):
    """Seen red: each was judged by itself, and four of them made a tier different by chance in a quarter of runs."""
    case = Fabricated(**SMALL, seeds=SEEDS, person_spread_deg=0.1, seed_spread_deg=0.1)
    case.write(tmp_path)
    changes = run(tmp_path, monkeypatch, case)[1]["changes"]
    judged = changes[changes["decides"]]
    assert len(judged) == 2 * 2 * 2  # tiers, data sets, unadapted and adapted
    np.testing.assert_allclose(judged["difference_p_holm"], holm(judged["difference_p"]), rtol=1e-4)
    assert changes.loc[~changes["decides"], "difference_p_holm"].isna().all()


def test_pixel_blind_guess_is_fitted_on_the_pool_alone():
    rng = np.random.default_rng(0)
    head = rng.normal(size=(50, 2)) * 0.2
    gaze = 0.1 + head @ np.array([[0.5, 0.1], [-0.2, 0.7]])
    codes = {"gaze": gaze, "head": head, "gaze_hat": vector_from_pitchyaw(gaze)}
    assert pixel_blind_error(codes, 20) == pytest.approx(0.0, abs=1e-6)
    assert unadapted_error(codes, 20) == pytest.approx(0.0, abs=1e-6)
    moved = codes | {"gaze": np.concatenate([gaze[:30], gaze[30:] + [0.0, 0.3]])}
    assert pixel_blind_error(moved, 20) > 10  # the query is not looked at


def test_permuted_error_is_the_mean_over_all_permutations():
    rng = np.random.default_rng(1)
    gaze, guess = rng.normal(size=(9, 2)) * 0.2, rng.normal(size=(9, 3))
    found = permuted_error({"gaze": gaze, "gaze_hat": guess}, 4)
    vectors = vector_from_pitchyaw(gaze[-4:])
    errors = [np.degrees(angular_error(vectors, guess[-4:][list(p)])).mean() for p in itertools.permutations(range(4))]
    assert found == pytest.approx(np.mean(errors))


def test_pixel_checks_are_compared_with_the_unadapted_error(small, tmp_path, monkeypatch):
    case, _ = small
    _, tables, _ = run(tmp_path, monkeypatch, case)
    checks = tables["pixel_checks"]
    np.testing.assert_allclose(checks["ratio"], checks["error_deg"] / checks["unadapted_deg"], rtol=1e-4)
    assert (checks["ratio"] > 2).all()
    runs = tables["runs"].set_index(["tier", "dataset", "learner", "k"])["mean_deg"]
    row = checks[(checks["tier"] == "amp") & (checks["dataset"] == "gazecapture")].iloc[0]
    assert row["unadapted_deg"] == pytest.approx(runs["amp", "gazecapture", "unadapted", 0], rel=1e-5)


def test_coverage_is_the_mean_over_people_of_those_learners_that_tell_it(small, tmp_path, monkeypatch):
    case, paths = small
    path = paths.errors(case.tiers[0], 0, "maml")
    errors = pd.read_parquet(path)
    first = errors["person"] == errors["person"].min()
    told = {"covered_68": np.where(first, 0.4, 0.8), "covered_95": np.where(errors["k"] > 0, 0.9, np.nan)}
    errors.assign(**told).to_parquet(path, index=False)
    _, tables, _ = run(tmp_path, monkeypatch, case)
    found = tables["coverage"]
    assert set(found["learner"]) == {"maml"} and set(found["said"]) == {0.68, 0.95}
    of_people = found[(found["said"] == 0.68) & (found["dataset"] == "gazecapture") & (found["k"] == max(SHOTS))]
    people = errors.loc[errors["dataset"] == "gazecapture", "person"].nunique()
    held = (errors.loc[first, "dataset"] == "gazecapture").any()
    assert of_people["covered"].item() == pytest.approx(0.8 - 0.4 * held / people)
    assert (found.loc[found["said"] == 0.95, "covered"] == 0.9).all()
    assert set(found.loc[found["said"] == 0.95, "k"]) == set(SHOTS)


def test_parts_of_the_baselines_own_error_make_a_whole(small, tmp_path, monkeypatch):
    case, _ = small
    _, tables, _ = run(tmp_path, monkeypatch, case)
    parts = tables["person_variance"].set_index("dataset")
    assert list(parts.index) == ["mpiigaze", "gazecapture"]
    np.testing.assert_allclose(parts[["offset", "slope", "linear", "rest"]].sum(axis=1), 1.0, atol=1e-5)
    assert (parts["rms_deg"] > 0).all()


def test_switches_and_speed_stand_in_the_performance_table(small, tmp_path, monkeypatch):
    case, _ = small
    _, tables, summary = run(tmp_path, monkeypatch, case)
    table = tables["performance"].set_index("tier")
    assert table.loc["amp", "inactive"].startswith("precision fp16: this CPU has no fp16 kernels")
    assert table.loc["ddp", "active"] == "parallel ddp (2 processes, gloo)"
    assert table.loc["ddp", ["speed_ratio", "memory_ratio"]].tolist() == pytest.approx([0.94, 0.58])
    assert "slower" in summary["verdict"]["speed"]
    assert "1 of the 2 switches" in summary["verdict"]["switches"]
    assert "these checkpoints only" in summary["verdict"]["scope"]


def test_noise_controls_are_compared_with_the_baseline_of_their_seed(tmp_path, monkeypatch):
    """Seen red: their one seed was taken off the mean of the baseline's three."""
    case = Fabricated(**SMALL, seeds=(0, 1, 2), controls=("rounding", "seed"))
    case.write(tmp_path)
    code, tables, summary = run(tmp_path, monkeypatch, case)
    assert code == 0
    cells = 1 + len(KEPT) * len(SHOTS)
    changes, persons = tables["changes"], tables["persons"]
    assert changes["tier"].value_counts().to_dict() == dict.fromkeys(("amp", "ddp", "rounding", "seed"), 2 * cells)
    for control in case.controls:
        assert set(persons.loc[persons["tier"] == control, "seed"]) == {0}
        rows = changes[(changes["tier"] == control) & (changes["dataset"] == "mpiigaze")].set_index(["learner", "k"])
        own, baseline = (
            persons[(persons["tier"] == tier) & (persons["seed"] == 0) & (persons["dataset"] == "mpiigaze")]
            .groupby(["learner", "k"])["error_deg"]
            .mean()
            for tier in (control, "baseline")
        )
        assert rows["difference_deg"].to_dict() == pytest.approx((own - baseline).to_dict(), abs=1e-5)
        assert (rows["seeds"] == 1).all() and set(rows["verdict"].dropna()) == {"not judged"}
    assert set(changes.loc[changes["tier"] == "amp", "seeds"]) == {3}
    assert set(tables["design"]["trainings"]) == {5}  # three seeds of the baseline, and both controls
    assert list(tables["performance"]["tier"]) == list(case.tiers) == list(dict.fromkeys(tables["learners"]["tier"]))
    assert summary["controls"] == ["rounding", "seed"] and summary["tier_verdicts"].keys() == {"amp", "ddp"}
    told = {run["tier"]: run["metrics"] for run in summary["runs"] if run["tier"] in case.controls}
    assert told.keys() == {"rounding", "seed"}
    assert all("error/mpiigaze_deg" in metrics and "speed/step_ms" not in metrics for metrics in told.values())


def test_tiers_that_were_trained_once_are_told(tmp_path, monkeypatch):
    """Whichever of them was first: the baseline may have taken over from a tier above it."""
    tiers = ("baseline", "amp", "ddp", "fused_sgd", "autotune")
    for number, reused_from in enumerate(({"amp": "baseline", "autotune": "fused_sgd"}, {"baseline": "amp"}, {})):
        folder = tmp_path / str(number)
        case = Fabricated(**SMALL | {"tiers": tiers}, reused_from=reused_from)
        case.write(folder)
        _, tables, summary = run(folder, monkeypatch, case)
        same = {"amp": "baseline"} if number < 2 else {}
        same |= {"autotune": "fused_sgd"} if number == 0 else {}
        assert tables["performance"].set_index("tier")["same_as"].dropna().to_dict() == same
        assert {tier: other for tier, other in summary["same_steps"].items() if other} == same


def test_an_older_benchmark_claims_no_change_of_memory_and_says_what_its_interval_lacks(tmp_path, monkeypatch):
    """Its tiers had one process each. Seen red: 0.03 GiB of noise told as "1.06 times less"."""
    case = Fabricated(**SMALL, older=True)
    case.write(tmp_path)
    _, tables, summary = run(tmp_path, monkeypatch, case)
    row = tables["performance"].set_index("tier").loc["ddp"]
    assert (row["rounds"], row["unsteady_rounds"], row["memory_differs"]) == (1, 1, False)
    assert np.isnan(row["peak_gib_low"]) and summary["paper_width"] == {}
    assert summary["verdict"]["memory"] == (
        "No change of peak memory is shown: 0.752 GiB, the baseline 0.436 GiB; of one process each, whose noise is not "
        "known."
    )
    assert summary["verdict"]["speed"].endswith("what differs between processes is not in it.")


def test_shares_of_the_roof_are_metrics_and_what_the_device_does_not_tell_is_none(small, tmp_path, monkeypatch):
    case, _ = small
    _, tables, summary = run(tmp_path, monkeypatch, case)
    table = tables["performance"].set_index("tier")
    for entry in summary["runs"]:
        metrics = entry["metrics"]
        assert metrics["speed/share_of_copy_roof"] == pytest.approx(table.loc[entry["tier"], "share_of_copy_roof"])
        assert not {"memory/reserved_gib", "speed/joules_per_step"} & metrics.keys()
    left_out = summary["leave_one_out"]
    assert left_out["without"]["ddp"]["memory_ratio"] == 1.7 and "blocks_ms" not in left_out["without"]["ddp"]


def test_time_to_the_baselines_error_is_a_metric_of_every_run_that_reaches_it(small, tmp_path, monkeypatch):
    case, _ = small
    _, tables, summary = run(tmp_path, monkeypatch, case)
    times = tables["convergence"].set_index("tier")
    for entry in summary["runs"]:
        row = times.loc[entry["tier"]]
        found = entry["metrics"].get("speed/time_to_baseline_error_s")
        assert found == (pytest.approx(row["rate_seconds"], rel=1e-5) if row["reached"] else None)
    assert times.loc["baseline", "reached"]
    assert times.loc["baseline", "rate_seconds"] == pytest.approx(
        2 * times.loc["baseline", "pairs"] / (32e3 / 412), rel=1e-4
    )


def test_people_without_an_error_are_named(small, tmp_path, monkeypatch):
    case, paths = small
    for tier in case.tiers:
        for learner in KEPT:
            path = paths.errors(tier, 0, learner)
            rows = pd.read_parquet(path)
            rows[rows["person"] != "p03"].to_parquet(path, index=False)
    code, tables, summary = run(tmp_path, monkeypatch, case)
    assert code == 0
    assert summary["left_out"] == {"mpiigaze": ["p03"], "gazecapture": []}
    assert "p03" not in set(tables["persons"]["person"])


def test_people_left_out_are_listed_with_their_reasons(small, tmp_path, monkeypatch):
    """Each sentence once, of whichever run and learner."""
    case, paths = small
    for tier, key, sentence in (
        ("amp", "left_out", "A"),
        ("ddp", "left_out", "A"),
        ("ddp", "left_out_of_training", "B"),
    ):
        path = paths.errors(tier, 0, "maml")
        table = pq.read_table(path)
        metadata = table.schema.metadata | {key.encode(): json.dumps([sentence]).encode()}
        pq.write_table(table.replace_schema_metadata(metadata), path)
    code, _, summary = run(tmp_path, monkeypatch, case)
    assert code == 0
    assert summary["left_out_words"] == ["A", "B"]


def test_the_verdict_says_whether_offset_wins(tmp_path, monkeypatch, capsys):
    case = Fabricated(**SMALL | {"people": (12, 12)}, kept={"maml": (0.9,) * 4, "offset": (0.6,) * 4})
    case.write(tmp_path)
    code, tables, summary = run(tmp_path, monkeypatch, case)
    assert code == 0
    said = summary["verdict"]["learners"]
    assert said.startswith("Few-shot learners after 9 samples (in brackets 95 % intervals over people). ")
    assert "On MPIIGaze: `offset`, which learns nothing and only subtracts" in said
    assert said.count("wins: it beats every other learner, namely `maml` by ") == 2
    assert said in capsys.readouterr().out
    assert [words[0][:31] for words in summary["learner_words"].values()] == ["Mean error after 9 samples, sma"] * 2
    assert summary["other_tiers"] == "Every other tier judges every pair the same way."
    pairs = tables["learners"].set_index(["tier", "dataset", "k"])
    runs = tables["runs"].set_index(["tier", "dataset", "learner", "k"])["mean_deg"]
    expected = runs["ddp", "mpiigaze", "maml", 5] - runs["ddp", "mpiigaze", "offset", 5]
    assert pairs.loc[("ddp", "mpiigaze", 5), "difference_deg"] == pytest.approx(expected, abs=1e-4)


def remove_file(paths):
    paths.errors("amp", 0, "maml").unlink()


def remove_column(paths):
    path = paths.errors("amp", 0, "maml")
    pd.read_parquet(path).drop(columns="steps").to_parquet(path)


def remove_person(paths):
    for learner in KEPT:
        path = paths.errors("ddp", 0, learner)
        rows = pd.read_parquet(path)
        rows[rows["person"] != "p04"].to_parquet(path)


def spoil_parquet(paths):
    paths.errors("amp", 0, "maml").write_bytes(b"no parquet")


def spoil_error(paths):
    path = paths.errors("amp", 0, "offset")
    rows = pd.read_parquet(path)
    rows.loc[3, "error_deg"] = np.nan
    rows.to_parquet(path)


def mix_trainings(paths):
    path = paths.errors("amp", 0, "offset")
    rows = pd.read_parquet(path)
    rows.loc[rows["k"] == 0, "error_deg"] += 0.2
    rows.to_parquet(path)


def replace_codes(paths):
    rng = np.random.default_rng(5)
    arrays = {"z_gaze": (40, 2, 3), "gaze": (40, 2), "head": (40, 2), "gaze_hat": (40, 3)}
    persons = [(f"p{i:02d}", "test", {n: rng.normal(size=s) for n, s in arrays.items()}) for i in range(6)]
    write_codes(paths.codes("amp", 0, "mpiigaze"), "mpiigaze", persons)


def remove_k(paths):
    for tier in ("baseline", "amp", "ddp"):
        path = paths.errors(tier, 0, "offset")
        rows = pd.read_parquet(path)
        rows[rows["k"] != 9].to_parquet(path)


def remove_tier(paths):
    content = json.loads(paths.benchmark.read_text())
    del content["tiers"]["ddp"]
    paths.benchmark.write_text(json.dumps(content))


def remove_start(paths):
    lines = paths.run_log("ddp", 0).read_text().splitlines()
    paths.run_log("ddp", 0).write_text("\n".join(lines[1:]))


def remove_two_files(paths):
    remove_file(paths)
    paths.errors("ddp", 0, "maml").unlink()


@pytest.mark.parametrize(("spoil", "named"), [
    (remove_file, ["amp/seed0/fewshot/maml_errors.parquet is missing", "run.tiers"]),
    (remove_two_files, ["amp/seed0/fewshot/maml_errors.parquet and 1 more are missing"]),
    (remove_column, ["amp/seed0/fewshot/maml_errors.parquet", "steps"]),
    (remove_person, ["p04", "mpiigaze", "2 of 3 runs"]),
    (remove_k, ["gazecapture", "k = 9 of some learners only", "run adapt again"]),
    (spoil_parquet, ["amp/seed0/fewshot/maml_errors.parquet", "not a readable parquet"]),
    (spoil_error, ["amp/seed0/fewshot/offset_errors.parquet", "not a number"]),
    (mix_trainings, ["amp/seed0/fewshot", "disagree"]),
    (replace_codes, ["amp/seed0/codes/mpiigaze.h5", "p00", "run adapt again"]),
    (remove_tier, ["benchmark.json", "ddp"]),
    (remove_start, ["ddp/seed0/run.jsonl", "no start event", "delete it and train that run again"]),
])  # fmt: skip
def test_bad_input_is_one_sentence_and_leaves_nothing(spoil, named, small, tmp_path, monkeypatch, capsys):
    case, paths = small
    spoil(paths)
    code, tables, _ = run(tmp_path, monkeypatch, case)
    said = capsys.readouterr().err.strip()
    assert code == 1
    assert not tables
    assert said.count("\n") == 0
    for word in named:
        assert word in said


def test_a_learner_that_is_no_longer_configured_is_not_read(small, tmp_path, monkeypatch):
    case, paths = small
    paths.errors("amp", 0, "offset").write_bytes(b"stale")
    code, tables, _ = run(tmp_path, monkeypatch, case, fewshot__learners=["maml"])
    assert code == 0
    assert set(tables["runs"]["learner"]) == {"unadapted", "maml"}


def test_one_tier_has_nothing_to_compare(tmp_path, monkeypatch):
    case = Fabricated(**SMALL | {"tiers": ("baseline",)})
    case.write(tmp_path)
    code, tables, summary = run(tmp_path, monkeypatch, case)
    assert code == 0
    assert tables["changes"].empty
    assert "nothing to compare" in summary["verdict"]["error"]


def test_reading_results_needs_no_torch():
    code = "import sys, faze.stages.evaluate, faze.stages.report; print({'torch', 'mlflow', 'cv2'} & set(sys.modules))"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "set()"


def test_the_baseline_is_the_lowest_rung_whatever_the_order_of_run_tiers(tmp_path, monkeypatch):
    """Seen red: run.tiers [recompute, baseline] turned the verdict over: recompute was the baseline."""
    case = Fabricated(**SMALL | {"tiers": ("baseline", "amp")}, shift_deg=0.4, person_spread_deg=0.01)
    case.write(tmp_path)
    _, tables, summary = run(tmp_path, monkeypatch, case)
    _, again, turned = run(tmp_path, monkeypatch, case, run__tiers=["amp", "baseline"])
    assert turned == summary
    assert set(tables["changes"]["baseline"]) == {"baseline"}
    for name, table in tables.items():
        pd.testing.assert_frame_equal(table, again[name])
