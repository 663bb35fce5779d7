"""Strips, including those from partly decoded JPEGs, compared with values from the released procedure."""

import importlib.util
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import cv2
import h5py
import numpy as np
import pytest
from numpy.typing import NDArray

from faze.config.parameters import NormalizedCamera
from faze.data.preparation.strip_maker import StripMaker
from faze.data.readers.mpiifacegaze import open_mpiifacegaze
from faze.data.store.supplementary import Supplementary, write_supplementary

ROOT = Path(__file__).resolve().parents[2]
CAMERA = NormalizedCamera(focal_length_px=1300, distance_mm=600, width_px=256, height_px=64)
DATASET = "GazeCapture"  # the other's strips are displaced in the released procedure


@pytest.fixture(scope="module")
def baseline() -> ModuleType:
    """Load the baseline of benchmarks/preprocess.py; it shares no code with faze.data.normalization."""
    path = ROOT / "benchmarks" / "baselines" / "preprocess.py"
    spec = importlib.util.spec_from_file_location("preprocess_baseline", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def released(golden: Callable[[str], dict[str, NDArray]]) -> dict[str, NDArray]:
    """Return the golden inputs and outputs for the data set."""
    arrays = golden("normalize")
    frame = arrays[f"frame/{arrays[f'in/{DATASET}/frame_key']}"]
    both = {
        name.rpartition("/")[2]: array
        for side in ("out", "in")  # some have the same name: what was given counts
        for name, array in arrays.items()
        if name.startswith(f"{side}/{DATASET}/")
    }
    return both | {"frame": frame}


def write_raw(folder: Path, released: dict[str, NDArray], encoded: bytes) -> None:
    """Write a copy of the frame for each pose, under different names, and the annotation of the copies."""
    names = [f"p00/{row}.jpg" for row in range(len(released["patch"]))]
    (folder / "raw" / "p00").mkdir(parents=True)
    for name in names:
        (folder / "raw" / name).write_bytes(encoded)
    given = ("camera_parameters", "distortion_parameters", "head_pose", "3d_gaze_target")
    arrays = (np.stack(released[name]).reshape(len(names), -1) for name in given)
    write_supplementary(folder / "supplementary.h5", [("p00", Supplementary(names, *arrays))])


def by_baseline(baseline: ModuleType, folder: Path) -> tuple[NDArray, NDArray]:
    baseline.preprocess(folder / "raw", folder / "supplementary.h5", folder / "out.h5")
    with h5py.File(folder / "out.h5") as file:
        return file["p00/pixels"][:], file["p00/labels"][:]


def test_the_baseline_is_the_released_procedure(
    tmp_path: Path, baseline: ModuleType, released: dict[str, NDArray]
) -> None:
    """All pixels were equal when measured; the bounds leave room for other releases of OpenCV.

    Regression: frames were not converted to RGB; the map of another camera was reused.
    """
    write_raw(tmp_path, released, cv2.imencode(".png", released["frame"])[1].tobytes())
    pixels, labels = by_baseline(baseline, tmp_path)
    off = np.abs(pixels.astype(int) - released["patch"])
    assert off.max() <= 2 and off.mean() <= 0.05
    np.testing.assert_allclose(labels[:, :2], released["normalized_gaze_direction"], atol=1e-6)
    np.testing.assert_allclose(labels[:, 2:], released["normalized_head_pose"], atol=1e-6)


def test_partly_decoded_frames_give_the_released_strips(
    tmp_path: Path, baseline: ModuleType, released: dict[str, NDArray], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only the omitted interpolation differs. Regression: a shift of half a pixel; the wrong rows were decoded."""
    heights, decode = [], cv2.imdecode

    def spy(data: NDArray, flags: int) -> NDArray:
        image = decode(data, flags)
        heights.append(len(image))
        return image

    write_raw(tmp_path, released, cv2.imencode(".jpg", released["frame"], [cv2.IMWRITE_JPEG_QUALITY, 90])[1].tobytes())
    wanted, wanted_labels = by_baseline(baseline, tmp_path)
    frames = list(open_mpiifacegaze(tmp_path / "raw", tmp_path / "supplementary.h5").entries("p00"))
    pixels, labels = np.zeros_like(wanted), np.zeros_like(wanted_labels)
    monkeypatch.setattr(cv2, "imdecode", spy)
    assert StripMaker(CAMERA).make(frames, pixels, labels) == [""] * len(frames)
    assert max(heights) < len(released["frame"])
    off = np.abs(pixels.astype(int) - wanted)
    assert off.max() <= 2 and off.mean() <= 0.3
    np.testing.assert_allclose(labels, wanted_labels, atol=1e-6)
