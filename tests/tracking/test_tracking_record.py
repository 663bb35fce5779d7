import json

import pytest
from mirrored import values_of
from tracking_tree import TIERS, start_event, write_log, write_results, write_summary

from faze.base.run_log import read_events
from faze.base.tier_colors import tier_colors
from faze.tracking.run_record import read_run, read_training, run_places

PLACES = BASELINE, AMP, DDP, *_ = run_places(TIERS, [0])


@pytest.fixture
def paths(tmp_path):
    return write_results(tmp_path / "results" / "ablation")


@pytest.fixture
def edit_summary(paths):
    """Return a function that changes the evaluation's summary in place."""

    def edit(change):
        path = paths.evaluation / "summary.json"
        summary = json.loads(path.read_text())
        change(summary["runs"])
        path.write_text(json.dumps(summary))

    return edit


def series(record):
    values = values_of(record)
    return {key: [(p.step, p.value) for p in values if p.key == key] for key in {p.key for p in values}}


@pytest.mark.parametrize(
    ("tiers", "seeds", "names"),
    [
        (TIERS, [0], ["0-baseline", "1-amp", "2-ddp", "3-fused_sgd", "4-autotune"]),
        (TIERS[:2], [0, 7], ["0-baseline-s0", "0-baseline-s7", "1-amp-s0", "1-amp-s7"]),
        ("zyxwvutsrqp", [0], [f"{number:02}-{letter}" for number, letter in enumerate("zyxwvutsrqp")]),
    ],
)
def test_names_sort_in_the_order_of_the_tiers(tiers, seeds, names):
    assert [place.name for place in run_places(tiers, seeds)] == names == sorted(names)


def test_metrics_of_a_run(paths):
    metrics = series(read_run(paths, AMP))
    assert set(metrics) == {
        *("error/mpiigaze_deg", "error/gazecapture_deg", "error/mpiigaze_k9_deg"),
        *("speed/images_per_s", "speed/step_ms", "memory/peak_gib"),
        *("curve/mpiigaze_maml_deg", "curve/mpiigaze_offset_deg"),
        *("curve/gazecapture_maml_deg", "curve/gazecapture_offset_deg"),
        *("train/loss", "train/lr", "train/images_per_s"),
        *("train/gaze_angle", "train/reconstruction_l1", "train/embedding_consistency"),
        "val/gaze_deg",
    }
    assert metrics["speed/images_per_s"] == [(0, 97.5)]  # the benchmark's, not the training's own
    assert metrics["train/images_per_s"][0] == (400, 97.5 * 0.9)
    assert [k for k, _ in metrics["curve/mpiigaze_maml_deg"]] == [0, 1, 3, 5, 9]
    assert [step for step, _ in metrics["train/loss"]] == [400 * i for i in range(1, 31)]
    assert metrics["train/embedding_consistency"][0][0] == 800  # nan at 400


def test_times_are_those_of_the_log(paths):
    log = paths.run_log("amp", 0)
    events = read_events(log)
    event = next(e for e in events if e["event"] == "metrics")
    record = read_training(log, AMP)
    point = next(p for p in record.training if (p.key, p.step) == ("train/loss", event["step"]))
    assert point.time_ms == round(event["time"] * 1000)
    assert record.start_ms == round(events[0]["time"] * 1000)
    assert record.end_ms == round(events[-1]["time"] * 1000)
    last = max(p.time_ms for p in record.training)
    assert {p.time_ms for p in read_run(paths, AMP).results} == {last}


