"""Reader of MPIIFaceGaze: pXX/pXX.txt and pXX/Calibration/Camera.mat (DESIGN section 3). All people are test people."""

import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from faze.datasets import Frame, Reader, Reject, check_distortion, is_inside
from faze.datasets.supplementary import SupplementaryReader
from faze.normalization import INNER_EYE_CORNERS_6_MM

SPLIT = "test"
_COLUMNS = 28
_HEAD_POSE, _GAZE_TARGET = slice(15, 21), slice(24, 27)


def open_mpiifacegaze(raw: Path, supplementary: Path | None) -> Reader:
    """Reader of a raw folder by FAZE's annotation where it is given, else by the data set's own.

    Raises:
        ValueError: the folder holds none of its people.
    """
    return SupplementaryReader(raw, supplementary, SPLIT) if supplementary else MPIIFaceGaze(raw)


class MPIIFaceGaze:
    """The data set's own annotation, with its 6-point face model."""

    def __init__(self, raw: Path) -> None:
        self._raw = raw
        if not self.persons():
            raise ValueError(f"{raw}: holds no folder p00, p01, ...; preprocess.mpiifacegaze is the one that does")

    def persons(self) -> list[str]:
        """Folders pXX, sorted."""
        return sorted(folder.name for folder in self._raw.glob("p*/") if re.fullmatch(r"p\d+", folder.name))

    def count(self, person: str) -> int:
        """Number of annotated frames; raises what `entries` would."""
        _read_camera(self._raw / person)
        return len(_read_annotation(self._raw / person))

    def entries(self, person: str) -> Iterator[Frame | Reject]:
        """Records in the order of the annotation; see Reader."""
        camera_matrix, distortion = _read_camera(self._raw / person)
        for name, numbers in _read_annotation(self._raw / person):
            file_name = f"{person}/{name}"
            if not is_inside(name):
                yield Reject(person, file_name, "path leads out of the data folder")
                continue
            pose = numbers[_HEAD_POSE]
            yield Frame(
                person_id=person,
                image_path=self._raw / file_name,
                file_name=file_name,
                camera_matrix=camera_matrix,
                distortion=distortion,
                rotation_vector=pose[:3],
                translation_mm=pose[3:],
                gaze_target_mm=numbers[_GAZE_TARGET],
                inner_eye_corners_mm=INNER_EYE_CORNERS_6_MM,
                split=SPLIT,
            )


def _read_annotation(folder: Path) -> list[tuple[str, NDArray]]:
    """Image path and numbers of each line; the numbers stand at their column (0-based), the texts' places are NaN."""
    path = folder / f"{folder.name}.txt"
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except FileNotFoundError:
        raise ValueError(f"{path}: no such file; fetch the annotation of person {folder.name} again") from None
    except UnicodeDecodeError:
        raise ValueError(f"{path}: is not text; fetch the annotation of person {folder.name} again") from None
    entries = []
    for number, line in enumerate(lines, start=1):
        columns = line.split()
        if not columns:
            continue
        if len(columns) != _COLUMNS:
            raise ValueError(f"{path}:{number}: {len(columns)} columns, not the {_COLUMNS} of MPIIFaceGaze")
        try:
            numbers = np.array([np.nan, *map(float, columns[1:-1]), np.nan])
        except ValueError as error:
            raise ValueError(f"{path}:{number}: {error}, where MPIIFaceGaze has numbers") from None
        entries.append((columns[0], numbers))
    return entries


def _read_camera(folder: Path) -> tuple[NDArray, NDArray]:
    """(3, 3) camera matrix in px and (d,) distortion coefficients of a person's laptop."""
    path = folder / "Calibration" / "Camera.mat"
    if not path.is_file():
        raise ValueError(
            f"{path}: no such file; person {folder.name} cannot be normalised without the camera's intrinsics"
        )
    from scipy.io import loadmat  # here, since only this format needs scipy

    try:
        calibration = loadmat(path)
        matrix = np.asarray(calibration["cameraMatrix"], np.float64)
        distortion = np.asarray(calibration["distCoeffs"], np.float64).ravel()
    except KeyError as error:
        raise ValueError(f"{path}: has no {error}") from None
    except Exception as error:  # scipy has no common class for a torn or foreign file
        raise ValueError(f"{path}: not a readable MATLAB file ({error})") from error
    if matrix.shape != (3, 3) or not np.isfinite(matrix).all() or matrix[0, 0] <= 0 or matrix[1, 1] <= 0:
        raise ValueError(f"{path}: cameraMatrix is not the 3 x 3 matrix of a camera")
    check_distortion(len(distortion), str(path))
    return matrix, distortion
