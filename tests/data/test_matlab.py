"""Numbers in MATLAB files are those that scipy wrote, and no byte of such a file ends the process.

Seen red by breaking the code: rows and columns exchanged, small elements read as large ones, a compressed one skipped.
"""

import io
from pathlib import Path

import numpy as np
import pytest
from scipy.io import savemat

from faze.base.errors import UserError
from faze.data.readers.matlab import read_matlab

BESIDE = {"rvecs": np.array([[1, "x"]], object), "info": {"a": 1}, "words": "hello", "turned": 1j}


def saved(compressed: bool = False, **arrays: object) -> bytes:
    file = io.BytesIO()
    savemat(file, arrays, do_compression=compressed)
    return file.getvalue()


@pytest.mark.parametrize("compressed", [False, True])
@pytest.mark.parametrize(
    "value",
    [
        *(np.arange(9.0).reshape(3, 3), np.arange(6, dtype=np.int16).reshape(2, 3), np.zeros((0, 3)), 3, -5, 2.5),
        *(np.arange(24.0).reshape(2, 3, 4), np.array([1e-3, 2.0], np.float32), np.uint8(200), 2**40),
    ],
    ids=str,
)
def test_numbers_are_those_that_were_written(value: object, compressed: bool, tmp_path: Path) -> None:
    (tmp_path / "x.mat").write_bytes(saved(compressed, **BESIDE, a=value, a_name_of_many_letters=value))
    for found in read_matlab(tmp_path / "x.mat", ["a_name_of_many_letters", "a"]):
        np.testing.assert_array_equal(found, np.atleast_2d(value))
        assert found.dtype == np.float64


@pytest.mark.parametrize("name", BESIDE)
def test_what_is_no_matrix_of_numbers_is_said(name: str, tmp_path: Path) -> None:
    (tmp_path / "x.mat").write_bytes(saved(**BESIDE))
    with pytest.raises(UserError, match=f"x.mat: {name} is no matrix of a few real numbers"):
        read_matlab(tmp_path / "x.mat", [name])


def test_zeros_are_not_unpacked(tmp_path: Path) -> None:
    """A gibibyte of them was, for a camera matrix of nine numbers."""
    (tmp_path / "x.mat").write_bytes(saved(True, cameraMatrix=np.zeros((2**10, 2**14), np.uint8)))
    with pytest.raises(UserError, match="cameraMatrix is no matrix of a few"):
        read_matlab(tmp_path / "x.mat", ["cameraMatrix"])


@pytest.mark.parametrize("compressed", [False, True])
def test_a_flipped_bit_is_a_value_or_a_sentence(compressed: bool, tmp_path: Path) -> None:
    """scipy 1.17 ends the process at some: a type of element beyond its table, as 140 for 12."""
    whole = saved(compressed, width_pixel=1280, height_pixel=800)
    for place in range(120, len(whole)):
        for bit in (0, 3, 7):
            content = bytearray(whole)
            content[place] ^= 1 << bit
            (tmp_path / "x.mat").write_bytes(content)
            try:
                found = read_matlab(tmp_path / "x.mat", ["width_pixel", "height_pixel"])
            except UserError as error:
                assert str(error).startswith(str(tmp_path / "x.mat"))
            else:
                assert len(found) == 2


def test_other_levels_are_refused(tmp_path: Path) -> None:
    (tmp_path / "x.mat").write_bytes(b"\x89HDF\r\n\x1a\n" + bytes(600))
    with pytest.raises(UserError, match="not a readable MATLAB file"):
        read_matlab(tmp_path / "x.mat", ["a"])
