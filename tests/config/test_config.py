"""Parameters: which values are refused, with which message, and how a value gets from config.yaml to its stage."""

import dataclasses
import hashlib
import re
from dataclasses import is_dataclass
from pathlib import Path
from typing import get_args

import pytest
import yaml
from data_sets import entries
from hypothesis import given
from hypothesis import strategies as st

from faze.config.check import ConfigError, fields_of, yaml_number
from faze.config.parameters import PER_DATASET, SECTIONS, STAGES, Engine
from faze.config.stage_config import load, resolve, to_lines
from faze.config.tiers import DEVICE, evaluated_tiers, resolve_tier, tier_bases
from faze.config.validation import validate
from faze.config.yaml_files import merge, read_yaml

ROOT = Path(__file__).resolve().parents[2]
DEFAULTS = ROOT / "config" / "config.yaml"
SHIPPED = sorted((ROOT / "config").glob("*.yaml"))


@pytest.fixture
def defaults() -> dict:
    return read_yaml(DEFAULTS)


def faults(mapping: dict, paths: tuple[Path, ...] = ()) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        validate(mapping, paths)
    return str(caught.value).splitlines()


def with_overrides(tmp_path: Path, text: str) -> tuple[dict, tuple[Path, Path]]:
    path = tmp_path / "mine.yaml"
    path.write_text(text)
    return read_yaml(DEFAULTS, path), (DEFAULTS, path)


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.stem)
def test_shipped_files_are_valid(path: Path) -> None:
    validate(read_yaml(DEFAULTS, path), [DEFAULTS, path])


def test_shipped_files_have_names_of_their_own() -> None:
    names = [yaml.safe_load(path.read_text())["name"] for path in SHIPPED]
    assert len(set(names)) == len(names) >= 3


def test_all_faults_at_once_with_file_line_and_nearest_key(tmp_path: Path) -> None:
    mapping, paths = with_overrides(tmp_path, "train:\n  base_rl: 0.1\n  pairs: many\nfewshot:\n  shots: [1, 0]\n")
    assert sorted(faults(mapping, paths)) == [
        f"{paths[1]}:2: train.base_rl: unknown key; did you mean base_lr?",
        f"{paths[1]}:3: train.pairs: 'many' is not a whole number",
        f"{paths[1]}:5: fewshot.shots[1]: 0 must be at least 1",
    ]


def test_number_that_yaml_reads_as_text_is_named_with_its_remedy(tmp_path: Path) -> None:
    mapping, paths = with_overrides(tmp_path, "train:\n  base_lr: 1e-3\n  pairs: 1e6\nrun:\n  seeds: ['2']\n")
    assert set(faults(mapping, paths)) == {
        f"{paths[1]}:2: train.base_lr: YAML reads 1e-3 as text; write 0.001",
        f"{paths[1]}:3: train.pairs: YAML reads 1e6 as text; write 1000000",
        f"{paths[1]}:5: run.seeds[0]: YAML reads 2 as text; write 2",
    }


@pytest.mark.parametrize(
    ("section", "key", "value", "words"),
    [
        ("train", "pairs", 1.5, ["1.5", "whole number"]),
        ("train", "pairs", True, ["True", "whole number"]),
        ("train", "base_lr", float("inf"), ["inf", "number"]),
        ("train", "base_lr", float("nan"), ["nan", "number"]),
        ("data", "workers", "atuo", ["'atuo'", "whole number", "did you mean auto"]),
        ("data", "workers", -1, ["-1", "at least 0", "auto"]),
        ("data", "workers", None, ["None", "whole number", "auto"]),
        ("augment", "color_scale", 1.01, ["1.01", "between 0 and 1"]),
        ("train", "momentum", -0.01, ["-0.01", "between 0 and 1"]),
        ("model", "backprop_gaze", 1, ["1", "true", "false"]),
        ("preprocess", "compatibility", "twostep", ["'twostep'", "none", "did you mean two_step"]),
        ("landmarks", "model", 3, ["3", "text"]),
        ("fewshot", "shots", 9, ["9", "list", "[9]"]),
        ("fewshot", "learners", [], ["empty"]),
        ("run", "seeds", [0, 0], ["[0, 0]", "twice"]),
    ],
)
def test_wrong_values_are_refused(defaults: dict, section: str, key: str, value: object, words: list[str]) -> None:
    defaults[section][key] = value
    of_key = [fault for fault in faults(defaults) if fault.startswith(f"{section}.{key}: ")]
    assert any(all(word in fault for word in words) for fault in of_key)


