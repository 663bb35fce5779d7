"""Torch files of strangers: no code is run, and a damaged file is one sentence."""

import os
import pickle
from pathlib import Path

import pytest
import torch

from faze.base.errors import UserError
from faze.model.torch_file import read_mapping, write_mapping


class Runs:
    def __reduce__(self) -> tuple:
        return os.system, ("touch ran",)


def write_torn(path: Path) -> None:
    write_mapping(path, {"weight": torch.arange(3000.0)})
    path.write_bytes(path.read_bytes()[:-2000])


FAULTS = {
    "absent": (lambda path: None, "No such file"),
    "empty": (lambda path: path.touch(), ""),
    "text": (lambda path: path.write_text("hello"), "no torch file"),
    "torn": (write_torn, ""),
    "code": (lambda path: torch.save({"a": Runs()}, path), "more than tensors"),
    "code, older": (lambda path: path.write_bytes(pickle.dumps({"a": Runs()}, 2)), "more than tensors"),
    "a list": (lambda path: torch.save([1], path), "no mapping"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_faulty_file_is_one_sentence(fault: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write, words = FAULTS[fault]
    write(tmp_path / "x.pt")
    with pytest.raises(UserError, match=rf"x\.pt: .*{words}") as told:
        read_mapping(tmp_path / "x.pt")
    assert "\n" not in str(told.value) and not (tmp_path / "ran").exists()


@pytest.mark.parametrize("older", [False, True])
def test_what_torch_writes_is_read(older: bool, tmp_path: Path) -> None:
    """Older formats, like that of the published checkpoint, are read too."""
    content = {"half": torch.ones(2).half(), "view": torch.arange(6.0).reshape(2, 3).T, "list": [1, None, "x"]}
    torch.save(content, tmp_path / "x.pt", _use_new_zipfile_serialization=not older)
    found = read_mapping(tmp_path / "x.pt")
    assert found.keys() == content.keys() and found["list"] == content["list"]
    assert all(torch.equal(found[name], content[name]) for name in ("half", "view"))
