"""Raw camera frames -> normalised eye strips with labels (FAZE section 3), and the list of frames that are left out.

People are normalised in parallel; the output is the same for any number of processes.
"""

import argparse
import concurrent.futures
import csv
import functools
import multiprocessing
import sys
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from multiprocessing.sharedctypes import Synchronized
from pathlib import Path
from typing import TextIO

import numpy as np

import faze.config
from faze.datasets import Frame, Reader, Reject, check_size
from faze.datasets.checked import Checked
from faze.datasets.gazecapture import GazeCapture
from faze.datasets.mpiifacegaze import open_mpiifacegaze
from faze.files import sole_writer, whole_file
from faze.normalization import (
    NormalizedCamera,
    UnusableFrame,
    normalize_pose,
    read_image,
    use_one_thread,
    warp_fused,
    warp_two_step,
)
from faze.sections import Preprocess
from faze.stages import one_sentence
from faze.store import PersonStrips, write_strips
from faze.telemetry import Progress
from faze.workers import worker_processes

READERS = {"mpiigaze": open_mpiifacegaze, "gazecapture": GazeCapture}
# What the released procedure takes for the camera matrix of an undistorted frame.
RELEASED_UNDISTORTION = {"mpiigaze": "recentred", "gazecapture": "keep"}


@one_sentence
def main() -> None:
    """Normalise every usable frame of a data set and list the others."""
    args = parse()
    if args.threads < 1:
        raise ValueError(f"--threads {args.threads}: give at least 1")
    if not args.raw.is_dir():
        raise ValueError(f"{args.raw}: no such folder")
    settings = faze.config.load(args.config, "preprocess").preprocess
    reader = Checked(READERS[args.dataset](args.raw, args.supplementary), settings.off_screen)
    normaliser = build_normaliser(settings, args.dataset, reader)
    with (
        sole_writer(args.out),
        whole_file(args.rejects) as temporary,
        temporary.open("w", newline="", encoding="utf-8") as file,
    ):
        tally = Tally(file)
        write_strips(args.out, args.dataset, tally.usable(run(normaliser, args.threads), args.raw))
    print(f"{args.dataset}: {tally}, listed in {args.rejects}")


def parse() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(prog="faze preprocess", description=__doc__)
    parser.add_argument("--config", type=Path, required=True, help="resolved configuration of this stage")
    parser.add_argument("--dataset", choices=READERS, required=True)
    parser.add_argument("--raw", type=Path, required=True, help="the data set's folder")
    parser.add_argument("--supplementary", type=Path, help="FAZE supplementary HDF5 of the data set")
    parser.add_argument("--threads", type=int, default=1, help="processes")
    parser.add_argument("--out", type=Path, required=True, help="HDF5 of strips")
    parser.add_argument("--rejects", type=Path, required=True, help="csv of the frames left out, with reasons")
    return parser.parse_args()


@dataclass(frozen=True)
class Normalised:
    """One person's strips (None where no frame is usable) and rejects."""

    strips: PersonStrips | None
    rejects: list[Reject]


@dataclass(frozen=True)
class Normaliser:
    """From a person of a raw data set to strips."""

    reader: Reader
    camera: NormalizedCamera
    warp: Callable[..., np.ndarray]  # warp_fused, or another with its arguments

    def normalise(self, person: str, tick: Callable[[], None]) -> Normalised:
        """Normalise a person's frames in the order of the annotation, calling tick at each."""
        count, used, rejects = self.reader.count(person), [], []
        # Of the annotated size at once: gathering strips in a list would hold a person twice.
        pixels = np.empty((count, self.camera.height_px, self.camera.width_px, 3), np.uint8)
        labels = np.empty((count, 4), np.float32)
        for entry in self.reader.entries(person):
            tick()
            if isinstance(entry, Reject):
                rejects.append(entry)
                continue
            try:
                pixels[len(used)], labels[len(used)] = self._strip(entry)
            except UnusableFrame as reason:
                rejects.append(Reject(person, entry.file_name, str(reason)))
            else:
                used.append(entry)
        if not used:
            return Normalised(None, rejects or [Reject(person, "", "no annotated frame")])
        names = [frame.file_name for frame in used]
        return Normalised(PersonStrips(person, used[0].split, names, pixels[: len(used)], labels[: len(used)]), rejects)

    def _strip(self, frame: Frame) -> tuple[np.ndarray, np.ndarray]:
        # The annotation first: reading the image is the dear part.
        pose = normalize_pose(
            frame.rotation_vector, frame.translation_mm, frame.inner_eye_corners_mm, frame.gaze_target_mm
        )
        image = read_image(frame.image_path)
        check_size(frame, image.shape[1], image.shape[0])
        return self.warp(image, frame.camera_matrix, frame.distortion, pose, self.camera), pose.labels


