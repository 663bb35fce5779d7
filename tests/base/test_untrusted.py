"""Untrusted files: one-sentence errors, and a separate process for libraries that crash or hang."""

import errno
import os
from pathlib import Path

import h5py
import numpy as np
import pytest
from scipy.io import savemat

from faze.base.errors import DamagedFile, UserError
from faze.base.untrusted import read_isolated, read_untrusted, untrusted
from faze.data.readers.calibration import CAMERA, SCREEN, Calibrations
from faze.data.store.codes import read_all
from faze.data.store.strips import PersonStrips, write_strips
from faze.data.store.untrusted_file import check_untrusted, read_everything


def misbehave(path: str, how: str) -> object:
    print("a library's words")
    actions = {
        "value": lambda: [path, 0.1, None],
        "error": lambda: {}["a"],
        "user error": lambda: (_ for _ in ()).throw(UserError(f"{path}: in words")),
        "crash": os.abort,
        "hang": lambda: all(True for _ in iter(int, 1)),
        "memory": lambda: np.ones(2**33),
    }
    return actions[how]()


@pytest.fixture
def importable(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the child process import this module."""
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")]))


@pytest.mark.usefixtures("importable")
@pytest.mark.parametrize(
    ("how", "text"),
    [
        ("error", "cannot be read ('a')"),
        ("user error", "x.mat: in words"),
        ("crash", "crashed (SIGABRT)"),
        ("hang", "took more than 1 s"),
        ("memory", "needs more than 4 GiB of memory"),
    ],
)
def test_isolated_process_ends_in_one_sentence(how: str, text: str, tmp_path: Path) -> None:
    with pytest.raises(UserError) as refused:
        read_isolated(tmp_path / "x.mat", misbehave, how, cpu_s=1 if how == "hang" else 20)
    assert str(refused.value).startswith(str(tmp_path / "x.mat")) and text in str(refused.value)


@pytest.mark.usefixtures("importable")
def test_isolated_process_returns_a_value(tmp_path: Path) -> None:
    assert read_isolated(tmp_path, misbehave, "value") == [str(tmp_path), 0.1, None]


def test_errors_of_the_machine_pass() -> None:
    for error in (MemoryError(), OSError(errno.ESTALE, "Stale file handle"), UserError("x")):
        with pytest.raises(type(error)) as passed, untrusted("x.h5"):
            raise error
        assert passed.value is error
    with pytest.raises(DamagedFile, match="^x.h5: there is no such file: check its path or download it again$"):
        read_untrusted("x.h5", len)


@pytest.fixture
def endless(tmp_path: Path) -> Path:
    """Create a store on which HDF5 2.0 loops forever: an object in its heap of strings has size 0 and no number.

    Only layouts written by other programs have such a heap.
    """
    people = [PersonStrips("p00", "train", None, np.zeros((2, 4, 8, 3), np.uint8), np.zeros((2, 4), np.float32))]
    write_strips(tmp_path / "ours.h5", "gazecapture", people)
    with h5py.File(tmp_path / "ours.h5") as ours, h5py.File(tmp_path / "strips.h5", "w") as foreign:
        ours.copy("p00", foreign)
        for name in list(foreign["p00"].attrs):
            del foreign["p00"].attrs[name]
        foreign["p00"].attrs["split"], foreign.attrs["schema"], foreign.attrs["dataset"] = "train", "strips", "mine"
    content = (tmp_path / "strips.h5").read_bytes()
    first = content.index(b"GCOL") + 16  # the first object: number, references, reserved, size
    size = int.from_bytes(content[first + 8 : first + 16], "little")
    second = first + 16 + -(-size // 8) * 8
    (tmp_path / "strips.h5").write_bytes(content[:second] + bytes(16) + content[second + 16 :])
    return tmp_path / "strips.h5"


def test_file_at_which_hdf5_hangs_is_one_sentence(endless: Path) -> None:
    with pytest.raises(UserError, match=r"strips\.h5: .* took more than 1 s"):
        read_isolated(endless, read_everything, "strips", cpu_s=1)


def test_labels_of_gibibytes_are_refused_before_they_are_read(tmp_path: Path) -> None:
    """Fails without a memory limit: a sparse file of a few kB contains 8 GiB of zeros."""
    with h5py.File(tmp_path / "strips.h5", "w") as file:
        for name, shape in (("pixels", (2**29, 1, 1, 3)), ("labels", (2**29, 4))):
            array = file.create_dataset(f"p00/{name}", shape, np.uint8 if name == "pixels" else np.float32)
            array[0] = 0
    with pytest.raises(UserError, match=r"strips\.h5: needs more than 4 GiB"):
        check_untrusted(tmp_path / "strips.h5", "strips")


def test_other_faults_are_left_to_the_reader(tmp_path: Path) -> None:
    (tmp_path / "text.h5").write_text("no HDF5")
    for layout in ("strips", "supplementary"):
        check_untrusted(tmp_path / "text.h5", layout)
    read_isolated(tmp_path / "text.h5", read_all)


@pytest.mark.parametrize("compressed", [False, True])
def test_matlab_numbers_are_those_that_were_written(compressed: bool, tmp_path: Path) -> None:
    (tmp_path / "p00/Calibration").mkdir(parents=True)
    matrix = np.array([[960.5, 0, 640], [0, 961, 360], [0, 0, 1]])
    arrays = {"cameraMatrix": matrix, "distCoeffs": np.arange(5)[None] / 7, "rvecs": np.array([[1, "x"]], object)}
    savemat(tmp_path / "p00" / CAMERA, arrays, do_compression=compressed)
    savemat(tmp_path / "p00" / SCREEN, {"width_pixel": np.int16(1280), "height_pixel": 800}, do_compression=compressed)
    found = Calibrations(tmp_path, ["p00", "p01"])
    np.testing.assert_array_equal(found.camera(tmp_path / "p00")[0], matrix)
    np.testing.assert_array_equal(found.camera(tmp_path / "p00")[1], np.arange(5) / 7)
    assert found.screen_px(tmp_path / "p00") == (1280.0, 800.0)
    with pytest.raises(UserError, match="p01/Calibration/Camera.mat: no such file"):
        found.camera(tmp_path / "p01")


def test_matlab_file_that_crashes_scipy_is_blamed_alone(tmp_path: Path) -> None:
    """scipy 1.17 crashes on an element type beyond its table: 140 instead of 12."""
    for person in ("p00", "p01"):
        (tmp_path / person / "Calibration").mkdir(parents=True)
        savemat(tmp_path / person / CAMERA, {"cameraMatrix": np.eye(3), "distCoeffs": np.zeros(5)})
        savemat(tmp_path / person / SCREEN, {"width_pixel": 1280, "height_pixel": 800})
    content = bytearray((tmp_path / "p00" / SCREEN).read_bytes())
    assert content[192] == 12
    content[192] ^= 1 << 7
    (tmp_path / "p00" / SCREEN).write_bytes(content)
    found = Calibrations(tmp_path, ["p00", "p01"])
    assert found.screen_px(tmp_path / "p01") == (1280.0, 800.0)
    assert found.camera(tmp_path / "p00")[0].shape == (3, 3)
    with pytest.raises(UserError, match=rf"p00/{SCREEN}: .* crashed \(SIG"):
        found.screen_px(tmp_path / "p00")
