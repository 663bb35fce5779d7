"""Parameter files that are refused while they are read."""

from pathlib import Path

import pytest

from faze.config.check import ConfigError
from faze.config.stage_config import load
from faze.config.validation import read_config
from faze.config.yaml_files import read_yaml


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("train:\n  pairs: 1\n  base_lr: 2\n  pairs: 3\n", r"mine\.yaml:4: train\.pairs: .* line 2"),
        ("train: {pairs: 1}\nwalk: {fps: 1}\ntrain: {pairs: 2}\n", r"mine\.yaml:3: train: .* line 1"),
        ("tiers:\n  a: {}\n  b: {}\n  a: {}\n", r"mine\.yaml:4: tiers\.a: .* line 2"),
        ("name: x\ntrain: {pairs: 1\nwalk:\n", r"mine\.yaml:3: not YAML"),
        ("just words\n", r"mine\.yaml: contains no keys and values"),
    ],
)
def test_what_cannot_be_meant_is_refused_with_its_line(text: str, sentence: str, tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text(text)
    with pytest.raises(ConfigError, match=sentence):
        read_yaml(tmp_path / "mine.yaml")


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("train: &a {x: *a}\n", "not YAML"),
        ("train: " + "[" * 100_000, "not YAML"),
        ("train: !!int ''\n", "not YAML"),
        ("train: !!bool perhaps\n", "not YAML"),
        ("train: !!timestamp never\n", "not YAML"),
        ("train: !!python/object/apply:os.system [touch ran]\n", "not YAML: could not determine a constructor"),
        ("train: " + "9" * 5000, "not YAML"),
    ],
)
def test_text_that_yaml_cannot_construct_is_one_sentence(text: str, sentence: str, tmp_path: Path) -> None:
    """Regression: each case ended with a traceback."""
    (tmp_path / "mine.yaml").write_text(text)
    with pytest.raises(ConfigError, match=rf"mine\.yaml(:\d+)?: .*{sentence}"):
        read_yaml(tmp_path / "mine.yaml")


def test_an_alias_is_what_it_stands_for(tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text("walk: &w {people: 1}\nother: {<<: *w, fps: 2}\n")
    assert read_yaml(tmp_path / "mine.yaml") == {"walk": {"people": 1}, "other": {"people": 1, "fps": 2}}


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (
            "train: {pairs: 0x" + "f" * 50_000 + "}",
            "train.pairs: a number with thousands of digits is not a whole number",
        ),
        ("fewshot: {draws: 0x" + "f" * 5000 + "}", "fewshot.draws: a number with thousands of digits is not one of"),
        ("run: {seeds: [0x" + "f" * 5000 + "]}", r"run.seeds\[0\]: a number with thousands of digits is not a whole"),
        ("train: {pairs: 9223372036854775808}", "train.pairs: 9223372036854775808 is not a whole number"),
        ("train: {base_lr: 1" + "0" * 400 + "}", r"train.base_lr: 1000\d*\.\.\. is not a number"),
        ("train: {pairs: " + "y" * 5000 + "}", r"train.pairs: 'yyy\w*\.\.\. is not a whole number"),
        ('train: {"p\\e[2J": 1}', r"train.p\?\[2J: unknown key"),
        ("tiers: {1: {}}", "tiers.1: must be"),
        ("tiers: {-x: {}}", "tiers.-x: must be"),
        ("tiers: {" + "x" * 101 + ": {}}", "it names a folder"),
        ("run: {tiers: [[a]]}", r"run.tiers\[0\]: \['a'\] is not text"),
        ("name: " + "n" * 300, "must be letters, digits, - and _"),
    ],
)
def test_values_of_any_size_are_told_in_a_line(text: str, sentence: str, tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text(text)
    with pytest.raises(ConfigError, match=sentence) as told:
        read_config([tmp_path / "mine.yaml"])
    assert all(len(line) < 1000 and line.isprintable() for line in str(told.value).splitlines())


def test_what_a_stages_own_file_lacks_is_told_with_its_name(tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text("stage: walk\nwalk.people: 1\n")
    with pytest.raises(ConfigError, match=r"mine\.yaml: walk\.fps: missing"):
        load(tmp_path / "mine.yaml", "walk")


def test_bytes_that_are_no_text_are_refused(tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_bytes(b"name: \xff\xfe\n")
    with pytest.raises(ConfigError, match=r"mine\.yaml: not YAML"):
        read_yaml(tmp_path / "mine.yaml")


def test_the_same_key_in_two_files_or_two_sections_is_no_fault(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text("train: {pairs: 1}\nwalk: {people: 1}\nsynthetic: {people: 2}\n")
    (tmp_path / "b.yaml").write_text("train: {pairs: 2}\n")
    merged = {"train": {"pairs": 2}, "walk": {"people": 1}, "synthetic": {"people": 2}}
    assert read_yaml(tmp_path / "a.yaml", tmp_path / "b.yaml") == merged
