"""The configuration: faults are reported at once with file, line, key and suggestion; tiers build on each other."""

from pathlib import Path

import pytest
from pydantic import BaseModel

from faze.base.errors import UserError
from faze.config.parameters import KINDS, STAGES, Change, Config
from faze.config.stage_config import Resolved, controls, listed, resolve, resolve_tier, to_lines, trained_tiers
from faze.config.validation import read_config, read_yaml

ROOT = Path(__file__).resolve().parents[2]
SHIPPED = sorted((ROOT / "config").glob("*/*.yaml"))
CHANGED = ("preprocess", "run", "benchmark")  # a stage's own section differs from the configuration's
TEMPLATES = ("paper.yaml", "webcam.yaml")  # their data sets are for the user to fill in


def own(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "mine.yaml"
    path.write_text(f"name: mine\n{text}", encoding="utf-8")
    return path


FAULTS = {
    "train: {base_rl: 1.0}": ":2: train.base_rl: unknown key; did you mean base_lr?",
    "train:\n  pairs: many": ":3: train.pairs: Input should be a valid integer, not 'many'",
    "train: {pairs: 2.5}": ":2: train.pairs: Input should be a valid integer, not 2.5",
    "train: {momentum: 1.5}": "train.momentum: Input should be less than or equal to 1, not 1.5",
    "train: {flip: .nan, base_lr: .nan}": "train.base_lr: Input should be a finite number",
    "tiers: {baseline: {precision: fp8}}": "tiers.baseline.precision: Input should be 'fp32', 'fp16' or 'bf16'",
    "tiers: {mine: {precisn: fp16}}": "tiers.mine.precisn: unknown key; did you mean precision?",
    "run: {tiers: [baseline, amq]}": "run.tiers: amq is not defined under tiers; did you mean amp?",
    "run: {tiers: [baseline, amp, amp]}": ":2: run.tiers: amp is listed twice",
    "run: {seeds: [0, 0]}": ":2: run.seeds: contains a seed twice",
    "tiers: {seed: {precision: fp16}}": "tiers: seed is the name of a noise control",
    "tiers: {mine: {on: yours}, yours: {on: mine}}": ":2: tiers.mine.on: yours is not before mine",
    "train: {pairs: 5}\ntrain: {pairs: 6}": "train, train.pairs: given twice",
    "run: {tiers: [amp, baseline]}": "run.tiers: baseline sets every switch",
    "run: {tiers: [baseline, mine]}\ntiers: {mine: {on: ddp}}": ":3: tiers.mine.on: ddp is not before mine",
    "run: {seeds: []}": "run.seeds",
    "run: {seeds: [-1]}": "run.seeds",
    "walk: 3": ":2: walk",
    "workload: my_training.Network": "workload",
    "train: {global_batch: 12}": "train.global_batch: 12 is not a multiple of 1 processes",
    "tiers: {two_processes: {processes: 3}}": "train.global_batch: 16 is not a multiple of 3 processes",
    "model: {image_height_px: 30}": "model.image_height_px",
    "model: {blocks: 4, image_height_px: 16, image_width_px: 64}": "multiples of 2^(model.blocks + 1) = 32",
    "model: {blocks: 4, image_height_px: 32, image_width_px: 32}": "= 32, and one larger",
    "train: {pairs: 0}": "train.pairs: is 0, but train.start names no weights",
    "train: {start: nowhere.pt}": "train.start: no such file or folder: nowhere.pt",
    "train: {frozen: [encodr]}": "did you mean encoder?",
    "preprocess: {datasets: [{name: a, layout: gazecapture, path: .}]}": "landmarks.model: no such file",
    "fewshot: {learners: [gp]}": "fewshot.learners",
    "synthetic: {frames_per_person: 60}": "synthetic.frames_per_person: must be at least",
    "preprocess: {datasets: [{name: a, layout: manifest, path: no.csv}]}": ":2: preprocess.datasets.0.path: no such",
    "preprocess: {datasets: [{name: a, layout: manifest}]}": "datasets.0: has no path",
    "preprocess: {datasets: [{name: a, layout: mpiigaze, path: .}]}": "datasets.0: mpiigaze needs `splits`",
    "preprocess: {datasets: [{name: a, layout: gazecapture, folds: 5}]}": "datasets.0.folds",
    "preprocess: {datasets: [{name: a, layout: gazecapture, splits: test}]}": "all but one data set",
    "preprocess: {datasets: [{name: a, layout: gazecapture, splits: leave_one_person_out, folds: 5}, "
    "{name: b, layout: gazecapture, splits: test}]}": "leave_one_person_out allows no other data set",
    "preprocess: {datasets: [{name: a, layot: gazecapture}]}": "layot: unknown key; did you mean layout?",
    "preprocess: {datasets: []}": "preprocess.datasets",
    "tiers: {own: {given: {network: a.onnx}, recompute: true}}": "tiers.own: a given network is not trained",
    "tiers: {own: {given: {network: a.onnx}}}\nrun: {tiers: [baseline, own]}\n"
    "fewshot: {learners: [maml]}": "own has no codes",
    "tiers: {own: {given: {network: a.onnx}}}\nrun: {tiers: [baseline, own]}\n"
    "preprocess: {datasets: [{name: a, layout: strips, path: .}]}": ":2: tiers.own.given: sees patches of raw frames",
    "sweep: {grid: {}}": "sweep: unknown key",
    "1: {2: 3}": "1: Keys should be strings",
    "train: [1": "cannot be read",
}


@pytest.mark.parametrize(("text", "words"), FAULTS.items(), ids=range(len(FAULTS)))
def test_a_fault_names_file_key_and_remedy(tmp_path, text, words):
    with pytest.raises(UserError) as refused:
        read_config([own(tmp_path, text)])
    assert (f"mine.yaml{words}" if words[0] == ":" else words) in str(refused.value)


def test_a_file_of_overrides_needs_a_name(tmp_path):
    path = tmp_path / "nameless.yaml"
    path.write_text("train: {pairs: 32}")
    with pytest.raises(UserError, match=r"nameless.yaml: needs a `name`"):
        read_config([path])


@pytest.mark.parametrize("path", [path for path in SHIPPED if path.name not in TEMPLATES], ids=lambda path: path.stem)
def test_shipped_files_are_valid(path, monkeypatch):
    monkeypatch.chdir(ROOT)
    assert read_config([path]).name == path.stem


@pytest.mark.parametrize("path", [path for path in SHIPPED if path.name in TEMPLATES], ids=lambda path: path.stem)
def test_templates_lack_only_paths(path, monkeypatch):
    monkeypatch.chdir(ROOT)
    with pytest.raises(UserError) as error:
        read_config([path])
    assert all("no such file or folder: /path/to/" in fault for fault in str(error.value).splitlines())


def test_a_later_file_wins_and_yaml_is_what_people_write(tmp_path):
    text = "tiers: {mine: {on: baseline, train: false}}\nreport: {title: true faces}\n"
    path = own(tmp_path, text + "train: {base_lr: 1e-3, head_lr: 1e2}")
    config = read_config([ROOT / "config/sizes/demo.yaml", path])
    assert (config.name, config.train.pairs, config.report.title) == ("mine", 2000, "true faces")
    assert (config.train.base_lr, config.train.head_lr) == (0.001, 100.0)
    assert config.tiers["mine"].on == "baseline" and not config.tiers["mine"].train


def test_every_parameter_has_a_default_and_every_default_a_parameter():
    stated = read_yaml(ROOT / "config/config.yaml")
    config = Config(**stated)
    for section, value in stated.items():
        if isinstance(found := getattr(config, section), BaseModel) and section != "preprocess":
            assert set(value) == set(type(found).model_fields), section


def test_the_schema_contains_choices_and_bounds():
    sections = Config.model_json_schema()["$defs"].values()
    kinds = {key: of.get("anyOf", [of])[0] for section in sections for key, of in section["properties"].items()}
    assert [key for key in Change.model_fields if kinds[key] == {"type": "string"}] == ["on", "optimizer"]
    numbers = {key: kind for key, kind in kinds.items() if kind.get("type") in ("integer", "number")}
    assert [key for key, kind in numbers.items() if "minimum" not in kind] == ["triplet_margin"]
    most = {"blocks": 4, "normalize_axis": 3, "hidden": 4096, "range_deg": 90, "confidence": 0.9999}
    most |= dict.fromkeys(("color_scale", "decay_share", "momentum"), 1)
    assert {key: kind["maximum"] for key, kind in numbers.items() if "maximum" in kind} == most


@pytest.mark.parametrize(
    ("device", "names", "trained"),
    [
        ("cpu", ["two_processes", "recompute", "allocator_retention", "compile"], ["recompute", "compile"]),
        ("cuda", ["amp", "ddp", "fused_sgd", "autotune", "bf16", "channels_last", "fused_norm", "graphs"], ["amp"]),
    ],
)
def test_the_device_selects_the_tiers(device, names, trained):
    config = read_config(changes={"tiers": {"baseline": {"device": device}}})
    assert list(listed(config))[1 : len(names) + 1] == names
    assert trained_tiers(config)[1 : len(trained) + 1] == trained


def test_a_tier_adds_its_switches_to_those_it_builds_on():
    changes = {"run": {"tiers": ["baseline", "amp", "ddp", "compile"]}, "tiers": {"compile": {"on": "amp"}}}
    config = read_config(changes=changes)
    ddp, compiled, unlisted = (resolve_tier(config, tier) for tier in ("ddp", "compile", "graphs"))
    assert (ddp.precision, ddp.parallel, ddp.compile) == ("fp16", "ddp", "eager")
    assert (compiled.precision, compiled.parallel, compiled.compile) == ("fp16", "dp", "default")
    assert unlisted == resolve_tier(config, "baseline").model_copy(update={"graphs": True})


def test_options_belong_to_their_optimizer():
    """Regression risk: an option of the base, such as betas, would be passed to another class."""
    options = {"betas": [0.9, 0.99], "inner": {"depth": None}}
    tiers = {"mine": {"on": "baseline", "optimizer": "AdamW", "optimizer_options": options}}
    tiers |= {"more": {"on": "mine", "keep_fp32": ["Conv2d"]}, "other": {"on": "more", "optimizer": "Lion"}}
    config = read_config(changes={"tiers": tiers})
    mine, more, other = (Resolved(resolve(config, "train", tier, 0)).engine for tier in tiers)
    assert mine.optimizer_options == more.optimizer_options == options and more.keep_fp32 == ("Conv2d",)
    assert (other.optimizer, other.optimizer_options, other.keep_fp32) == ("Lion", {}, ("Conv2d",))


def test_the_baseline_is_always_trained():
    config = read_config(changes={"tiers": {"baseline": {"train": False}}})
    assert trained_tiers(config)[0] == "baseline"


def test_a_single_tier_has_no_noise_control():
    assert controls(read_config(changes={"run": {"tiers": ["baseline"]}})) == []


@pytest.mark.parametrize("stage", STAGES)
def test_a_stage_reads_what_the_workflow_wrote(tmp_path, stage):
    config = read_config()
    flat = resolve(config, stage, "compile", 0, "laptop")
    path = tmp_path / "stage.yaml"
    path.write_text("\n".join(to_lines(flat)))
    found = Resolved(read_yaml(path))
    assert (found.flat, found.hash) == (flat, Resolved(flat).hash)
    for section in STAGES[stage]:
        same = KINDS[section] is type(getattr(config, section, None)) and section not in (
            "preprocess",
            "run",
            "benchmark",
        )
        assert not same or getattr(found, section) == getattr(config, section)


def test_a_stage_depends_on_its_own_sections_only():
    before, after = read_config(), read_config(changes={"walk": {"frames": 9}, "tiers": {"amp": {"tf32": True}}})
    for stage in STAGES:
        flats = [resolve(config, stage, "compile", 0, "laptop") for config in (before, after)]
        assert (flats[0] == flats[1]) == (stage != "walk"), stage


def test_noise_controls_are_the_baseline_by_chance():
    config = read_config(changes={"run": {"seeds": [1000, 3]}})
    plain, rounding, seed = (Resolved(resolve(config, "train", tier, 3)) for tier in ("baseline", "rounding", "seed"))
    assert plain.engine == rounding.engine == seed.engine
    assert (rounding.seed, rounding.control, seed.control, plain.control) == (3, "rounding", "seed", None)
    assert seed.seed not in (1000, 3)


def test_folds_are_numbered():
    data = {"name": "a", "layout": "gazecapture", "splits": "leave_one_person_out", "folds": 4}
    config = read_config(changes={"preprocess": {"datasets": [data]}})
    fold = Resolved(resolve(config, "train", "baseline", 0, fold=2)).fold
    assert (fold.number, fold.folds) == (2, 4)