def test_tags_params_and_description(paths):
    record = read_run(paths, AMP)
    wanted = {"ablation": "ablation", "tier": "amp", "seed": "0", "stage": "train", "git_commit": "1a2b3c4d5e6f"}
    wanted |= {"code_fingerprint": "0123456789ab", "device": "A CPU", "switch.accumulate": "2 parts"}
    assert wanted.items() <= record.tags.items()
    assert len(record.tags["config_hash"]) == 12
    assert record.tags["switch.precision"].startswith("inactive: this CPU")
    assert record.params["engine.precision"] == "fp16" and record.params["train.global_batch"] == "16"
    note = record.tags["mlflow.note.content"]
    assert "precision inactive: this CPU" in note and "accumulate" not in note
    first = note.split("\n\n")[0]
    assert first.startswith("**amp** of the ablation *ablation*, seed 0: error/mpiigaze_deg **4.93** · ")
    assert "speed/images_per_s **97.5**" in first and "memory/peak_gib **0.58**" in first


def test_reused_training_names_its_tier(paths):
    record = read_run(paths, AMP)
    assert "reused_from" not in record.tags and "reused" not in record.tags["mlflow.note.content"]
    write_log(paths.run_log("amp", 0), start_event(paths.root, "amp", 0), reused_from="baseline")
    record = read_run(paths, AMP)
    assert record.tags["reused_from"] == "baseline" and series(record)["train/loss"]
    assert "baseline" in record.tags["mlflow.note.content"]


def test_noise_control_has_a_tag_and_no_walks(paths, edit_summary):
    place = run_places(TIERS, [7, 0], ["rounding"])[-1]
    assert (place.tier, place.seed, place.name) == ("rounding", 7, "control-rounding")
    write_log(paths.run_log("rounding", 7), start_event(paths.root, "rounding", 7))
    edit_summary(lambda runs: runs.append(runs[0] | {"tier": "rounding", "seed": 7}))
    record, baseline = read_run(paths, place), read_run(paths, BASELINE)
    assert record.tags["control"] == record.tags["tier"] == "rounding" and "walks" not in record.artifacts
    assert "control" not in baseline.tags and record.identity != baseline.identity


@pytest.mark.parametrize(("device", "tag"), [("auto", "A GPU, A GPU"), ("cpu", "A CPU")])
def test_device_is_the_gpu_if_the_run_used_it(paths, device, tag):
    start = start_event(paths.root, "ddp", 0)
    start["machine"]["gpus"] = "A GPU, A GPU"
    start["config"]["engine.device"] = device
    write_log(paths.run_log("ddp", 0), start)
    assert read_training(paths.run_log("ddp", 0), DDP).tags["device"] == tag


def test_torn_last_line_is_ignored(paths):
    log = paths.run_log("ddp", 0)
    whole = series(read_training(log, DDP))["train/loss"]
    lines = log.read_text().splitlines(keepends=True)
    last = max(i for i, line in enumerate(lines) if "train/loss" in line)
    log.write_text("".join(lines[:last]) + lines[last][:40])
    record = read_training(log, DDP)
    assert series(record)["train/loss"] == whole[:-1]
    assert record.end_ms is None


def test_repeated_step_counts_once(paths):
    log = paths.run_log("ddp", 0)
    lines = log.read_text().splitlines()
    again = next(json.loads(line) for line in lines if "train/loss" in line)
    again["values"]["train/loss"] = 1.25
    log.write_text("\n".join([*lines, json.dumps(again)]) + "\n")
    losses = series(read_training(log, DDP))["train/loss"]
    assert dict(losses)[400] == 1.25 and len(losses) == 30


def test_few_training_metrics_are_kept_besides_loss_and_rates(paths):
    log = paths.run_log("ddp", 0)
    lines = log.read_text().splitlines()
    more = json.loads(lines[3])
    more["values"] |= {f"train/a{i}": 1.0 for i in range(30)}
    end = {key: value for key, value in json.loads(lines[-1]).items() if key != "checksum"}
    log.write_text("\n".join([*lines[:3], json.dumps(more), *lines[4:-1], json.dumps(end)]) + "\n")
    keys = set(series(read_run(paths, DDP)))
    assert sum(key.startswith("train/") and key != "train/lr" for key in keys) == 7
    assert {
        "train/lr",
        "train/loss",
        "train/images_per_s",
        "val/gaze_deg",
        "error/mpiigaze_deg",
        "memory/peak_gib",
    } <= keys