def build_normaliser(settings: Preprocess, dataset: str, reader: Reader) -> Normaliser:
    """Choose the warp that the settings ask for."""
    camera = NormalizedCamera(settings.focal_length_px, settings.distance_mm, settings.width_px, settings.height_px)
    warps = {
        "none": warp_fused,
        "two_step": functools.partial(warp_two_step, undistorted=RELEASED_UNDISTORTION[dataset]),
    }
    return Normaliser(reader, camera, warps[settings.compatibility])


def run(normaliser: Normaliser, threads: int) -> Iterator[Normalised]:
    """Normalise all people and yield them in order, holding at most one more of them than there are processes."""
    persons = normaliser.reader.persons()
    total = sum(normaliser.reader.count(person) for person in persons)  # reads every annotation: faults show at once
    progress = Progress("preprocess", total, "frames")
    done = multiprocessing.get_context("spawn").Value("q", 0)
    with worker_processes(threads, _start_process, normaliser, done) as pool:
        waiting: deque[concurrent.futures.Future[Normalised]] = deque()
        for person in persons:
            waiting.append(pool.submit(_normalise, person))
            if len(waiting) > threads:
                yield _result(waiting.popleft(), lambda: progress(done.value))
        while waiting:
            yield _result(waiting.popleft(), lambda: progress(done.value))
    progress(total)


def _result(future: "concurrent.futures.Future[Normalised]", show: Callable[[], None]) -> Normalised:
    while not concurrent.futures.wait([future], timeout=0.2).done:
        show()
    return future.result()


def _start_process(normaliser: Normaliser, done: "Synchronized[int]") -> None:
    global _normaliser, _done
    _normaliser, _done = normaliser, done
    use_one_thread()


def _normalise(person: str) -> Normalised:
    return _normaliser.normalise(person, _count_frame)


def _count_frame() -> None:
    with _done.get_lock():
        _done.value += 1


class Tally:
    """Writes down rejects, and counts."""

    def __init__(self, file: TextIO) -> None:
        """Begin the list of rejects in a text file that was opened with newline=''."""
        self._rejects = csv.writer(file, lineterminator="\n")
        self._rejects.writerow(["person", "file_name", "reason"])
        self._reasons: Counter[str] = Counter()
        self._people = self._strips = 0

    def usable(self, people: Iterable[Normalised], raw: Path) -> Iterator[PersonStrips]:
        """The people who have strips.

        Raises:
            ValueError: nobody has; names the commonest reasons.
        """
        for normalised in people:
            for reject in normalised.rejects:
                self._rejects.writerow([reject.person_id, reject.file_name, reject.reason])
                self._reasons[reject.reason] += 1
            if normalised.strips:
                self._people += 1
                self._strips += len(normalised.strips.pixels)
                yield normalised.strips
        if not self._people:
            reasons = "; ".join(f"{reason} ({count} times)" for reason, count in self._reasons.most_common(3))
            raise ValueError(f"{raw}: no frame is usable: {reasons}")

    def __str__(self) -> str:
        return f"{self._strips} strips of {self._people} people; {self._reasons.total()} rejects"


if __name__ == "__main__":
    sys.exit(main())
