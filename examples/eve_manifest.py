"""Extract frames from the videos of EVE, and describe them in a manifest that faze can read.

    python examples/eve_manifest.py RAW OUT.csv --every 30

EVE: Park et al., ECCV 2020, https://ait.ethz.ch/eve. Its authors grant access on request, under their own terms; see
the licence that comes with the data. The layout is as in DATASET.md and src/models of github.com/swook/EVE:

    train01/step008_image_NAME/webcam_c.mp4    video without lens distortion; N frames
    train01/step008_image_NAME/webcam_c.h5     its labels

HDF5 datasets: camera_matrix (3, 3), in px; camera_transformation (4, 4), from the screen (x right and y down from
its top left corner, in mm) to the camera (x right, y down, z away from it, in mm); millimeters_per_pixel (2,). Groups
that contain data (N, ...) and validity (N,): face_PoG_tobii (2), the gaze point on the screen in px; left_o, right_o
and face_o (3), the eyes and the face's gaze origin in the camera frame; head_rvec (3, 1), the rotation from the head to
the camera; face_R (3, 3), from the camera to the virtual one; face_g_tobii (2), pitch and yaw in rad, where
-(cos p sin y, sin p, cos p cos y) points to the target. The labels of test people are not published.

The head pose consists of the rotation head_rvec and the translation that puts faze's gaze origin at the midpoint of
left_o and right_o. EVE does not describe its face model; its inner eye corners may be a few mm from that midpoint. With
--no-pose, head poses are left to `faze landmarks`. Images are written to the folder OUT.

The converter has been tested only on files that a test creates in this layout, never on the data set itself. It rejects
a video if the gaze points contradict face_g_tobii, or if head_rvec and face_R have different axes.
"""

import argparse
import csv
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import cv2
import h5py
import numpy as np
from numpy.typing import NDArray

from faze.base.errors import UserError
from faze.base.geometry import angular_error, vector_from_pitchyaw
from faze.data.normalization.pose import INNER_EYE_CORNERS_14_MM
from faze.data.readers.manifest import INTRINSICS, POSE, TARGETS

FIXED = {"camera_matrix": (3, 3), "camera_transformation": (4, 4), "millimeters_per_pixel": (2,)}
GAZE = {"face_PoG_tobii": (2,), "face_o": (3,), "face_R": (3, 3), "face_g_tobii": (2,)}
HEAD = {"head_rvec": (3, 1), "left_o": (3,), "right_o": (3,)}
MOST_DEG = 3.0  # limit of the median angle between the direction to the gaze point and face_g_tobii


def read_labels(path: Path, every: int, with_pose: bool) -> tuple[dict[str, NDArray], NDArray]:
    """Return the datasets by name, for every Nth valid frame, and the indices (m,) of these frames."""
    labels, valid = {}, True
    try:
        with h5py.File(path) as file:
            fixed = {name: np.array(file[name], np.float64).reshape(shape) for name, shape in FIXED.items()}
            for name, shape in (GAZE | HEAD if with_pose else GAZE).items():
                data, validity = (np.array(file[name][key]) for key in ("data", "validity"))
                labels[name] = data.astype(np.float64).reshape(len(validity), *shape)
                valid &= validity.astype(bool) & np.isfinite(labels[name]).reshape(len(validity), -1).all(axis=1)
    except (OSError, KeyError, TypeError, ValueError) as error:
        remedy = "download it again" + " or pass --no-pose" * with_pose
        raise UserError(f"{path} is missing or has an unexpected layout ({error}): {remedy}") from None
    used = np.flatnonzero(valid)[::every]
    return fixed | {name: values[used] for name, values in labels.items()}, used


