import json

import pytest
from tracking_tree import TIERS, start_event, write_log, write_results, write_summary

from faze.base.run_log import read_events
from faze.base.tier_colors import tier_colors
from faze.tracking.run_record import read_run, read_training, run_places


@pytest.fixture
def paths(tmp_path):
    return write_results(tmp_path / "results" / "ladder")


def series(record):
    return {key: [(p.step, p.value) for p in record.metrics if p.key == key] for key in {p.key for p in record.metrics}}


def test_names_sort_as_the_ladder_and_carry_the_seed_only_where_there_are_several():
    names = [place.name for place in run_places(TIERS, [0])]
    assert names == ["0-baseline", "1-amp", "2-ddp", "3-fused_sgd", "4-autotune"]
    names = [place.name for place in run_places(TIERS[:2], [0, 7])]
    assert names == ["0-baseline-s0", "0-baseline-s7", "1-amp-s0", "1-amp-s7"] == sorted(names)
    names = [place.name for place in run_places([f"rung{letter}" for letter in "zyxwvutsrqp"], [0])]
    assert names[1] == "01-rungy" and names == sorted(names)  # seen red: 10 before 2


def test_metrics_of_a_run(paths):
    record = read_run(paths, run_places(TIERS, [0])[1])
    metrics = series(record)
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
    assert metrics["train/embedding_consistency"][0][0] == 800  # not a number at 400


def test_times_are_the_logs_own(paths):
    log = paths.run_log("amp", 0)
    event = next(e for e in read_events(log) if e["event"] == "metrics")
    record = read_training(log, run_places(TIERS, [0])[1])
    point = next(p for p in record.metrics if (p.key, p.step) == ("train/loss", event["step"]))
    assert point.time_ms == round(event["time"] * 1000)
    assert record.start_ms == round(read_events(log)[0]["time"] * 1000) <= record.end_ms


def test_tags_params_and_description(paths):
    record = read_run(paths, run_places(TIERS, [0])[1])
    wanted = {"ablation": "ladder", "tier": "amp", "seed": "0", "stage": "train", "git_commit": "1a2b3c4d5e6f"}
    assert wanted.items() <= record.tags.items()
    assert (record.tags["code_fingerprint"], record.tags["device"]) == ("0123456789ab", "A CPU")
    assert len(record.tags["config_hash"]) == 12
    assert record.tags["switch.precision"].startswith("inactive: this CPU")
    assert record.tags["switch.set_to_none"] == "false"
    assert record.params["engine.precision"] == "fp16" and record.params["train.global_batch"] == "16"
    assert all(isinstance(value, str) for value in record.params.values())
    note = record.tags["mlflow.note.content"]
    assert "precision inactive: this CPU" in note and "set_to_none" not in note
    first = note.split("\n\n")[0]
    assert first.startswith("**amp** of the ablation *ladder*, seed 0: error/mpiigaze_deg **4.93** · ")
    assert "speed/images_per_s **97.5**" in first and "memory/peak_gib **0.58**" in first


def test_a_training_that_was_taken_over_says_whose_it_is(paths):
    record = read_run(paths, run_places(TIERS, [0])[1])
    assert "reused_from" not in record.tags and "taken over" not in record.tags["mlflow.note.content"]
    write_log(paths.run_log("amp", 0), start_event(paths.root, "amp", 0), reused_from="baseline")
    record = read_run(paths, run_places(TIERS, [0])[1])
    assert record.tags["reused_from"] == "baseline" and series(record)["train/loss"]
    assert "The same training as baseline here: taken over." in record.tags["mlflow.note.content"]


def test_a_noise_control_has_a_run_with_its_tag_and_no_walks(paths):
    place = run_places(TIERS, [0, 1], ["rounding"])[-1]
    assert (place.tier, place.seed, place.name) == ("rounding", 0, "control-rounding")
    write_log(paths.run_log("rounding", 0), start_event(paths.root, "rounding", 0))
    summary = json.loads((paths.evaluation / "summary.json").read_text())
    summary["runs"].append(summary["runs"][0] | {"tier": "rounding"})
    (paths.evaluation / "summary.json").write_text(json.dumps(summary))
    record = read_run(paths, place)
    assert record.tags["control"] == record.tags["tier"] == "rounding" and "walks" not in record.artifacts
    assert "control" not in read_run(paths, run_places(TIERS, [0])[0]).tags
    assert record.identity != read_run(paths, run_places(TIERS, [0])[0]).identity


def test_the_device_is_the_gpu_where_the_run_used_it(paths):
    log, place = paths.run_log("ddp", 0), run_places(TIERS, [0])[2]
    start = start_event(paths.root, "ddp", 0)
    start["machine"]["gpus"] = "A GPU, A GPU"
    write_log(log, start)
    assert read_training(log, place).tags["device"] == "A GPU, A GPU"
    start["config"]["engine.device"] = "cpu"
    write_log(log, start)
    assert read_training(log, place).tags["device"] == "A CPU"


def test_a_torn_last_line_costs_only_itself(paths):
    log, place = paths.run_log("ddp", 0), run_places(TIERS, [0])[2]
    whole = series(read_training(log, place))["train/loss"]
    lines = log.read_text().splitlines(keepends=True)
    last = max(i for i, line in enumerate(lines) if "train/loss" in line)
    log.write_text("".join(lines[:last]) + lines[last][:40])
    record = read_training(log, place)
    assert series(record)["train/loss"] == whole[:-1]
    assert record.end_ms is None


def test_a_step_done_twice_counts_once(paths):
    log, place = paths.run_log("ddp", 0), run_places(TIERS, [0])[2]
    lines = log.read_text().splitlines()
    again = next(json.loads(line) for line in lines if "train/loss" in line)
    again["values"]["train/loss"] = 1.25
    log.write_text("\n".join([*lines, json.dumps(again)]) + "\n")
    assert dict(series(read_training(log, place))["train/loss"])[400] == 1.25
    assert len(series(read_training(log, place))["train/loss"]) == 30


