"""Damaged stores are one sentence with file and person.

Seen red: HDF5 keeps no checksum of arrays, and in its first layout none of anything: it read flipped bits in silence,
hung, or ended the process by a signal.
"""

from pathlib import Path

import h5py
import numpy as np
import pytest
from damaged import flip

from faze.base.errors import UserError
from faze.data.readers.supplementary_reader import SupplementaryReader
from faze.data.store.codes import CodeStore, write_codes
from faze.data.store.strip_writing import PersonStrips, write_strips
from faze.data.store.strips import StripStore
from faze.data.store.supplementary import Supplementary, write_supplementary

RANDOM = np.random.default_rng(0)
DAMAGED = "is not what was written: delete the file and give the same command again"


def codes() -> dict[str, np.ndarray]:
    shapes = {"z_gaze": (4, 2, 3), "gaze": (4, 2), "gaze_hat": (4, 3)}
    return {name: RANDOM.normal(size=shape).astype(np.float32) for name, shape in shapes.items()}


@pytest.mark.parametrize("name", ["z_gaze", "gaze", "gaze_hat"])
def test_codes(tmp_path: Path, name: str) -> None:
    path, people = tmp_path / "codes.h5", {person: codes() for person in ("p00", "p01")}
    write_codes(path, "mpiigaze", [(person, "test", arrays) for person, arrays in people.items()])
    flip(path, people["p01"][name].tobytes())
    store = CodeStore(path)
    np.testing.assert_array_equal(store["p00"][name], people["p00"][name])
    with pytest.raises(UserError, match=f"codes.h5: what it holds of person p01 {DAMAGED}"):
        store["p01"]


def test_the_gaze_head_of_codes(tmp_path: Path) -> None:
    shapes = {"gaze1.weight": (4, 6), "gaze1.bias": (4,), "gaze2.weight": (3, 4), "gaze2.bias": (3,)}
    head = {name: RANDOM.normal(size=shape).astype(np.float32) for name, shape in shapes.items()}
    write_codes(tmp_path / "codes.h5", "mpiigaze", [("p00", "test", codes())], head)
    flip(tmp_path / "codes.h5", head["gaze1.weight"].tobytes())
    with pytest.raises(UserError, match="codes.h5: what it is cannot be read .*metadata checksum.*: write or fetch it"):
        CodeStore(tmp_path / "codes.h5")


def test_a_person_in_another_split(tmp_path: Path) -> None:
    """A train person would be tested on."""
    write_codes(tmp_path / "codes.h5", "mpiigaze", [("p00", "train", codes())])
    with h5py.File(tmp_path / "codes.h5", "r+") as file:
        file["p00"].attrs["split"] = "test"
    with pytest.raises(UserError, match=f"person p00 {DAMAGED}"):
        CodeStore(tmp_path / "codes.h5")["p00"]


def test_annotation(tmp_path: Path) -> None:
    """Seen red: the person was left out as one whose annotation is no good, and the ablation went on without."""
    written = Supplementary(["a", "b"], *(RANDOM.normal(size=(2, n)) for n in (4, 5, 6, 3)))
    write_supplementary(tmp_path / "s.h5", [("00001", written)])
    flip(tmp_path / "s.h5", written.head_pose.tobytes())
    (tmp_path / "00001").mkdir()
    with pytest.raises(UserError, match=f"s.h5: the annotation of person 00001 {DAMAGED}"):
        list(SupplementaryReader(tmp_path, tmp_path / "s.h5", "test").entries("00001"))


@pytest.mark.parametrize("what", ["pixels", "labels", "file_name", "origin"])
def test_strips(tmp_path: Path, what: str) -> None:
    """Seen red of file_name and origin: the checksum was over pixels and labels."""
    pixels, labels = RANDOM.integers(0, 256, (20, 8, 32, 3), np.uint8), RANDOM.normal(size=(20, 4)).astype(np.float32)
    origin = np.tile(np.arange(4, dtype=np.uint8), 5)
    names = [f"day01/{row:04d}.jpg" for row in range(20)]
    path = tmp_path / "strips.h5"
    write_strips(path, "mpiigaze", [PersonStrips(p, "test", names, pixels, labels, origin=origin) for p in ("a", "b")])
    with StripStore(path) as strips:
        strips.check(["a", "b"])
    arrays = {"pixels": pixels, "labels": labels, "file_name": np.array(names, "S"), "origin": origin}
    flip(path, arrays[what].tobytes())  # the first person's
    with StripStore(path) as strips:
        strips.check(["b"])
        with pytest.raises(UserError, match=f"strips.h5: what it holds of person a {DAMAGED}"):
            strips.check(["a", "b"])


def test_whatever_hdf5_says_of_a_damaged_layout_is_one_sentence(tmp_path: Path) -> None:
    """All over a small file. Seen red: signal 11; KeyError, RuntimeError, TypeError ... with their tracebacks."""
    path = tmp_path / "codes.h5"
    write_codes(path, "mpiigaze", [("p00", "test", codes())])
    before, refused = path.read_bytes(), 0
    with h5py.File(path) as file:
        last = file["p00/gaze"].id.get_offset()
    for place in range(0, last, 7):
        damaged = bytearray(before)
        damaged[place] ^= 0xFF
        path.write_bytes(damaged)
        try:
            store = CodeStore(path)
            for person in store.persons():
                store[person]
        except UserError as error:
            refused += 1
            assert str(path) in str(error)
    assert refused > 50