def test_missing_key_and_missing_section_are_named(defaults: dict) -> None:
    del defaults["train"]["pairs"], defaults["walk"]
    assert sorted(faults(defaults)) == ["train.pairs: missing", "walk: missing"]


def test_section_that_is_no_mapping_is_one_fault(defaults: dict) -> None:
    defaults["train"] = None
    assert faults(defaults) == ["train: None is not a section of keys and values"]


def test_undefined_tier_is_named(defaults: dict) -> None:
    defaults["run"]["tiers"] = ["baseline", "ampp"]
    assert faults(defaults) == ["run.tiers: 'ampp' is not defined under tiers; did you mean amp?"]


def test_first_rung_states_every_switch_and_others_may_not_invent_one(defaults: dict) -> None:
    del defaults["tiers"]["baseline"]["tf32"]
    defaults["tiers"]["amp"]["prcision"] = "fp16"
    assert set(faults(defaults)) == {
        "tiers.baseline.tf32: missing",
        "tiers.amp.prcision: unknown key; did you mean precision?",
    }


def test_batch_is_a_multiple_of_processes_times_chunk(defaults: dict) -> None:
    defaults["tiers"]["ddp"]["processes"] = 3
    text = "\n".join(faults(defaults))
    assert "train.global_batch: 16 is not a multiple of 3 processes x accumulate 1 x loss.chunk_pairs 8 (tier " in text
    assert "(tier baseline)" not in text


def test_each_part_of_the_batch_holds_whole_chunks(defaults: dict) -> None:
    """The error is found from the configuration alone, before any frame is read."""
    defaults["tiers"]["recompute"] |= {"accumulate": 4}
    assert faults(defaults) == [
        "train.global_batch: 16 is not a multiple of 1 processes x accumulate 4 x loss.chunk_pairs 8 (tier recompute)"
    ]


def test_leave_one_outs_are_checked_like_tiers(defaults: dict) -> None:
    """If the tier that resets it is left out, an odd number of processes must still be refused."""
    defaults["tiers"]["amp"]["processes"] = 3
    defaults["tiers"]["fused_sgd"]["processes"] = 2
    defaults["run"]["tiers"] = ["baseline", "amp", "fused_sgd", "ddp"]
    validate(defaults)
    defaults["benchmark"]["leave_one_out"] = True
    assert [line.endswith(" without fused_sgd)") for line in faults(defaults)] == [True]


@pytest.mark.parametrize(("wrong", "offered"), [("nope", ""), ("compil", "; did you mean compile?")])
def test_only_a_name_that_is_near_is_offered(wrong: str, offered: str, defaults: dict) -> None:
    defaults["run"]["tiers"] = [wrong]
    assert faults(defaults) == [f"run.tiers: {wrong!r} is not defined under tiers{offered}"]


def test_switches_that_exclude_each_other_are_refused(defaults: dict) -> None:
    defaults["tiers"]["baseline"] |= {"keep_fp32": ["conv", "mean"], "force_low": ["mean"]}
    text = "\n".join(faults(defaults))
    assert "tiers.ddp: keep_fp32 and force_low both contain mean" in text


def test_what_the_compiler_cannot_take_is_refused(defaults: dict) -> None:
    """Regression: torch's assertions failed only after the preceding tiers had been trained."""
    defaults["tiers"]["compile"] |= {"checkpointing": True, "keep_fp32": ["mean"]}
    defaults["run"]["tiers"] = ["baseline", "amp", "compile"]
    (fault,) = faults(defaults)
    assert fault.startswith("tiers.compile: ")
    assert all(key in fault for key in ("checkpointing", "keep_fp32", "force_low"))
    for allowed in ({"checkpointing": False}, {"keep_fp32": []}, {"compile": "eager"}):
        validate(merge(defaults, {"tiers": {"compile": allowed}}))


def test_a_loss_without_any_weight_is_refused(defaults: dict) -> None:
    kept = ("triplet_margin", "ramp_pairs", "chunk_pairs")
    defaults["loss"] |= {key: 0 for key in defaults["loss"] if key not in kept}
    defaults["loss"]["triplet_margin"] = 0.3
    (fault,) = faults(defaults)
    assert fault.startswith("loss: every weight is 0")
    for key in defaults["loss"].keys() - set(kept):
        validate(merge(defaults, {"loss": {key: 0.1}}))


