"""Files of parameters: what is refused while they are read."""

from pathlib import Path

import pytest

from faze.config.check import ConfigError
from faze.config.yaml_files import read_yaml


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("train:\n  pairs: 1\n  base_lr: 2\n  pairs: 3\n", r"mine\.yaml:4: train\.pairs: stands in line 2 already"),
        ("train: {pairs: 1}\nwalk: {fps: 1}\ntrain: {pairs: 2}\n", r"mine\.yaml:3: train: stands in line 1 already"),
        ("tiers:\n  a: {}\n  b: {}\n  a: {}\n", r"mine\.yaml:4: tiers\.a: stands in line 2 already"),
        ("name: x\ntrain: {pairs: 1\nwalk:\n", r"mine\.yaml:3: not YAML"),
        ("just words\n", r"mine\.yaml: holds no keys and values"),
    ],
)
def test_what_cannot_be_meant_is_refused_with_its_line(text: str, sentence: str, tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text(text)
    with pytest.raises(ConfigError, match=sentence):
        read_yaml(tmp_path / "mine.yaml")


def test_bytes_that_are_no_text_are_refused(tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_bytes(b"name: \xff\xfe\n")
    with pytest.raises(ConfigError, match=r"mine\.yaml: not YAML"):
        read_yaml(tmp_path / "mine.yaml")


def test_the_same_key_in_two_files_or_two_sections_is_no_fault(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text("train: {pairs: 1}\nwalk: {people: 1}\nsynthetic: {people: 2}\n")
    (tmp_path / "b.yaml").write_text("train: {pairs: 2}\n")
    assert read_yaml(tmp_path / "a.yaml", tmp_path / "b.yaml")["train"] == {"pairs": 2}
