"""Make strips and labels from some of a person's frames, and write them to a file."""

from pathlib import Path

import cv2
import numpy as np
from numpy.typing import NDArray

from faze.base.files import whole_file
from faze.config.parameters import Preprocess
from faze.data.normalization.images import read_image
from faze.data.normalization.pose import NormalizedPose, UnusableFrame, normalize_poses
from faze.data.normalization.warp import make_strip, make_strip_in_two_steps
from faze.data.readers.person import Person


def make_part(person: Person, start: int, settings: Preprocess, layout: str, part: Path) -> None:
    """Make strips from a person's consecutive frames, numbered from `start`, and write them to `part`."""
    cv2.setNumThreads(1)
    poses, faults = normalize_poses(
        person.poses[:, :3], person.poses[:, 3:], person.corners_mm + settings.center_mm, person.targets_mm
    )
    reasons = [reason or fault for reason, fault in zip(person.reasons, faults, strict=True)]
    rows: list[int] = []
    strips = np.empty((len(reasons), settings.height_px, settings.width_px, 3), np.uint8)
    for row, reason in enumerate(reasons):
        if reason:  # known from the annotation, so the image need not be read
            continue
        try:
            strips[len(rows)] = _make_strip(person, row, poses[row], settings, layout)
            rows.append(row)
        except UnusableFrame as unusable:
            reasons[row] = str(unusable)
    with whole_file(part) as temporary, temporary.open("wb") as file:
        np.savez(
            file,
            pixels=strips[: len(rows)],
            labels=poses.labels[rows].astype(np.float32),
            file_name=np.array([person.files[row].encode() for row in rows], np.bytes_),
            frame_index=start + np.array(rows, np.int64),
            about=np.array([person.split, person.device, person.source]),
            rejects=np.array([pair for pair in zip(person.files, reasons, strict=True) if pair[1]]).reshape(-1, 2),
        )


def _make_strip(person: Person, row: int, pose: NormalizedPose, settings: Preprocess, layout: str) -> NDArray[np.uint8]:
    image = read_image(person.folder / person.files[row])
    frame = image, (person.cameras[row], person.distortions[row]), pose, settings
    if settings.compatibility == "two_step":
        return make_strip_in_two_steps(*frame, recentred=layout.startswith("mpii"))
    return make_strip(*frame)