def test_list_of_operations_may_be_empty_but_not_unknown(defaults: dict) -> None:
    defaults["tiers"]["baseline"]["keep_fp32"] = ["convs"]
    assert faults(defaults)[0].endswith("did you mean conv?")


def test_image_keeps_the_aspect_of_the_strip(defaults: dict) -> None:
    defaults["model"]["image_width_px"] = 120
    assert any(line.startswith("model.image_width_px: must keep the 256 x 64") for line in faults(defaults))


def test_too_few_synthetic_frames_are_found_before_rendering(defaults: dict) -> None:
    defaults["fewshot"]["min_entries"] = 10
    defaults["synthetic"]["frames_per_person"] = 68
    assert faults(defaults) == [
        "synthetic.frames_per_person: 68 is less than the largest of fewshot.shots (9) plus fewshot.query_entries (60)"
    ]
    defaults["synthetic"]["frames_per_person"] = 69
    validate(defaults)


def test_frames_of_train_people_are_enough_for_a_task(defaults: dict) -> None:
    """Fails if train people are required to have query entries."""
    defaults["synthetic"]["gazecapture_train_frames"] = 29
    validate(defaults)
    defaults["synthetic"]["gazecapture_train_frames"] = 28
    told = (
        "synthetic.gazecapture_train_frames: 28 is less than the largest of fewshot.shots (9) plus fewshot.meta_query"
    )
    assert any(line.startswith(told) for line in faults(defaults))
    defaults["fewshot"]["learners"] = ["offset"]
    validate(defaults)


def test_who_is_not_rendered_needs_no_rendered_frames(defaults: dict) -> None:
    """Regression: real people were refused for lacking something that only rendered people have."""
    defaults["synthetic"] |= {"gazecapture_train_people": 1, "gazecapture_train_frames": 2}
    keys = [line.partition(":")[0] for line in faults(defaults)]
    assert keys == ["synthetic.gazecapture_train_frames", "fewshot.tasks"]
    defaults["preprocess"]["datasets"] = entries(gazecapture={"path": "/data/gazecapture"})
    validate(defaults)


def test_train_people_have_as_many_frames_as_train_entries_are_asked_for(defaults: dict) -> None:
    defaults["data"]["min_entries"] = 31
    assert faults(defaults) == [
        "data.min_entries: 31 is more than synthetic.gazecapture_train_frames: training would leave everyone out"
    ]
    defaults["data"]["min_entries"] = 30
    validate(defaults)


@pytest.mark.parametrize(("strip", "image"), [((96, 64), (24, 16)), ((64, 64), (16, 16))])
def test_an_image_leaves_something_to_normalise(defaults: dict, strip: tuple, image: tuple) -> None:
    """Regression: an image size that is too small was refused only after all people had been rendered."""
    defaults["preprocess"] |= dict(zip(("width_px", "height_px"), strip, strict=True))
    defaults["model"] |= dict(zip(("image_width_px", "image_height_px"), image, strict=True)) | {"blocks": 3}
    assert faults(defaults) == ["model.image_width_px: must be a multiple of 16 (2^(model.blocks + 1)) above 16"]


def test_any_text_comes_to_a_stage_as_it_was(defaults: dict, tmp_path: Path) -> None:
    """Regression: YAML read characters beyond U+FFFF as surrogates, which no file can contain."""
    defaults["report"]["title"] = title = "𠮷野 😀 é \\ud83d \u2028 \x85 \"'#: \t"
    (tmp_path / "report.yaml").write_text("\n".join(to_lines(resolve(validate(defaults), "report"))))
    assert load(tmp_path / "report.yaml", "report").report.title == title


def test_image_height_follows_the_blocks(defaults: dict) -> None:
    defaults["model"] |= {"image_height_px": 16, "image_width_px": 64, "blocks": 4}
    assert any("multiple of 32 (2^(model.blocks + 1)) that divides 64" in line for line in faults(defaults))
    defaults["model"]["blocks"] = 3
    validate(defaults)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"learners": ["maml", "reference"], "inner_steps": 2}, r"fewshot\.inner_steps: 2 .*reference"),
        ({"adapt_steps": 100}, r"fewshot\.record_steps: \[200, 500\] .*fewshot\.adapt_steps, 100"),
    ],
)
def test_fewshot_steps_that_cannot_be(defaults: dict, changes: dict, words: str) -> None:
    defaults["fewshot"] |= changes
    (fault,) = faults(defaults)
    assert re.match(words, fault)


