"""Describe the raw frames of ETH-XGaze in a manifest that faze can read.

    python examples/eth_xgaze_manifest.py RAW RAW/frames.csv --every 20

ETH-XGaze: Zhang et al., ECCV 2020, https://ait.ethz.ch/xgaze. Its licence is CC BY-NC-SA 4.0 with additional terms.
RAW is the distribution with full frames; the smaller ones contain only normalised faces. The layout is as in
normalization_example.py in github.com/xucong-zhang/ETH-XGaze:

    calibration/face_model.txt               50 points (x, y, z) in mm; lines 24 and 27 are the inner eye corners
    calibration/cam_calibration/cam00.xml    OpenCV: Camera_Matrix, Distortion_Coefficients
    data/annotation_train/subject0000.csv    one image per line, without a header
    data/train/subject0000/frame0000/cam00.JPG
    train_test_split.json                    optional: {"train": ["subject0000.h5", ...]}; all others are test people

An annotation line lists the folder, image, gaze point on the screen (2), gaze point (3), head rotation vector (3), head
translation (3) and 68 landmarks (x, y). The 3D gaze point and head pose are in the image's camera frame (x right,
y down, z away from it), in mm and rad, and the pose refers to face_model.txt. The manifest contains the pose of faze's
face model with the same rotation and the same midpoint of the inner eye corners. For cameras 3, 6 and 13, annotations
and calibrations refer to images rotated by 180 degrees. The manifest describes the stored images, so the frames of
these cameras are rotated by 180 degrees about z.

The converter has been tested only on files that a test creates in this layout, never on the data set itself. It checks
that head poses project the inner eye corners onto the landmarks. It cannot check how stored images are rotated.
"""

import argparse
import csv
import json
import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import cv2
import numpy as np
from numpy.typing import NDArray

from faze.base.errors import UserError
from faze.data.normalization.pose import INNER_EYE_CORNERS_14_MM
from faze.data.readers.manifest import INTRINSICS, LENS, POSE, TARGETS

ROTATED = 3, 6, 13  # cameras
CORNERS, LANDMARKS = [23, 26], [39, 42]  # inner eye corners: rows of the face model, and of the landmarks
NUMBERS = 11 + 2 * 68  # per line
MOST = 0.5  # limit of the median distance from projected corners to landmarks, relative to the distance between corners


def read_camera(path: Path) -> tuple[NDArray, NDArray]:
    """Return the matrix (3, 3) in px and the distortion coefficients (5,) of a camera."""
    try:
        file = cv2.FileStorage(str(path), cv2.FILE_STORAGE_READ)
        matrix, lens = (file.getNode(name).mat() for name in ("Camera_Matrix", "Distortion_Coefficients"))
        return np.array(matrix, np.float64).reshape(3, 3), np.array(lens, np.float64).reshape(5)
    except (cv2.error, SystemError, TypeError, ValueError):
        raise UserError(f"{path}: has no Camera_Matrix (3, 3) or Distortion_Coefficients: download it again") from None


def read_annotation(path: Path) -> Iterator[tuple[str, str, NDArray]]:
    """Yield the folder, the image and the numbers (147,) of each line."""
    with path.open(newline="", encoding="utf-8", errors="replace") as file:
        for line, cells in enumerate(csv.reader(file), 1):
            try:
                frame, name = re.fullmatch(r"(frame\d+) (cam\d\d\.JPG)", " ".join(cells[:2])).groups()
                yield frame, name, np.array(cells[2 : 2 + NUMBERS], np.float64).reshape(NUMBERS)
            except (AttributeError, ValueError):
                words = f"does not contain frameNNNN, camNN.JPG and {NUMBERS} numbers: download the file again"
                raise UserError(f"{path}, line {line}: {words}") from None


def miss_of(numbers: NDArray, matrix: NDArray, corners: NDArray) -> float:
    """Return the mean distance from projected corners (2, 3) to landmarks, relative to the distance between corners."""
    points = corners @ cv2.Rodrigues(numbers[5:8])[0].T + numbers[8:11]
    projected = points @ matrix.T
    miss_px = np.linalg.norm(projected[:, :2] / projected[:, 2:] - numbers[11:].reshape(68, 2)[LANDMARKS], axis=1)
    return abs(miss_px.mean() * points[:, 2].mean() / matrix[0, 0]) / np.linalg.norm(corners[1] - corners[0])


