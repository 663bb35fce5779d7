"""Preprocessing timed against the released procedure and JPEG decoding alone, interleaved in one run on a CPU.

    python benchmarks/preprocess.py stages compare command memory

stages   milliseconds per frame for each stage in one process: our stages and the released procedure's.
compare  on 1280 x 720 JPEGs of 153 kB: the released procedure in one process with OpenCV's default threads; ours in
         --processes processes of one thread, decoding whole frames or only the rows that a strip needs; and the floor,
         cv2.imdecode of the same frames in as many processes, with and without keeping freed memory. All processes stay
         alive between blocks. Our side reads files and writes strips; the floor does neither.
command  the whole commands on --frames frames, including startup: `python -m faze preprocess` and the baseline.
memory   the command's peak memory on 1,000 and 20,000 frames: the sum of its processes' peaks, so shared memory counts
         more than once.

Frames show rendered people, with grain that makes the files as large as real ones. Ratios are between adjacent blocks,
with t intervals computed on logarithms.
"""

import argparse
import contextlib
import os
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from unittest import mock

import cv2
import numpy as np
from baselines import preprocess as baseline
from preprocess_command import command, memory
from rendered_frames import render

from faze.base.locks import machine_exclusive
from faze.base.process_pool import worker_processes
from faze.benchmark.rows import ratio_interval
from faze.config.parameters import NormalizedCamera
from faze.config.yaml_files import DEFAULTS, read_yaml
from faze.data.normalization.images import EncodedFrame, FrameReader
from faze.data.normalization.pose import normalize_poses
from faze.data.normalization.warp import StripLookup
from faze.data.preparation.strip_maker import StripMaker, rows_needed
from faze.data.readers import Frame
from faze.data.readers.mpiifacegaze import open_mpiifacegaze
from faze.engine import machine

_SETTINGS = read_yaml(DEFAULTS)["preprocess"]
CAMERA = NormalizedCamera(*(_SETTINGS[key] for key in ("focal_length_px", "distance_mm", "width_px", "height_px")))
PEOPLE, FRAMES = 4, 50  # of each: as the released procedure was measured with
BLOCK = 256  # frames that StripMaker is given at once, at most


def frames_of(folder: Path) -> list[list[Frame]]:
    """Return the frames of each person."""
    reader = open_mpiifacegaze(folder / "raw", folder / "supplementary.h5")
    return [list(reader.entries(person)) for person in reader.persons()]


class Share:
    """The work of one process in every block: its people, and the encoded frames that it reads in advance."""

    def __init__(self, people: list[list[Frame]], scratch: Path) -> None:
        self._blocks = [person[at : at + BLOCK] for person in people for at in range(0, len(person), BLOCK)]
        self._encoded = [np.fromfile(frame.image_path, np.uint8) for person in people for frame in person]
        self._scratch = scratch / f"{os.getpid()}.strips"

    def ours(self, partial_decode: bool) -> None:
        """Convert image files to strips on disk."""
        # If the header does not state the size, all rows are decoded.
        whole = mock.patch.object(EncodedFrame, "size_px", None)
        for frames in self._blocks:
            pixels = np.empty((len(frames), CAMERA.height_px, CAMERA.width_px, 3), np.uint8)
            labels = np.empty((len(frames), 4), np.float32)
            with contextlib.nullcontext() if partial_decode else whole:
                assert not any(StripMaker(CAMERA).make(frames, pixels, labels))
            pixels.tofile(self._scratch)

    def floor(self) -> None:
        """Decode frames from bytes in memory."""
        for data in self._encoded:
            cv2.imdecode(data, cv2.IMREAD_COLOR)


def begin(folder: Path, scratch: Path) -> None:
    """Prepare a worker process; each piece of work that it receives specifies its people."""
    global _people, _scratch, _shares
    _people, _scratch, _shares = frames_of(folder), scratch, {}
    cv2.setNumThreads(1)


def work(what: str, number: int, processes: int) -> None:
    share = _shares.get(number)
    if share is None:
        share = _shares[number] = Share(_people[number::processes], _scratch)
    {"whole": partial(share.ours, False), "partial": partial(share.ours, True), "floor": share.floor}[what]()


def at_once(pool: Executor, what: str, processes: int) -> None:
    """Let each process do its share, and wait for all."""
    for future in [pool.submit(work, what, number, processes) for number in range(processes)]:
        future.result()


@contextlib.contextmanager
def sides(folder: Path, scratch: Path, processes: int) -> Iterator[dict[str, Callable[[], object]]]:
    """Yield functions by name; each processes all frames once, in processes that stay alive until the context ends."""
    with contextlib.ExitStack() as stack:
        kept = stack.enter_context(worker_processes(processes, begin, folder, scratch))
        plain = stack.enter_context(ProcessPoolExecutor(processes, get_context("spawn"), begin, (folder, scratch)))
        one = stack.enter_context(ProcessPoolExecutor(1, get_context("spawn")))
        released = partial(baseline.preprocess, folder / "raw", folder / "supplementary.h5", scratch / "released.h5")
        yield {
            "released": lambda: one.submit(released).result(),
            "whole": partial(at_once, kept, "whole", processes),
            "partial": partial(at_once, kept, "partial", processes),
            "floor": partial(at_once, plain, "floor", processes),
            "floor, memory kept": partial(at_once, kept, "floor", processes),
        }