def test_raw_gazecapture_needs_no_supplementary_file(defaults: dict) -> None:
    """The rule `landmarks` creates such a file."""
    defaults["preprocess"]["datasets"] = entries(gazecapture={"path": "/data/gazecapture"})
    validate(defaults, [])


@pytest.mark.parametrize("name", ["../elsewhere", "a b", "-a", ""])
def test_name_must_name_a_folder(defaults: dict, name: str) -> None:
    defaults["name"] = name
    assert faults(defaults)[0].startswith("name: ")


def test_file_that_is_not_yaml_is_named_with_the_line(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text("name: x\ntrain: {pairs: 1\nwalk:\n")
    with pytest.raises(ConfigError, match=r"mine\.yaml:3: not YAML"):
        read_yaml(path)


def test_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"absent\.yaml: no such config file"):
        read_yaml(tmp_path / "absent.yaml")


def test_overrides_merge_key_by_key_and_replace_lists(tmp_path: Path, defaults: dict) -> None:
    mapping, _ = with_overrides(tmp_path, "train: {pairs: 5}\nrun: {tiers: [amp]}\n")
    assert mapping["train"] == defaults["train"] | {"pairs": 5}
    assert mapping["run"]["tiers"] == ["amp"]


def test_a_tier_is_the_tier_before_it_plus_its_own_changes(defaults: dict) -> None:
    defaults["run"]["tiers"] = ["baseline", "amp", "ddp", "fused_sgd", "autotune"]
    tiers = {tier: resolve_tier(defaults, tier) for tier in defaults["run"]["tiers"]}
    assert tiers["baseline"].precision == "fp32"
    assert tiers["amp"].precision == tiers["autotune"].precision == "fp16"
    assert (tiers["amp"].parallel, tiers["ddp"].parallel) == ("dp", "ddp")
    assert (tiers["ddp"].optimizer, tiers["fused_sgd"].optimizer) == ("sgd", "fused_sgd")
    assert (tiers["fused_sgd"].cudnn_benchmark, tiers["autotune"].cudnn_benchmark) == (False, True)


def test_a_tier_may_name_the_one_that_it_builds_on(defaults: dict) -> None:
    defaults["run"]["tiers"] = ["amp", "ddp", "fused_sgd on amp", "autotune", "recompute on baseline"]
    config = validate(defaults)
    found = {tier: resolve_tier(config, tier) for tier in tier_bases(config)}
    of_amp, baseline = {"precision": "fp16"}, resolve_tier(config, "baseline")
    of_sgd = {"precision": "fp16", "optimizer": "fused_sgd"}
    changes = {
        "amp": of_amp,
        "ddp": of_amp | {"parallel": "ddp"},
        "fused_sgd": of_sgd,
        "autotune": of_sgd | {"cudnn_benchmark": True},
        "recompute": {"recompute": True},
    }
    assert found == {tier: dataclasses.replace(baseline, **change) for tier, change in changes.items()}
    assert resolve_tier(config, "bf16") == dataclasses.replace(baseline, precision="bf16")  # outside the list
    assert validate(config) == config


def test_an_untrained_tier_is_measured_and_may_be_built_on(defaults: dict) -> None:
    defaults["run"] |= {"tiers": ["baseline", "ddp on baseline (untrained)", "amp"], "controls": ["seed"]}
    config = validate(defaults)
    assert list(tier_bases(config)) == ["baseline", "ddp", "amp"]
    assert evaluated_tiers(config) == list(resolve(config, "evaluate")["run.tiers"]) == ["baseline", "amp"]
    assert resolve(config, "benchmark")["engines.ddp.parallel"] == "ddp"
    assert resolve_tier(config, "amp").parallel == "ddp"
    assert validate(config) == config


def test_a_misspelt_weights_is_named(defaults: dict) -> None:
    (fault,) = faults(defaults | {"tiers": defaults["tiers"] | {"published": {"weight": "x.pt"}}})
    assert "tiers.published.weight: unknown key; did you mean weights?" in fault