def describe(labels: dict[str, NDArray], with_pose: bool, path: Path) -> NDArray:
    """Return targets (m, 3) in mm; `with_pose` appends head rotations in rad and translations in mm: (m, 9)."""
    points_mm = labels["face_PoG_tobii"] * labels["millimeters_per_pixel"]
    axes, origin = labels["camera_transformation"][:3, :2], labels["camera_transformation"][:3, 3]
    targets = points_mm @ axes.T + origin
    towards = np.einsum("nij,nj->ni", labels["face_R"], targets - labels["face_o"])
    error_deg = np.degrees(np.median(angular_error(-towards, vector_from_pitchyaw(labels["face_g_tobii"]))))
    if error_deg > MOST_DEG:
        raise UserError(
            f"{path}: gaze points and face_g_tobii differ by {error_deg:.0f} degrees: the layout is unknown"
        )
    if not with_pose:
        return targets
    heads = np.array([cv2.Rodrigues(vector)[0] for vector in labels["head_rvec"]])
    if (np.median(labels["face_R"] @ heads, axis=0).diagonal() <= 0).any():
        raise UserError(f"{path}: head_rvec and face_R have different axes: pass --no-pose")
    positions = (labels["left_o"] + labels["right_o"]) / 2 - heads @ INNER_EYE_CORNERS_14_MM.mean(axis=0)
    return np.hstack([targets, labels["head_rvec"][:, :, 0], positions])


def write_frames(video: Path, indices: Sequence[int], folder: Path) -> Iterator[Path]:
    """Write the frames at the given increasing indices as JPEG files, and yield their paths."""
    folder.mkdir(parents=True, exist_ok=True)
    capture, position = cv2.VideoCapture(str(video)), -1
    for index in indices:
        while position < index:
            if not capture.grab():
                words = f"is missing or ends before frame {index}, which has labels"
                raise UserError(f"{video}: {words}: download it again")
            position += 1
        path = folder / f"{index:06d}.jpg"
        if not cv2.imwrite(str(path), capture.retrieve()[1]):
            raise OSError(f"{path}: cannot be written: is the disk full?")
        yield path


def rows_of(video: Path, folder: Path, every: int, with_pose: bool) -> list[list[object]]:
    """Return the image, camera, target and head pose for every Nth valid frame of a video."""
    labels, used = read_labels(path := video.with_suffix(".h5"), every, with_pose)
    if not len(used):
        return []
    camera, numbers = labels["camera_matrix"][[0, 1, 0, 1], [0, 1, 2, 2]], describe(labels, with_pose, path)
    images = write_frames(video, used.tolist(), folder)
    return [[image, *camera.tolist(), *row] for image, row in zip(images, numbers.tolist(), strict=True)]


def convert(raw: Path, out: Path, every: int, cameras: Sequence[str], with_pose: bool) -> str:
    """Write the frames and the manifest, and return a summary; print an error for each video that cannot be used."""
    rows, unusable = [], 0
    for step in sorted(raw.glob("*[0-9][0-9]/step*")):
        person, split = step.parent.name, step.parent.name[:-2]
        if split not in ("train", "val") or "eye_tracker_calibration" in step.name:
            continue
        for camera in cameras:
            folder = out.with_suffix("") / person / step.name / camera
            try:
                found = rows_of(step / f"{camera}.mp4", folder, every, with_pose)
            except UserError as error:
                print(error, file=sys.stderr)
                unusable += 1
                continue
            rows += [[person, split, step.name, row[0].relative_to(out.parent).as_posix(), *row[1:]] for row in found]
    if not rows:
        raise UserError(f"{raw}: has no usable video in trainNN/step* or valNN/step*: is RAW the data set?")
    with out.open("w", newline="", encoding="utf-8") as file:
        pose = POSE if with_pose else ()
        head = ["person", "split", "session", "image", *INTRINSICS, *TARGETS["mm"], *pose]
        csv.writer(file).writerows([head, *rows])
    return f"{out}: {len(rows)} frames; {unusable} videos cannot be used"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("raw", type=Path, metavar="RAW", help="folder that contains train01, val01 ...")
    parser.add_argument("out", type=Path, metavar="OUT.csv", help="manifest; frames go to a folder of the same name")
    parser.add_argument("--every", type=int, default=30, help="use every Nth valid frame of a video (default: 30)")
    parser.add_argument(
        "--cameras", nargs="+", default=["webcam_c"], help="basler, webcam_l, webcam_c or webcam_r (default: webcam_c)"
    )
    parser.add_argument("--no-pose", action="store_true", help="leave out the head poses")
    args = parser.parse_args()
    cv2.utils.logging.setLogLevel(cv2.utils.logging.LOG_LEVEL_SILENT)  # the script's own message is enough
    try:
        print(convert(args.raw, args.out, max(1, args.every), args.cameras, not args.no_pose))
    except (UserError, OSError) as error:
        sys.exit(str(error))
