"""Estimate the head pose and camera that GazeCapture lacks, as in FAZE's supplementary file.

The head pose is estimated from detected landmarks, the intrinsics from the device (devices.csv); the gaze target is the
data set's own. Each recording's annotation is written to a file of its own, so that a killed run can resume.
"""

import functools
import hashlib
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from concurrent.futures import as_completed
from pathlib import Path

import cv2
import numpy as np
from numpy.typing import NDArray

from faze.base.code_hash import fingerprint
from faze.base.errors import UserError
from faze.base.process_pool import worker_processes
from faze.base.progress import Progress
from faze.data.normalization.frame import read_image
from faze.data.normalization.pose import UnusableFrame
from faze.data.readers.annotation_checks import OUTSIDE, is_inside
from faze.data.readers.devices import check_device, estimate_camera
from faze.data.readers.face_mesh import open_detector
from faze.data.readers.gazecapture import Recording, read_recording
from faze.data.readers.head_pose import Detector, estimate_pose
from faze.data.store.supplementary import Supplementary, read_supplementary, write_supplementary


def identity_of(raw: Path, model: Path | None) -> str:
    """Hash everything on which the annotation depends, except for the recordings' own files: 8 hex digits."""
    stat = model.stat() if model else None
    about = (
        str(raw.resolve()),
        fingerprint("faze.stages.landmarks"),
        stat and (str(model.resolve()), stat.st_size, stat.st_mtime_ns),
        getattr(sys.modules.get("mediapipe"), "__version__", ""),
    )
    return hashlib.sha256(repr(about).encode()).hexdigest()[:8]


def annotate_everybody(raw: Path, parts: Mapping[str, Path], model: Path | None, threads: int) -> None:
    """Write each recording's annotation to its file, unless the file exists.

    Args:
        raw: Folder of the recordings.
        parts: File of each recording.
        model: See `open_detector`.
        threads: Number of processes.
    """
    left = {person: part for person, part in parts.items() if not part.exists()}
    progress = Progress("landmarks", len(parts), "recordings")
    with worker_processes(threads, _start_process, model) as pool:
        futures = [pool.submit(_write_part, raw, person, part) for person, part in left.items()]
        for done, future in enumerate(as_completed(futures), start=len(parts) - len(left) + 1):
            future.result()
            progress(done)


def read_parts(parts: Mapping[str, Path], counts: Counter[str]) -> Iterator[tuple[str, Supplementary]]:
    """Read the annotation of every recording, and count the entries with and without a label.

    Raises:
        UserError: No frame of any recording has a label.
    """
    for person, part in parts.items():
        entries = read_supplementary(part, person)
        without = sum(map(bool, entries.reasons))
        counts.update({"with": len(entries.file_names) - without, "without": without})
        yield person, entries
    if not counts["with"]:
        raise UserError(f"no frame of any recording has a head pose, {counts['without']} times")


def _start_process(model: Path | None) -> None:
    global _detector
    _detector = functools.cache(lambda: open_detector(model))
    cv2.setNumThreads(1)


def _write_part(raw: Path, person: str, part: Path) -> None:
    write_supplementary(part, [(person, annotate(raw, person, _detector()))])


def annotate(raw: Path, person: str, detect: Detector) -> Supplementary:
    """Estimate FAZE's annotation of a recording; entries without annotation have a reason.

    Args:
        raw: Folder of the recordings.
        person: The recording's folder name.
        detect: Finds the landmarks of a frame.

    Returns:
        One entry per frame of frames.json; a single one without file name if the recording is incomplete or its device
        is unknown.
    """
    try:
        recording = read_recording(raw / person)
        if recording.targets_mm is None or not (raw / person / "screen.json").exists():
            raise UserError("dotInfo.json or screen.json: No such file or directory")
        check_device(recording.device)
        if not recording.names:
            raise UserError("frames.json: lists no frame")
    except UserError as error:
        return _entries([""], np.full((1, 13), np.nan), [str(error)])
    names = [f"{person}/frames/{name}" for name in recording.names]
    numbers, reasons = np.full((len(names), 13), np.nan), [""] * len(names)
    for row, name in enumerate(names):
        try:
            numbers[row] = _annotate_frame(raw, name, recording, row, detect)
        except UnusableFrame as unusable:
            reasons[row] = str(unusable)
    return _entries(names, numbers, reasons)


def _annotate_frame(raw: Path, name: str, recording: Recording, row: int, detect: Detector) -> NDArray:
    """Estimate (13,) camera, head pose and target of a frame."""
    if recording.faults[row]:
        raise UnusableFrame(recording.faults[row])
    if not is_inside(name):
        raise UnusableFrame(OUTSIDE)
    image = read_image(raw / name)
    camera = estimate_camera(recording.device, image.shape[1], image.shape[0])
    landmarks_px = detect(image)
    if landmarks_px is None:
        raise UnusableFrame("no face found")
    return np.concatenate([camera, estimate_pose(landmarks_px, camera), recording.targets_mm[row]])


def _entries(names: list[str], table: NDArray, reasons: list[str]) -> Supplementary:
    """Build the annotation of N frames from their (N, 13) numbers, NaN for a frame without annotation."""
    return Supplementary(
        file_names=names,
        camera_parameters=table[:, :4],
        distortion_parameters=np.zeros((len(names), 5)),
        head_pose=table[:, 4:10],
        gaze_target_mm=table[:, 10:],
        reasons=reasons,
        label_source="estimated",
    )