def with_weights(defaults: dict, *tiers: str, **change: object) -> dict:
    defaults["run"] |= {"tiers": list(tiers), "controls": []}
    return defaults | {"tiers": defaults["tiers"] | {"published": {"weights": "dted.pt"} | change}}


def test_a_tier_with_weights_starts_from_them_and_trains_nothing(defaults: dict) -> None:
    config = validate(with_weights(defaults, "baseline", "amp", "published", "ddp"))
    assert tier_bases(config) == {"baseline": None, "amp": "baseline", "published": "baseline", "ddp": "amp"}
    assert evaluated_tiers(config) == ["baseline", "amp", "published", "ddp"]
    known = {tier: resolve(config, "train", tier, 0) for tier in ("published", "baseline")}
    changed = {key: value for key, value in known["published"].items() if known["baseline"][key] != value}
    assert changed == {"tier": "published", "train.start": "dted.pt", "train.pairs": 0}
    assert not [key for key in resolve(config, "benchmark") if "published" in key]
    assert validate(config) == config


@pytest.mark.parametrize(
    ("tiers", "change", "sentence"),
    [
        (
            ["published", "amp"],
            {},
            "run.tiers: published has `weights`: list it without `on`",
        ),
        (["baseline", "published (untrained)"], {}, "list it without `on` and `(untrained)`, after the first tier"),
        (["baseline", "amp", "published on amp"], {}, "list it without `on` and `(untrained)`, after the first tier"),
        (["baseline", "published", "amp on published"], {}, "amp builds on published, which has `weights`"),
        (["baseline", "published"], {"precision": "fp16"}, "tiers.published: has `weights`, so it is only evaluated"),
        (["baseline", "published"], {"weights": ""}, "tiers.published.weights: is empty: write the path of a"),
        (["baseline", "published"], {"weights": 3}, "tiers.published.weights: 3 is not text"),
    ],
)
def test_a_tier_with_weights_is_checked(tiers, change, sentence, defaults: dict) -> None:
    (fault,) = faults(with_weights(defaults, *tiers, **change))
    assert sentence in fault


@pytest.mark.parametrize(
    ("train", "loss", "sentence"),
    [
        ({"start": ""}, {}, "train.start: is empty: write the path of a checkpoint, shipped, or null"),
        ({"pairs": 0}, {}, "train.pairs: 0 only evaluates the weights of train.start, which is null"),
        (
            {"frozen": ["encodr"]},
            {},
            "train.frozen: 'encodr' is not one of encoder, decoder, gaze_head, encoder.block1",
        ),
        ({"frozen": ["decoder.block4"]}, {}, "train.frozen: 'decoder.block4' is not one of"),
        (
            {"frozen": ["encoder", "decoder", "gaze_head"]},
            {},
            "train.frozen: nothing would be trained, because every part of the network is frozen",
        ),
        (
            {"frozen": ["decoder", "gaze_head"]},
            {"reconstruction_l1": 0.0, "embedding_consistency": 0.0, "backprop_gaze": False},
            "nothing would be trained, because no term of `loss` reaches encoder",
        ),
        (
            {"frozen": ["encoder", "gaze_head"]},
            {"reconstruction_l1": 0.0},
            "nothing would be trained, because no term of `loss` reaches decoder",
        ),
    ],
)
def test_first_weights_and_frozen_parts_are_checked(train, loss, sentence, defaults: dict) -> None:
    defaults["train"] |= train
    defaults["model"] |= {key: value for key, value in loss.items() if key in defaults["model"]}
    defaults["loss"] |= {key: value for key, value in loss.items() if key in defaults["loss"]}
    (fault,) = faults(defaults)
    assert sentence in fault


def test_tiers_at_the_papers_width_are_defined(defaults: dict) -> None:
    defaults["benchmark"]["paper_width"] = ["recompute", "compiled"]
    assert faults(defaults) == ["benchmark.paper_width: 'compiled' is not defined under tiers; did you mean compile?"]


def test_noise_controls_need_a_second_trained_tier(defaults: dict) -> None:
    defaults["run"] |= {"tiers": ["baseline", "ddp (untrained)"], "controls": ["seed"]}
    assert validate(defaults)["run"]["controls"] == []