def test_of_a_trainings_own_metrics_few_are_kept_and_the_loss_first(paths):
    log, place = paths.run_log("ddp", 0), run_places(TIERS, [0])[2]
    lines = log.read_text().splitlines()
    more = json.loads(lines[3])
    more["values"] |= {f"train/a{i}": 1.0 for i in range(30)}
    end = {key: value for key, value in json.loads(lines[-1]).items() if key != "checksum"}
    log.write_text("\n".join([*lines[:3], json.dumps(more), *lines[4:-1], json.dumps(end)]) + "\n")
    keys = set(series(read_run(paths, place)))
    assert sum(key.startswith("train/") for key in keys) <= 7
    assert {"train/loss", "train/images_per_s", "val/gaze_deg", "error/mpiigaze_deg", "memory/peak_gib"} <= keys


def test_no_result_is_cut_off(paths):
    """Seen red: the first 18 results kept alone, so that a tier had none of its redirection's controls."""
    path = paths.evaluation / "summary.json"
    summary = json.loads(path.read_text())
    names = [f"redirection_control/gazecapture_{number}" for number in range(40)]
    for run in summary["runs"]:
        run["metrics"] |= dict.fromkeys(names, 1.5)
    path.write_text(json.dumps(summary))
    metrics = series(read_run(paths, run_places(TIERS, [0])[1]))
    assert all(metrics[name] == [(0, 1.5)] for name in names)


def test_no_learners_curve_is_cut_off(paths):
    """Seen red: curves counted with the scalars, of which twelve are kept."""
    path = paths.evaluation / "summary.json"
    summary = json.loads(path.read_text())
    names = [f"{d}_{learner}" for d in ("mpiigaze", "gazecapture") for learner in "abcdef"]
    for run in summary["runs"]:
        run["curves"] = {name: [[k, 5.0 - k / 10] for k in range(19)] for name in names}
    path.write_text(json.dumps(summary))
    metrics = series(read_run(paths, run_places(TIERS, [0])[1]))
    for name in names:
        assert metrics[f"curve/{name}_deg"] == [(k, 5.0 - k / 10) for k in range(19)]
    assert {"error/mpiigaze_k9_deg", "memory/peak_gib", "speed/step_ms"} <= set(metrics)


def test_identity(paths):
    def identity(tier="amp", seed=0, **changes):
        log = paths.run_log("amp", 0)
        write_log(log, start_event(paths.root, tier, seed) | changes)
        place = next(p for p in run_places(TIERS, [0, 1]) if (p.tier, p.seed) == (tier, seed))
        return read_training(log, place).identity

    same = identity()
    assert identity() == same and len(same) == 12
    others = [
        identity("ddp"),
        identity(seed=1),
        identity(name="x"),
        identity(config_hash="1"),
        identity(fingerprint="2"),
    ]
    assert len({same, *others}) == 6


def test_bad_input_is_told_in_one_sentence(paths):
    log, place = paths.run_log("amp", 0), run_places(TIERS, [0])[1]
    write_summary(paths.root, tiers=TIERS[:1])
    with pytest.raises(ValueError, match=r"summary\.json: has no run of tier amp, seed 0; run the rule evaluate again"):
        read_run(paths, place)
    log.write_text(log.read_text().partition("\n")[2])
    with pytest.raises(ValueError, match=r"run\.jsonl: has no start event"):
        read_training(log, place)
    log.write_text("")
    with pytest.raises(ValueError, match=r"run\.jsonl: has no start event"):
        read_training(log, place)


@pytest.mark.parametrize("key", ["name", "tier"])
@pytest.mark.parametrize("value", ["x' or ''='", "<script>alert(1)</script>", "../../x", "a b", "", "x" * 300])
def test_names_that_stand_in_queries_are_names(paths, key, value):
    """Seen red: a quote in a log ended the filter by which MLflow's runs are found."""
    log = paths.run_log("amp", 0)
    write_log(log, start_event(paths.root, "amp", 0) | {key: value})
    with pytest.raises(ValueError, match=r"run\.jsonl is corrupt"):
        read_training(log, run_places(TIERS, [0])[1])


def test_tags_and_params_are_texts(paths):
    log = paths.run_log("amp", 0)
    start = start_event(paths.root, "amp", 0)
    machine = start["machine"] | {"commit": None, "processor": ["<b>", 1]}
    write_log(
        log, start | {"machine": machine, "fingerprint": 3, "config": start["config"] | {"report.note": {"a": 1}}}
    )
    record = read_training(log, run_places(TIERS, [0])[1])
    assert all(isinstance(text, str) for text in (*record.tags.values(), *record.params.values()))


def test_a_tier_has_one_colour_in_mlflow_and_in_the_report():
    """Seen red: black, orange, blue in MLflow; grey, blue, orange on the page."""
    for number in (1, 5, 7, 12):
        tiers = [f"t{i}" for i in range(number)]
        found = {place.tier: place.color for place in run_places(tiers, [0, 1])}
        assert found == tier_colors(tiers)
        assert len(set(found.values())) == number
    assert tier_colors(["baseline", "amp"]) == {"baseline": "#7b8794", "amp": "#0072b2"}


def test_a_log_of_an_older_version_keeps_its_rate(paths):
    log = paths.run_log("ddp", 0)
    log.write_text(log.read_text().replace("train/images_per_s", "speed/images_per_s"))
    metrics = series(read_training(log, run_places(TIERS, [0])[2]))
    assert "speed/images_per_s" not in metrics and len(metrics["train/images_per_s"]) == 30