def test_all_results_and_curves_are_kept(paths, edit_summary):
    """Regression: only the first 18 results were kept, and curves counted towards this limit."""
    names = [f"redirection_control/gazecapture_{number}" for number in range(40)]
    curves = {f"{d}_{learner}": [[k, 5.0 - k / 10] for k in range(19)] for d in ("a", "b") for learner in "abcdef"}

    def add(runs):
        for run in runs:
            run["metrics"] |= dict.fromkeys(names, 1.5)
            run["curves"] = curves

    edit_summary(add)
    metrics = series(read_run(paths, AMP))
    assert all(metrics[name] == [(0, 1.5)] for name in names)
    assert all(metrics[f"curve/{name}_deg"] == [(k, 5.0 - k / 10) for k in range(19)] for name in curves)


def test_identity_depends_on_ablation_tier_seed_config_and_code(paths):
    def identity(tier="amp", seed=0, **changes):
        log = paths.run_log("amp", 0)
        write_log(log, start_event(paths.root, tier, seed) | changes)
        place = next(p for p in run_places(TIERS, [0, 1]) if (p.tier, p.seed) == (tier, seed))
        return read_training(log, place).identity

    same = identity()
    assert identity() == same and len(same) == 12
    others = [identity("ddp"), identity(seed=1)]
    others += [identity(**{key: "x"}) for key in ("name", "config_hash", "fingerprint")]
    assert len({same, *others}) == 6


def test_bad_input_is_reported(paths):
    write_summary(paths.root, tiers=TIERS[:1])
    with pytest.raises(ValueError, match=r"summary\.json.* amp.* 0.*evaluate"):
        read_run(paths, AMP)
    log = paths.run_log("amp", 0)
    for content in (log.read_text().partition("\n")[2], ""):
        log.write_text(content)
        with pytest.raises(ValueError, match=r"run\.jsonl.*start"):
            read_training(log, AMP)


@pytest.mark.parametrize("key", ["name", "tier"])
@pytest.mark.parametrize("value", ["x' or ''='", "<script>alert(1)</script>", "../../x", "a b", "", "x" * 300])
def test_names_that_are_inserted_into_queries_are_checked(paths, key, value):
    """Regression: a quote in a log's name or tier ended the string in the filter that finds MLflow's runs."""
    log = paths.run_log("amp", 0)
    write_log(log, start_event(paths.root, "amp", 0) | {key: value})
    with pytest.raises(ValueError, match=r"run\.jsonl"):
        read_training(log, AMP)


def test_tags_and_params_are_strings(paths):
    log, start = paths.run_log("amp", 0), start_event(paths.root, "amp", 0)
    start["machine"] |= {"commit": None, "processor": ["<b>", 1]}
    start["config"] |= {"report.note": {"a": 1}}
    write_log(log, start | {"fingerprint": 3})
    record = read_training(log, AMP)
    assert all(isinstance(text, str) for text in (*record.tags.values(), *record.params.values()))
    assert (record.tags["git_commit"], record.tags["device"]) == ("null", '["<b>", 1]')
    assert (record.tags["code_fingerprint"], record.params["report.note"]) == ("3", '{"a": 1}')


def test_tier_has_the_same_colour_in_mlflow_and_in_the_report():
    """Regression: the tiers were black, orange and blue in MLflow, but grey, blue and orange on the page."""
    for number in (1, 5, 7, 12):
        tiers = [f"t{i}" for i in range(number)]
        found = {place.tier: place.color for place in run_places(tiers, [0, 1])}
        assert found == tier_colors(tiers)
        assert len(set(found.values())) == number
    assert tier_colors(["baseline", "amp"]) == {"baseline": "#7b8794", "amp": "#0072b2"}
