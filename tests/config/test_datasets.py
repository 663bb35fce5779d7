"""The list of data sets: which entries are refused, with which sentence and line, and what each stage gets of it."""

from pathlib import Path

import jsonschema
import pytest
from data_sets import DATASETS, LAYOUTS, SPLITS, entries

from faze.config import editor_schema
from faze.config.check import ConfigError
from faze.config.datasets import data_sets, training_set
from faze.config.parameters import RENDERED_LAYOUTS, DataSet
from faze.config.stage_config import load, resolve, to_lines
from faze.config.validation import read_config, validate
from faze.config.yaml_files import DEFAULTS, read_yaml

KEY = "preprocess.datasets"
LETTERS = "must be letters, digits, - and _: it names files"
ENDS = "must not end with _oracle, or with _k and a number"
TAKEN = "gazecapture: another data set has this name: choose another one"
NO_PATH = "missing; faze renders people only in the layouts mpiifacegaze, gazecapture"
NO_FRAMES = "annotates frames, but `path` contains none"
LAYOUT = "'mpiifacegaz' is not one of mpiifacegaze, mpiigaze, gazecapture, manifest, strips; did you mean mpiifacegaze?"
STRIPS = {"name": "stored", "layout": "strips", "path": "/data/stored.h5"}


@pytest.fixture
def defaults() -> dict:
    return read_yaml(DEFAULTS)


def faults(config: dict, *listed: dict) -> list[str]:
    config["preprocess"]["datasets"] = list(listed)
    with pytest.raises(ConfigError) as refused:
        validate(config)
    return str(refused.value).splitlines()


def check(config: dict, *listed: dict) -> dict:
    config["preprocess"]["datasets"] = list(listed)
    return validate(config)


def test_the_default_renders_two(defaults: dict) -> None:
    """Other tests take their names from tests/shared/data_sets.py."""
    found = data_sets(defaults)
    assert list(found) == list(DATASETS) and training_set(defaults) == "gazecapture"
    for name, data in found.items():
        assert data == DataSet(name, LAYOUTS[name], path=None, supplementary=None, splits=SPLITS[name])
    assert set(RENDERED_LAYOUTS) == set(LAYOUTS.values())


def test_omitted_keys_have_defaults(defaults: dict) -> None:
    found = data_sets(check(defaults, {"name": "phones", "layout": "gazecapture"}))
    assert found == {"phones": DataSet("phones", "gazecapture", path=None, supplementary=None, splits="stated")}


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"mpiigaze": {"name": "a b"}}, f"[0].name: 'a b' {LETTERS}"),
        ({"mpiigaze": {"name": "../up"}}, f"[0].name: '../up' {LETTERS}"),
        ({"mpiigaze": {"name": "-x"}}, f"[0].name: '-x' {LETTERS}"),
        ({"mpiigaze": {"name": ""}}, f"[0].name: '' {LETTERS}"),
        ({"mpiigaze": {"name": "x" * 101}}, f"[0].name: '{'x' * 101}' {LETTERS}"),
        ({"mpiigaze": {"name": "GazeCapture"}}, f"[1].name: {TAKEN}"),
        ({"mpiigaze": {"name": "gazecapture"}}, f"[1].name: {TAKEN}"),
        ({"mpiigaze": {"name": "x_oracle"}}, f"[0].name: x_oracle: {ENDS}"),
        ({"mpiigaze": {"name": "x_Oracle"}}, f"[0].name: x_Oracle: {ENDS}"),
        ({"mpiigaze": {"name": "gazecapture_k9"}}, f"[0].name: gazecapture_k9: {ENDS}"),
        ({"mpiigaze": {"name": 3}}, "[0].name: 3 is not text"),
        ({"mpiigaze": {"layout": "gazecapture"}},
         "[1].path: people are already rendered in the layout gazecapture: give a path"),
        ({"mpiigaze": {"layout": "mpiigaze"}}, f"[0].path: {NO_PATH}"),
        ({"mpiigaze": {"layout": "mpiigaze", "path": ""}}, f"[0].path: {NO_PATH}"),
        ({"mpiigaze": {"layout": "manifest"}}, f"[0].path: {NO_PATH}"),
        ({"mpiigaze": {"layout": "strips"}}, f"[0].path: {NO_PATH}"),
        ({"mpiigaze": {"layout": "mpiifacegaz"}}, f"[0].layout: {LAYOUT}"),
        ({"mpiigaze": {"pth": "/data"}}, "[0].pth: unknown key; did you mean path?"),
        ({"gazecapture": {"path": 3}}, "[1].path: 3 is not text"),
        ({"mpiigaze": {"supplementary": "/s.h5"}}, f"[0].supplementary: {NO_FRAMES}"),
        ({"gazecapture": {"layout": "strips", "path": "/x.h5", "supplementary": "/s.h5"}},
         f"[1].supplementary: {NO_FRAMES}"),
    ],
)  # fmt: skip
def test_a_wrong_entry_is_one_sentence(defaults: dict, changes: dict, sentence: str) -> None:
    told = faults(defaults, *entries(**changes))
    assert len(told) == 1 and told[0].startswith(f"{KEY}{sentence}"), told