@pytest.mark.parametrize(
    ("tiers", "sentence"),
    [
        (["amp", "baseline"], "baseline sets every switch: write it first"),
        (["baseline", "amp", "ddp on amp", "amp on ddp"], "contains amp twice"),
        (["baseline", "ddp on amp", "amp"], "ddp builds on 'amp', which is not before it"),
        (["baseline", "amp", "ddp on baselin"], "which is not before it; did you mean baseline?"),
        (["baseline", "ddp (untrained)", "ddp"], "contains ddp twice"),
        (["baseline", "ddp(untrained)"], "'ddp(untrained)' is not defined under tiers"),
        (["amp (untrained)", "ddp"], "amp is the first tier, with which the others are compared: it must be trained"),
    ],
)
@pytest.mark.parametrize("key", ["run.tiers", "auto_tiers.cuda"])
def test_a_list_of_tiers_is_checked(key, tiers, sentence, defaults: dict) -> None:
    section, name = key.split(".")
    defaults[section][name] = tiers
    (fault,) = faults(defaults)
    assert fault.startswith(f"{key}: ") and sentence in fault


@pytest.mark.parametrize(
    ("device", "variable", "gpus", "torch", "chosen"),
    [
        ("auto", None, ["0"], "2.13.0", "cuda"),
        ("auto", None, ["0"], "2.13.0+cpu", "cpu"),
        ("auto", None, [], "2.13.0", "cpu"),
        ("auto", "cuda", [], "2.13.0+cpu", "cuda"),
        ("cuda", "cpu", [], "2.13.0+cpu", "cuda"),
        ("cpu", None, ["0"], "2.13.0", "cpu"),
    ],
)
def test_auto_is_the_list_of_the_device(device, variable, gpus, torch, chosen, defaults, monkeypatch) -> None:
    monkeypatch.setattr("faze.config.tiers.gpus", lambda: gpus)
    monkeypatch.setattr("importlib.metadata.version", lambda package: torch)
    monkeypatch.delenv(DEVICE, raising=False)
    if variable:
        monkeypatch.setenv(DEVICE, variable)
    defaults["tiers"]["baseline"]["device"] = device
    expected = [item.partition(" ")[0] for item in defaults["auto_tiers"][chosen]]
    assert list(tier_bases(validate(defaults))) == list(tier_bases(defaults)) == expected


def test_climb_refuses_a_rung_that_is_not_there(defaults: dict) -> None:
    with pytest.raises(ConfigError, match="'turbo' is not defined under tiers: baseline, amp"):
        resolve_tier(defaults, "turbo")


def needs_tier(stage: str) -> bool:
    return "engine" in STAGES[stage]


@pytest.mark.parametrize("stage", STAGES)
def test_stage_reads_back_exactly_its_own_sections(defaults: dict, tmp_path: Path, stage: str) -> None:
    dataset = "mpiigaze" if stage in PER_DATASET else None
    flat = resolve(defaults, stage, *(("ddp", 3) if needs_tier(stage) else ()), dataset=dataset)
    path = tmp_path / "stage.yaml"
    path.write_text("\n".join(to_lines(flat)) + "\n")
    loaded = load(path, stage)
    assert loaded.flat == flat
    assert set(loaded.sections) == set(STAGES[stage])
    shared = stage in ("synthesise", "preprocess", "estimator", "oracle")
    assert (loaded.stage, loaded.name, loaded.control) == (stage, None if shared else "default", None)
    assert (loaded.tier, loaded.seed) == (("ddp", 3) if needs_tier(stage) else (None, None))
    for section in set(STAGES[stage]) & set(SECTIONS):
        for key in fields_of(next(filter(is_dataclass, [STAGES[stage][section], *get_args(STAGES[stage][section])]))):
            value, read = defaults[section][key], getattr(loaded.sections[section], key)
            value = evaluated_tiers(defaults) if key == "tiers" else value
            assert read == (tuple(value) if isinstance(value, list) else value), f"{section}.{key}"


def test_resolved_engine_is_the_climbed_rung(defaults: dict, tmp_path: Path) -> None:
    path = tmp_path / "train.yaml"
    path.write_text("\n".join(to_lines(resolve(defaults, "train", "fused_sgd", 0))))
    assert load(path, "train").engine == resolve_tier(defaults, "fused_sgd")


