"""Estimate the head poses of a manifest's frames, in the format of FAZE's supplementary file.

Camera and gaze target are the manifest's own.
"""

import functools
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from faze.data.landmarks import estimate_head_pose
from faze.data.landmarks.detector import Detector
from faze.data.landmarks.parts import entries_of
from faze.data.normalization.images import read_image
from faze.data.normalization.pose import INNER_EYE_CORNERS_14_MM, UnusableFrame, gaze_origins_mm
from faze.data.readers import Reject, check_size
from faze.data.readers.manifest_lines import ManifestLines, UnposedFrame
from faze.data.store.supplementary import Supplementary

read_lines = functools.cache(ManifestLines)  # once per process


def annotate(path: Path, person: str, detect: Detector) -> Supplementary:
    """Estimate an annotation like FAZE's for one person's lines; entries without one have a reason instead.

    Args:
        path: The manifest.
        person: The person's name in it.
        detect: Finds the landmarks of a frame.
    """
    lines = list(read_lines(path).unposed(person))
    numbers, reasons = np.full((len(lines), 13), np.nan), [""] * len(lines)
    longest = max((len(line.distortion) for line in lines if isinstance(line, UnposedFrame)), default=5)
    distortion = np.zeros((len(lines), longest))
    for row, line in enumerate(lines):
        try:
            numbers[row] = _annotate_frame(line, detect)
            distortion[row, : len(line.distortion)] = line.distortion
        except UnusableFrame as unusable:
            reasons[row] = str(unusable)
    return entries_of([line.file_name for line in lines], numbers, distortion, reasons)


def _annotate_frame(line: UnposedFrame | Reject, detect: Detector) -> NDArray:
    """Compute the (13,) numbers of a frame: camera, head pose and target."""
    if isinstance(line, Reject):
        raise UnusableFrame(line.reason)
    image = read_image(line.image_path)
    check_size(line, image.shape[1], image.shape[0])
    pose = estimate_head_pose(image, line.camera_matrix, line.distortion, detect)
    origin = gaze_origins_mm(pose[None, :3], pose[None, 3:], INNER_EYE_CORNERS_14_MM[None])[0]
    camera = line.camera_matrix[[0, 1, 0, 1], [0, 1, 2, 2]]
    return np.concatenate([camera, pose, line.target_from(origin)])
