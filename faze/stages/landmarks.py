"""Rule `landmarks`: raw GazeCapture -> a supplementary annotation with estimated head pose and camera.

It runs in an environment of its own (envs/landmarks.yaml). A run that was killed goes on where it was.
"""

import argparse
import functools
import hashlib
import shutil
import sys
from collections.abc import Iterator
from concurrent.futures import as_completed
from pathlib import Path

import cv2

from faze.base.code_hash import fingerprint
from faze.base.command_line import Parser, one_sentence
from faze.base.errors import UserError
from faze.base.output_lock import sole_writer
from faze.base.process_pool import worker_processes
from faze.base.progress import Progress
from faze.data.preparation.stamp import stamp_of
from faze.data.readers.face_mesh import open_detector
from faze.data.readers.gazecapture import list_recordings
from faze.data.readers.head_pose import Detector, annotate
from faze.data.store.supplementary import Supplementary, read_supplementary, write_supplementary


def parse() -> argparse.Namespace:
    """Read the command line."""
    parser = Parser(__doc__)
    parser.add_argument("--raw", type=Path, required=True, help="folder of GazeCapture, with 00002/frames ...")
    parser.add_argument("--out", type=Path, required=True, help="HDF5 to write, in the layout of FAZE's supplementary")
    parser.add_argument("--model", type=Path, help="MediaPipe Face Landmarker file; default: the mesh in MediaPipe")
    parser.add_threads("processes", default=1)
    return parser.parse_args()


@one_sentence
def main() -> None:
    """Annotate every recording."""
    args = parse()
    people = list_recordings(args.raw)
    if not people:
        raise UserError(f"{args.raw}: holds no folder 00002, ...; preprocess.gazecapture is the one that does")
    open_detector(args.model)  # or say at once what it lacks
    parts = args.out.with_name(f"{args.out.stem}.{identity_of(args.raw, args.model)}.parts")
    with sole_writer(args.out):
        for old in set(args.out.parent.glob(f"{args.out.stem}.*.parts")) - {parts}:
            print(f"{old}: recordings annotated with other data, code or model are discarded", file=sys.stderr)
            shutil.rmtree(old)
        annotate_everybody(args.raw, people, parts, args.model, args.threads)
        tally = Tally()
        try:
            write_supplementary(
                args.out, tally.of((p, read_supplementary(part_of(parts, args.raw, p), p)) for p in people)
            )
        except ValueError:  # of what was found; a full disk, an OSError, keeps the parts for the next run
            shutil.rmtree(parts)
            raise
        shutil.rmtree(parts)
    print(f"landmarks: {tally}; head pose and camera are estimated")


def identity_of(raw: Path, model: Path | None) -> str:
    """Of all that annotation depends on, but the recordings' own files: 8 hex digits."""
    stat = model.stat() if model else None
    about = (
        str(raw.resolve()),
        fingerprint("faze.stages.landmarks"),
        stat and (str(model.resolve()), stat.st_size, stat.st_mtime_ns),
        getattr(sys.modules.get("mediapipe"), "__version__", ""),
    )
    return hashlib.sha256(repr(about).encode()).hexdigest()[:8]


def part_of(parts: Path, raw: Path, person: str) -> Path:
    """The file of a recording's annotation; another one when the recording's files have changed."""
    return parts / f"{person}.{stamp_of(raw / person)}.h5"


def annotate_everybody(raw: Path, people: list[str], parts: Path, model: Path | None, threads: int) -> None:
    """Write each recording's annotation to a file of its own, but for those that are there already."""
    parts.mkdir(parents=True, exist_ok=True)
    left = [person for person in people if not part_of(parts, raw, person).exists()]
    progress = Progress("landmarks", len(people), "recordings")
    with worker_processes(threads, _start_process, model) as pool:
        futures = [pool.submit(_annotate, raw, person, part_of(parts, raw, person)) for person in left]
        for done, future in enumerate(as_completed(futures), start=len(people) - len(left) + 1):
            future.result()
            progress(done)


def _start_process(model: Path | None) -> None:
    global _detector
    _detector = functools.cache(lambda: open_detector(model))
    cv2.setNumThreads(1)


def _annotate(raw: Path, person: str, part: Path) -> None:
    detect: Detector = _detector()
    write_supplementary(part, [(person, annotate(raw, person, detect))])


class Tally:
    """Counts what passes through."""

    def __init__(self) -> None:
        self._frames = self._left_out = 0

    def of(self, people: Iterator[tuple[str, Supplementary]]) -> Iterator[tuple[str, Supplementary]]:
        """Hand annotation on; a ValueError at the end where no frame of anybody has a label."""
        for person, entries in people:
            self._left_out += (left_out := sum(map(bool, entries.reasons)))
            self._frames += len(entries.file_names) - left_out
            yield person, entries
        if not self._frames:
            raise UserError(f"no frame of any recording has a head pose, {self._left_out} times")

    def __str__(self) -> str:
        return f"{self._frames} frames with a label, {self._left_out} entries without"


if __name__ == "__main__":
    sys.exit(main())