def describe(matrix: NDArray, lens: NDArray, numbers: NDArray, shift: NDArray, rotated_px: NDArray | None) -> list:
    """Return the camera (4) in px, distortion (5), target (3) in mm, head rotation (3) in rad and position (3) in mm.

    `shift` (3,) is the vector from faze's gaze origin to the data set's, in the head frame, in mm. `rotated_px` (2,)
    is the width and height of the stored image if it is rotated by 180 degrees, otherwise None.
    """
    head, centre, turn = cv2.Rodrigues(numbers[5:8])[0], matrix[:2, 2], np.eye(3)
    if rotated_px is not None:  # as documented, about (width / 2, height / 2); the tangential coefficients change sign
        centre, lens, turn = rotated_px - centre, lens * [1, 1, -1, -1, 1], np.diag([-1.0, -1, 1])
    vectors = turn @ numbers[2:5], cv2.Rodrigues(turn @ head)[0].ravel(), turn @ (numbers[8:11] + head @ shift)
    return np.concatenate([matrix[[0, 1], [0, 1]], centre, lens, *vectors]).tolist()


def lines(raw: Path, every: int, only: list[int]) -> Iterator[list]:
    """Yield the person, image and numbers of each existing image whose frame number is a multiple of `every`."""
    try:
        corners = np.loadtxt(raw / "calibration/face_model.txt").reshape(50, 3)[CORNERS]
    except (OSError, ValueError):
        raise UserError(f"{raw}/calibration/face_model.txt: missing, or does not have 50 points: download it") from None
    shift, cameras, sizes = corners.mean(axis=0) - INNER_EYE_CORNERS_14_MM.mean(axis=0), {}, {}
    for path in sorted((raw / "data/annotation_train").glob("subject*.csv")):
        misses = []
        for frame, name, numbers in read_annotation(path):
            image, camera = raw / "data/train" / path.stem / frame / name, int(name[3:5])
            if int(frame[5:]) % every or camera not in only or not image.is_file():
                continue
            if camera not in cameras:
                cameras[camera] = read_camera(raw / f"calibration/cam_calibration/cam{camera:02d}.xml")
            if camera in ROTATED and camera not in sizes:
                if (pixels := cv2.imread(str(image))) is None:
                    raise UserError(f"{image}: cannot be decoded as an image: download it again")
                sizes[camera] = np.array(pixels.shape[1::-1])
            misses.append(miss_of(numbers, cameras[camera][0], corners))
            yield [path.stem, image, *describe(*cameras[camera], numbers, shift, sizes.get(camera))]
        if misses and not np.nanmedian(misses) < MOST:
            raise UserError(f"{path}: its head poses do not match the eye landmarks: the layout is unknown")


def convert(raw: Path, out: Path, every: int, only: list[int]) -> None:
    """Write the manifest for the frames in `raw` to `out`."""
    splits, written = raw / "train_test_split.json", False
    try:
        names = json.loads(splits.read_bytes())["train"] if splits.exists() else []
        train = [f"{name}".removesuffix(".h5") for name in names]
    except (KeyError, TypeError, ValueError):
        raise UserError(f'{splits}: must be JSON with a list of names under "train": correct or remove it') from None
    if ".." in (inside := Path(os.path.relpath(raw, out.parent))).parts:
        raise UserError(f"{out}: the manifest must be in {raw} or in a folder above it: choose another OUT.csv")
    with (partial := out.with_name(out.name + ".partial")).open("w", newline="", encoding="utf-8") as file:
        table = csv.writer(file)
        table.writerow(["person", "split", "image", *INTRINSICS, *LENS, "k3", *TARGETS["mm"], *POSE])
        for person, image, *numbers in lines(raw, every, only):
            name = (inside / image.relative_to(raw)).as_posix()
            table.writerow([person, "train" if person in train else "test", name, *numbers])
            written = True
    if not written:
        raise UserError(f"{raw}: data/annotation_train has no line whose image is in data/train: is RAW the raw data?")
    partial.replace(out)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("raw", type=Path, metavar="RAW", help="folder that contains calibration/ and data/")
    parser.add_argument("out", type=Path, metavar="OUT.csv", help="manifest, in RAW or in a folder above it")
    parser.add_argument("--every", type=int, default=1, help="use frames with numbers divisible by EVERY (default: 1)")
    parser.add_argument("--cameras", type=int, nargs="+", default=[*range(18)], help="camera numbers (default: all)")
    args = parser.parse_args()
    cv2.utils.logging.setLogLevel(cv2.utils.logging.LOG_LEVEL_SILENT)  # the script's own message is enough
    try:
        convert(args.raw, args.out, max(1, args.every), args.cameras)
    except (UserError, OSError) as error:
        sys.exit(str(error))