@pytest.mark.parametrize("layout", ["mpiifacegaze", "mpiigaze"])
def test_a_data_set_without_splits_needs_them(defaults: dict, layout: str) -> None:
    entry = {"name": "webcam", "layout": layout, "path": "/data"}
    remedy = f"{KEY}[0].splits: {layout} states no splits: write test, leave_one_person_out, or the path of a JSON file"
    assert faults(defaults, entry) == [remedy]
    check(defaults, entry | {"splits": "/data/splits.json"})


@pytest.mark.parametrize("missing", ["name", "layout"])
def test_name_and_layout_are_required(defaults: dict, missing: str) -> None:
    first, second = entries()
    del second[missing]
    assert faults(defaults, first, second) == [f"{KEY}[1].{missing}: missing"]


def test_one_data_set_has_training_people(defaults: dict) -> None:
    first, second = entries()
    sentence = f"{KEY}: one data set must have training people, but {{}}: give all others `splits: test`"
    assert faults(defaults, first, second | {"splits": "test"}) == [sentence.format("none has")]
    assert faults(defaults, first, second, STRIPS) == [sentence.format("gazecapture, stored have")]
    listed = first | {"splits": "/data/splits.json"}
    assert faults(defaults, listed, second) == [sentence.format("mpiigaze, gazecapture have")]
    found = check(defaults, listed, second | {"splits": "test"}, STRIPS | {"splits": "test"})
    assert training_set(found) == "mpiigaze"


def test_an_empty_list_and_no_list_are_refused(defaults: dict) -> None:
    (told,) = faults(defaults)
    assert told.startswith(f"{KEY}: ") and "empty" in told
    del defaults["preprocess"]["datasets"]
    with pytest.raises(ConfigError, match=f"^{KEY}: missing$"):
        validate(defaults)


def test_all_faults_are_found_at_once(defaults: dict) -> None:
    told = faults(defaults, {"name": "a b", "layout": "mpiigaze", "path": "/x"}, {"name": "c", "layout": "strips"})
    keys = [fault.partition(": ")[0] for fault in told]
    assert keys == [f"{KEY}[0].name", f"{KEY}[0].splits", f"{KEY}[1].path", KEY]


def test_only_rendered_training_people_need_enough_frames(defaults: dict) -> None:
    """An empty path is as good as none."""
    defaults["synthetic"] |= {"gazecapture_train_people": 1, "gazecapture_train_frames": 2}
    training = entries()[1]
    assert len(faults(defaults, *entries())) == len(faults(defaults, training | {"path": ""})) == 2
    check(defaults, *entries(gazecapture={"path": "/data/gazecapture"}))
    check(defaults, training | {"splits": "test"}, STRIPS)


def test_leave_one_person_out_renders_enough_laptop_users(defaults: dict) -> None:
    """Regression: the numbers of the phone users, whom nothing renders here, were checked instead."""
    webcam = {"name": "webcam", "layout": "mpiifacegaze", "splits": "leave_one_person_out", "folds": 3}
    defaults["synthetic"] |= {"gazecapture_train_people": 1, "gazecapture_train_frames": 2}
    check(defaults, webcam)
    people = defaults["synthetic"]["mpiigaze_people"]
    told = faults(defaults, webcam | {"folds": people + 1})
    assert told == [f"{KEY}: {people + 1} folds are more than synthetic.mpiigaze_people"]
    defaults["synthetic"]["mpiigaze_people"] = 3
    assert [told.partition(": ")[0] for told in faults(defaults, webcam)] == ["fewshot.tasks"]


MINE = """name: mine
preprocess:
  distance_mm: 600
  datasets:
    - name: a
      layout: mpiigaze
      splits: test
    - {name: b, layout: gazecapture,
       splits: tset, pth: x}
    - name: c
      layout: mpiifacegaze
      path: /data
"""


