"""The released preprocessing, rewritten from its description (FACTS D, H 21, H 22, H 30), frame by frame.

    python benchmarks/baselines/preprocess.py RAW SUPPLEMENTARY OUT

Each frame is read, undistorted as a whole, converted from BGR to RGB by a view with negative strides, and warped by a
perspective transform; its labels are looked up in the HDF5 file field by field. A person's strips are stacked in memory
and written with lzf compression in chunks of one strip. It runs in one process with OpenCV's default number of threads,
and does not use faze.data.normalization.
"""

import argparse
import contextlib
from collections.abc import Callable
from pathlib import Path

import cv2
import h5py
import numpy as np
from numpy.typing import NDArray

FOCAL_LENGTH_PX, DISTANCE_MM, WIDTH_PX, HEIGHT_PX = 1300.0, 600.0, 256, 64
# Inner eye corners of the 14-point face model, mm (swook/faze_preprocess, MIT licence).
EYES_MM = np.array([[-19.0150342, 1.5302906, -3.10160017], [19.16842031, 1.49678993, -2.83671331]])
Clock = Callable[[str], contextlib.AbstractContextManager]


def untimed(_stage: str) -> contextlib.AbstractContextManager:
    """Return a context that measures nothing, used as the clock if no stage is timed."""
    return contextlib.nullcontext()


class Undistortion:
    """Undistortion of whole frames; the map is recomputed whenever the camera changes."""

    def __init__(self) -> None:
        self._parameters: NDArray | None = None

    def __call__(self, image: NDArray, parameters: NDArray, distortion: NDArray) -> NDArray:
        """Undistort a frame with its camera's matrix."""
        everything = np.concatenate([parameters, distortion])
        if self._parameters is None or not np.array_equal(everything, self._parameters):
            self._parameters, matrix = everything, camera_matrix(parameters)
            size = image.shape[1::-1]
            self._maps = cv2.initUndistortRectifyMap(matrix, distortion, None, matrix, size, cv2.CV_32FC1)
        return cv2.remap(image, *self._maps, cv2.INTER_LINEAR)


def camera_matrix(parameters: NDArray) -> NDArray:
    fx, fy, cx, cy = parameters
    return np.array([[fx, 0, cx], [0, fy, cy], [0, 0, 1]], np.float64)


def geometry(parameters: NDArray, head_pose: NDArray, target: NDArray) -> tuple[NDArray, NDArray]:
    """Return the perspective matrix (3, 3) from frame to strip, and the pitch and yaw of gaze and head (4,)."""
    head = cv2.Rodrigues(head_pose[:3].astype(np.float64))[0]
    origin = (head @ EYES_MM.T + head_pose[3:, None]).mean(axis=1)
    distance = np.linalg.norm(origin)
    forward = origin / distance
    down = np.cross(forward, head[:, 0])
    down /= np.linalg.norm(down)
    right = np.cross(down, forward)
    rotation = np.stack([right / np.linalg.norm(right), down, forward])
    scale = np.diag([1.0, 1.0, DISTANCE_MM / distance])
    virtual = camera_matrix(np.array([FOCAL_LENGTH_PX, FOCAL_LENGTH_PX, WIDTH_PX / 2, HEIGHT_PX / 2]))
    warp = virtual @ scale @ rotation @ np.linalg.inv(camera_matrix(parameters))
    gaze = rotation @ (target - origin)
    gaze /= -np.linalg.norm(gaze)
    facing = (rotation @ head)[:, 2]
    angles = [angle for v in (gaze, facing) for angle in (np.arcsin(v[1]), np.arctan2(v[0], v[2]))]
    return warp, np.array(angles, np.float32)


def preprocess(raw: Path, supplementary: Path, out: Path, clock: Clock = untimed) -> int:
    """Process all people in the supplementary file; return the number of frames."""
    undistort, count = Undistortion(), 0
    with h5py.File(supplementary, "r") as annotation, h5py.File(out, "w") as store:
        for person in sorted(annotation):
            group, pixels, labels = annotation[person], [], []
            for row in range(len(group["file_name"])):
                with clock("labels"):
                    name = group["file_name"][row].decode()
                    parameters, distortion = group["camera_parameters"][row, :], group["distortion_parameters"][row, :]
                    head_pose, target = group["head_pose"][row, :], group["3d_gaze_target"][row, :]
                with clock("read and decode"):
                    image = cv2.imread(str(raw / name))
                with clock("undistort"):
                    image = undistort(image, parameters, distortion)
                with clock("flip and warp"):
                    warp, angles = geometry(parameters, head_pose, target)
                    pixels.append(cv2.warpPerspective(image[:, :, ::-1], warp, (WIDTH_PX, HEIGHT_PX)))
                    labels.append(angles)
            with clock("stack and write"):
                write(store.create_group(person), np.asarray(pixels), np.asarray(labels))
            count += len(pixels)
    return count


def write(group: h5py.Group, pixels: NDArray, labels: NDArray) -> None:
    for name, array in (("pixels", pixels), ("labels", labels)):
        group.create_dataset(name, data=array, chunks=(1, *array.shape[1:]), compression="lzf")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    for name in ("raw", "supplementary", "out"):
        parser.add_argument(name, type=Path)
    print(preprocess(**vars(parser.parse_args())))


if __name__ == "__main__":
    main()