def compare(folder: Path, scratch: Path, blocks: int, processes: int) -> None:
    """Print the frames per second of every side, and their ratios."""
    seconds: dict[str, list[float]] = defaultdict(list)
    with sides(folder, scratch, processes) as compared:
        for block in range(-1, blocks):  # the first warms up
            names = list(compared)
            for name in names if block % 2 else reversed(names):
                began = time.perf_counter()
                compared[name]()
                if block >= 0:
                    seconds[name].append(time.perf_counter() - began)
    count = sum(map(len, frames_of(folder)))
    print(f"compare: {count} frames a block, {blocks} blocks, {processes} processes (released: 1, default threads)")
    for name, found in seconds.items():
        ms = 1e3 * np.array(found) / count
        print(
            f"  {name:18s} {1e3 / np.median(ms):7.1f} frames/s ({1e3 / ms.max():.1f} to {1e3 / ms.min():.1f}), "
            f"{1e3 / np.median(ms) / processes:6.1f} per core, {processes * np.median(ms):.3f} ms per frame and core"
        )
    for ours in ("whole", "partial"):
        for other in ("released", "floor", "floor, memory kept"):
            print(f"  {other} / {ours}: " + "{ratio:.3f} ({low:.3f} to {high:.3f})".format(
                **ratio_interval(seconds[other], seconds[ours])
            ))  # fmt: skip


class StageClock:
    """A clock that adds up the seconds of each stage."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = defaultdict(float)

    @contextlib.contextmanager
    def __call__(self, stage: str) -> Iterator[None]:
        """Add the duration of the block to the stage."""
        began = time.perf_counter()
        yield
        self.seconds[stage] += time.perf_counter() - began

    def print(self, title: str, count: int) -> None:
        """Print the milliseconds per frame for each stage."""
        ms = {stage: 1e3 * seconds / count for stage, seconds in self.seconds.items()}
        print(f"{title}: " + ", ".join(f"{stage} {value:.3f}" for stage, value in ms.items()) + " ms per frame")


def stages(folder: Path, scratch: Path, repeats: int) -> None:
    """Print the milliseconds per frame for each stage in this process; the first round is not counted."""
    cv2.setNumThreads(1)
    people = frames_of(folder)
    count = sum(map(len, people))
    for clock in (StageClock(), ours := StageClock()):
        for _ in range(repeats):
            shares = [time_stages(person, clock, scratch) for person in people]
    ours.print("stages, ours, 1 thread", repeats * count)
    print(f"  rows decoded in part: {100 * np.mean(np.concatenate(shares)):.1f} % of the frames' on average")
    for threads in (1, os.cpu_count() or 1):
        cv2.setNumThreads(threads)
        for clock in (StageClock(), released := StageClock()):
            baseline.preprocess(folder / "raw", folder / "supplementary.h5", scratch / "released.h5", clock)
        released.print(f"stages, released, {threads} threads", count)


def time_stages(frames: Sequence[Frame], clock: StageClock, scratch: Path) -> list[float]:
    """Process a block as StripMaker does, stage by stage; return the share of rows decoded for each frame."""
    reader, shares = FrameReader(), []
    with clock("geometry"):
        fields = ("rotation_vector", "translation_mm", "inner_eye_corners_mm", "gaze_target_mm")
        poses, _ = normalize_poses(*(np.array([getattr(frame, field) for frame in frames]) for field in fields))
        matrices, distortions = [frame.camera_matrix for frame in frames], [frame.distortion for frame in frames]
        lookup = StripLookup(matrices, distortions, poses, CAMERA)
    pixels = np.empty((len(frames), CAMERA.height_px, CAMERA.width_px, 3), np.uint8)
    for row, frame in enumerate(frames):
        with clock("read and header"):
            encoded = reader.read(frame.image_path)
        with clock("maps"):
            maps = lookup.maps(row)
            rows = rows_needed(maps[1])
        with clock("decode whole"):
            image = encoded.decode()
        with clock("decode in part"):
            upper = encoded.decode(rows)
        shares.append(len(upper) / len(image))
        whole = cv2.remap(image, *maps, cv2.INTER_LINEAR)
        with clock("remap"):
            cv2.remap(upper, *maps, cv2.INTER_LINEAR, dst=pixels[row])
        assert np.array_equal(pixels[row], whole)
        with clock("colour"):
            cv2.cvtColor(pixels[row], cv2.COLOR_BGR2RGB, dst=pixels[row])
    with clock("write"):
        pixels.tofile(scratch / "strips")
    return shares


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="+", choices=("stages", "compare", "command", "memory"))
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--blocks", type=int, default=12, help="of the part compare")
    parser.add_argument("--repeats", type=int, default=5, help="of the part stages")
    parser.add_argument("--frames", type=int, default=4096, help="of the part command")
    parser.add_argument("--command-blocks", type=int, default=3)
    parser.add_argument("--memory-frames", type=int, nargs="+", default=[1000, 20000])
    parser.add_argument("--data", type=Path, help="folder that keeps the rendered frames for the next time")
    args = parser.parse_args()
    print(", ".join(f"{name} {fact}" for name, fact in machine.describe().items()))
    with machine_exclusive(), tempfile.TemporaryDirectory() as name:
        scratch = Path(name)
        folder = (args.data or scratch / "data").resolve()
        folder.mkdir(parents=True, exist_ok=True)
        render(folder, PEOPLE, FRAMES)
        sizes = [path.stat().st_size for path in (folder / "raw").rglob("*.jpg")]
        print(f"{len(sizes)} frames of {np.mean(sizes) / 1000:.0f} kB on average ({np.std(sizes) / 1000:.0f} kB s.d.)")
        if "stages" in args.parts:
            stages(folder, scratch, args.repeats)
        if "compare" in args.parts:
            compare(folder, scratch, args.blocks, args.processes)
        if "command" in args.parts:
            command(folder, args.frames, args.command_blocks, args.processes)
        if "memory" in args.parts:
            memory(folder, args.memory_frames, args.processes)


if __name__ == "__main__":
    main()