@pytest.mark.parametrize(
    ("section", "key", "value"),
    [("data", "workers", 0), ("data", "workers", 8), ("data", "workers", "auto"), ("train", "momentum", 1)],
)
def test_a_number_or_a_word_comes_back_as_it_is(
    defaults: dict, tmp_path: Path, section: str, key: str, value: int | str
) -> None:
    defaults[section][key] = value
    validate(defaults)
    path = tmp_path / "train.yaml"
    path.write_text("\n".join(to_lines(resolve(defaults, "train", "amp", 0))))
    assert getattr(load(path, "train").sections[section], key) == value


def test_training_knows_of_preprocessing_the_camera_alone(defaults: dict) -> None:
    """A new path to the raw frames must not re-run training on unchanged strips."""
    known = {key for key in resolve(defaults, "train", "amp", 0) if key.startswith("preprocess.")}
    assert known == {f"preprocess.{key}" for key in ("focal_length_px", "distance_mm", "width_px", "height_px")}


def test_benchmark_knows_every_rung_that_is_run(defaults: dict, tmp_path: Path) -> None:
    defaults["run"]["tiers"] = ["baseline", "ddp"]
    path = tmp_path / "benchmark.yaml"
    path.write_text("\n".join(to_lines(resolve(defaults, "benchmark"))))
    engines = load(path, "benchmark").engines
    assert list(engines) == ["baseline", "ddp"]
    assert engines == {tier: resolve_tier(defaults, tier) for tier in ("baseline", "ddp")}
    assert all(isinstance(engine, Engine) for engine in engines.values())


def test_a_stage_knows_nothing_of_other_sections(defaults: dict, tmp_path: Path) -> None:
    path = tmp_path / "walk.yaml"
    path.write_text("\n".join(to_lines(resolve(defaults, "walk"))))
    with pytest.raises(AttributeError, match="does not declare the section 'train'"):
        _ = load(path, "walk").train


def test_load_refuses_the_file_of_another_stage(defaults: dict, tmp_path: Path) -> None:
    path = tmp_path / "walk.yaml"
    path.write_text("\n".join(to_lines(resolve(defaults, "walk"))))
    with pytest.raises(ConfigError, match="is for stage 'walk', not 'train'"):
        load(path, "train")


def test_load_refuses_what_the_workflow_did_not_write(defaults: dict, tmp_path: Path) -> None:
    """Regression: truncation changed `walk.fps: 15` to 1, and a flipped bit changed the threads, without an error."""
    path, text = tmp_path / "walk.yaml", "\n".join(to_lines(resolve(defaults, "walk"))) + "\n"
    path.write_text(f"# sha256 of what follows: {hashlib.sha256(text.encode()).hexdigest()}  -\n{text}")
    assert load(path, "walk").flat == resolve(defaults, "walk")
    whole = path.read_text()
    for damaged in (
        whole[:-2],
        whole.replace("walk.frames: ", "walk.frames: 1"),
        whole.replace("sha256 of ", "sha256 of 1", 1)[:-1],
    ):
        path.write_text(damaged)
        with pytest.raises(ConfigError, match=r"walk\.yaml: .*modified.*delete it"):
            load(path, "walk")
    path.write_text(text.replace("walk.frames: ", "walk.frames: 1"))  # written by hand
    assert load(path, "walk").walk.frames == int(f"1{defaults['walk']['frames']}")


def test_load_checks_values_again(defaults: dict, tmp_path: Path) -> None:
    path = tmp_path / "walk.yaml"
    lines = to_lines(resolve(defaults, "walk"))
    path.write_text("\n".join(line.replace("fps: 15", "fps: fast") for line in lines))
    with pytest.raises(ConfigError, match=r"walk\.fps: 'fast' is not a whole number"):
        load(path, "walk")


def test_hash_follows_values_not_their_order(defaults: dict, tmp_path: Path) -> None:
    def hash_of(lines: list[str]) -> str:
        path = tmp_path / "walk.yaml"
        path.write_text("\n".join(lines))
        return load(path, "walk").hash

    lines = to_lines(resolve(defaults, "walk"))
    assert hash_of(lines) == hash_of(lines[::-1]) == hashlib.sha256("\n".join(sorted(lines)).encode()).hexdigest()[:12]
    assert hash_of(lines) != hash_of([line.replace("fps: 15", "fps: 16") for line in lines])


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_numbers_come_back_from_yaml_as_numbers(number: float) -> None:
    assert yaml.safe_load(yaml_number(number)) == number