@pytest.mark.parametrize(
    ("old", "new", "line", "key"),
    [
        ("pth: x", "pth: x", 9, "[1].pth"),
        (", pth: x", ", supplementary: /s", 9, "[1].supplementary"),
        (", pth: x", "", 5, "[0].path"),  # omitted, but stated in config.yaml
        (", pth: x", "", 10, "[2].splits"),
        (", pth: x", "", 4, ""),
        ("layout: mpiifacegaze", "layot: mpiifacegaze", 11, "[2].layot"),
        ("layout: mpiifacegaze", "layot: mpiifacegaze", 10, "[2].layout"),
    ],
)
def test_a_fault_in_the_list_is_told_with_its_line(tmp_path: Path, old: str, new: str, line: int, key: str) -> None:
    """Regression: for an omitted key, the line was that of the default's list, which the list replaces."""
    path = tmp_path / "mine.yaml"
    path.write_text(MINE.replace(old, new))
    with pytest.raises(ConfigError) as refused:
        read_config([path])
    told = str(refused.value).splitlines()
    assert any(fault.startswith(f"{path}:{line}: {KEY}{key}: ") for fault in told), told
    assert str(DEFAULTS) not in str(refused.value)


def test_a_key_given_twice_in_an_entry_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(
        "preprocess:\n  datasets:\n    - {name: a, path: /x}\n    - name: b\n      path: /y\n      path: /z\n"
    )
    with pytest.raises(ConfigError, match=r"mine\.yaml:6: preprocess\.datasets\[1\]\.path: .* line 5"):
        read_yaml(path)


def test_a_list_of_ones_own_replaces_the_defaults(tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text(f"name: mine\npreprocess: {{datasets: [{STRIPS}]}}\n")
    config = read_config([tmp_path / "mine.yaml"])
    assert data_sets(config) == {"stored": DataSet(**STRIPS)} and training_set(config) == "stored"


@pytest.mark.parametrize("stage", ["preprocess", "oracle"])
def test_a_stage_of_one_data_set_knows_no_other(defaults: dict, tmp_path: Path, stage: str) -> None:
    """A change to another entry must not re-run it."""
    before = resolve(defaults, stage, dataset="mpiigaze")
    config = check(defaults, *entries(gazecapture={"path": "/data/gazecapture"}), STRIPS | {"splits": "test"})
    assert resolve(config, stage, dataset="mpiigaze") == before
    of_other = resolve(config, stage, dataset="stored")
    assert {key: value for key, value in of_other.items() if key.startswith("dataset.")} == {
        f"dataset.{key}": value for key, value in vars(DataSet(**STRIPS | {"splits": "test"})).items()
    }
    (tmp_path / "own.yaml").write_text("\n".join(to_lines(of_other)))
    assert load(tmp_path / "own.yaml", stage).dataset == DataSet(**STRIPS | {"splits": "test"})


def test_evaluation_knows_the_names_in_their_order(defaults: dict) -> None:
    config = check(defaults, STRIPS | {"splits": "test"}, *reversed(entries()))
    assert resolve(config, "evaluate")["datasets"] == ["stored", "gazecapture", "mpiigaze"]
    moved = check(defaults, STRIPS | {"splits": "test", "path": "/elsewhere.h5"}, *reversed(entries()))
    assert resolve(moved, "evaluate") == resolve(config, "evaluate")


@pytest.mark.parametrize("stage", ["train", "encode", "meta_train", "adapt"])
def test_other_stages_know_nothing_of_the_list(defaults: dict, stage: str) -> None:
    before = resolve(defaults, stage, "amp", 0)
    assert resolve(check(defaults, STRIPS), stage, "amp", 0) == before


@pytest.mark.parametrize(
    ("listed", "accepted"),
    [
        ([{"name": "a", "layout": "strips"}], True),
        ([{"name": "a", "layout": "strips", "path": None, "supplementary": None, "splits": "x.json"}], True),
        ([], False),
        ([{"name": "a"}], False),
        ([{"layout": "strips"}], False),
        ([{"name": "a", "layout": "strip"}], False),
        ([{"name": "a", "layout": "strips", "pth": "x"}], False),
        ([{"name": "a", "layout": "strips", "splits": None}], False),
        ([{"name": 3, "layout": "strips"}], False),
        (["a"], False),
        ({"a": {"layout": "strips"}}, False),
    ],
)
def test_the_editors_schema_knows_the_list(listed: object, accepted: bool) -> None:
    schema = editor_schema.config_schema(DEFAULTS.read_text())
    described = schema["properties"]["preprocess"]["properties"]["datasets"]["items"]["properties"]
    assert described["splits"]["description"].startswith("stated (by the data) | test (everyone)")
    if accepted:
        jsonschema.validate({"preprocess": {"datasets": listed}}, schema)
    else:
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate({"preprocess": {"datasets": listed}}, schema)
