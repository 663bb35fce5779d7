"""Annotate many people in parallel, each into a file of its own, so that a killed run can resume."""

import contextlib
import functools
import hashlib
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import as_completed
from pathlib import Path

import cv2
from numpy.typing import NDArray

from faze.base.code_hash import fingerprint
from faze.base.errors import UserError
from faze.base.progress import Progress
from faze.data.landmarks.detector import Detector, open_detector
from faze.data.process_pool import worker_processes
from faze.data.store.supplementary import Supplementary, read_supplementary, write_supplementary


def entries_of(names: list[str], table: NDArray, distortion: NDArray, reasons: list[str]) -> Supplementary:
    """Build the estimated annotation of N frames.

    Args:
        names: File names.
        table: (N, 13) camera (4), head pose (6) and gaze target (3); a row of NaN is a frame without annotation.
        distortion: (N, d) distortion coefficients.
        reasons: For each frame, why it has no annotation; "" if it has one.
    """
    return Supplementary(
        file_names=names,
        camera_parameters=table[:, :4],
        distortion_parameters=distortion,
        head_pose=table[:, 4:10],
        gaze_target_mm=table[:, 10:],
        reasons=reasons,
        label_source="estimated",
    )


def identity_of(raw: Path, model: Path | None) -> str:
    """Hash everything on which the annotation depends, except the frames: 8 hex digits."""
    stat = model.stat() if model else None
    about = (
        str(raw.resolve()),
        fingerprint("faze.stages.landmarks"),
        stat and (str(model.resolve()), stat.st_size, stat.st_mtime_ns),
        getattr(sys.modules.get("mediapipe"), "__version__", ""),
    )
    return hashlib.sha256(repr(about).encode()).hexdigest()[:8]


def annotate_everybody(
    annotate: Callable[[str, Detector], Supplementary], parts: Mapping[str, Path], model: Path | None, threads: int
) -> None:
    """Write each person's annotation to its file, unless the file exists.

    Args:
        annotate: Computes a person's annotation; it is sent to other processes.
        parts: Output file of each person.
        model: See `open_detector`.
        threads: Number of processes.
    """
    left = {person: part for person, part in parts.items() if not part.exists()}
    progress = Progress("landmarks", len(parts), "recordings")
    with worker_processes(threads, _start_process, model) as pool:
        futures = [pool.submit(_write_part, annotate, person, part) for person, part in left.items()]
        for done, future in enumerate(as_completed(futures), start=len(parts) - len(left) + 1):
            future.result()
            progress(done)


def read_parts(parts: Mapping[str, Path], counts: Counter[str]) -> Iterator[tuple[str, Supplementary]]:
    """Read the annotation of every person, and count the entries with and without a label.

    Raises:
        UserError: No frame of any person has a label.
    """
    for person, part in parts.items():
        entries = read_supplementary(part, person)
        without = sum(map(bool, entries.reasons))
        counts.update({"with": len(entries.file_names) - without, "without": without})
        yield person, entries
    if not counts["with"]:
        raise UserError(f"no frame of any recording has a head pose ({counts['without']} entries)")


_stack = contextlib.ExitStack()  # keeps the detector of this process open


def _start_process(model: Path | None) -> None:
    global _detector
    _detector = functools.cache(lambda: _stack.enter_context(open_detector(model)))
    cv2.setNumThreads(1)


def _write_part(annotate: Callable[[str, Detector], Supplementary], person: str, part: Path) -> None:
    write_supplementary(part, [(person, annotate(person, _detector()))])
