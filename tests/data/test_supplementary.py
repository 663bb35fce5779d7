"""The supplementary annotation is written in the published layout."""

from pathlib import Path

import h5py
import numpy as np

from faze.data.store.supplementary import (
    Supplementary,
    read_supplementary,
    supplementary_persons,
    write_supplementary,
)

RANDOM = np.random.default_rng(0)


def test_the_supplementary_annotation_is_read_as_written(tmp_path: Path) -> None:
    written = Supplementary(["00001/frames/00000.jpg", "b"], *(RANDOM.normal(size=(2, n)) for n in (4, 5, 6, 3)))
    other = Supplementary(["00000.jpg"], *(np.zeros((1, n)) for n in (4, 5, 6, 3)))
    write_supplementary(tmp_path / "s.h5", [("00002", other), ("00001", written)])
    assert list(supplementary_persons(tmp_path / "s.h5").items()) == [("00001", 2), ("00002", 1)]
    read = read_supplementary(tmp_path / "s.h5", "00001")
    assert read.file_names == written.file_names
    for name in ("camera_parameters", "distortion_parameters", "head_pose", "gaze_target_mm"):
        np.testing.assert_array_equal(getattr(read, name), getattr(written, name))
    with h5py.File(tmp_path / "s.h5") as file:  # the names that the published files have
        assert set(file["00001"]) == {
            "3d_gaze_target",
            "camera_parameters",
            "distortion_parameters",
            "file_name",
            "head_pose",
        }
        assert file["00001/file_name"][:].tolist() == [b"00001/frames/00000.jpg", b"b"]
        np.testing.assert_array_equal(file["00001/3d_gaze_target"], written.gaze_target_mm)
        np.testing.assert_array_equal(file["00001/head_pose"], written.head_pose)
