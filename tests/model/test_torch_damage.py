"""Damage to a torch file is one sentence with its name. Seen red: torch itself reads flipped bits in silence."""

import errno
from pathlib import Path

import pytest
import torch
from damaged import cut, flip

from faze.base.errors import UserError
from faze.model.torch_file import read_mapping, write_mapping

WEIGHT = torch.arange(3000.0)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    torch.save({"weight": WEIGHT, "shots": [1, 3]}, tmp_path / "weights.pt")
    return tmp_path / "weights.pt"


def test_a_flipped_bit_of_a_tensor(path: Path) -> None:
    assert torch.equal(read_mapping(path)["weight"], WEIGHT)
    flip(path, WEIGHT.numpy().tobytes())
    assert not torch.equal(torch.load(path, weights_only=True)["weight"], WEIGHT)  # torch does not look
    with pytest.raises(UserError, match=r"weights.pt: .*checksum mismatch"):
        read_mapping(path)


@pytest.mark.parametrize("size", [0, 1, 3, 200, 5000, 12000, -1])
def test_a_lost_end(path: Path, size: int) -> None:
    """Seen red: of 5000 bytes torch says `Invalid argument`, an OSError without a file's name."""
    cut(path, size)
    with pytest.raises(UserError, match="weights.pt: "):
        read_mapping(path)


def test_a_file_of_before_torch_1_6_is_read(tmp_path: Path) -> None:
    torch.save({"weight": WEIGHT}, tmp_path / "old.pt", _use_new_zipfile_serialization=False)
    assert torch.equal(read_mapping(tmp_path / "old.pt")["weight"], WEIGHT)


def test_a_full_disk_names_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Seen red: torch itself says `RuntimeError: ... unexpected pos`, with a traceback."""

    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(OSError, match="No space left on device") as caught:
        write_mapping(tmp_path / "weights.pt", {"weight": WEIGHT})
    assert caught.value.filename == str(tmp_path / "weights.pt")
    assert list(tmp_path.iterdir()) == []
