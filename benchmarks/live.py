"""Measure the speed, latency and memory of `faze gaze` on a video.

    python benchmarks/live.py me.mp4 --landmarker face_landmarker.task [--frames 10000] [--model dted.pt]

The video is repeated as needed; its frames must show a usable face. The output contains the frame rate of the whole
pipeline (from reading a frame to estimating its gaze), the time that each part takes, and the median and 95th
percentile of the frame latency. It also contains the resident memory after a tenth of the frames and at the end.
"""

import argparse
import itertools
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from faze.data.landmarks.pose import pose_of
from faze.data.normalization.pose import UnusableFrame
from faze.gaze.estimator import GazeEstimator
from faze.gaze.overlay import draw
from faze.gaze.sources import Lens, SourceFrame, frames_of, sources_of
from faze.weights import SHIPPED

PARTS = ("read", "landmarks", "head pose", "strip and network", "overlay")


def repeated(video: Path, count: int) -> Iterator[SourceFrame]:
    """Yield `count` frames, restarting the video whenever it ends."""
    return itertools.islice((frame for _ in itertools.count() for frame in frames_of(sources_of([video]))), count)


def resident_mib() -> float:
    """Return the resident memory of this process, in MiB."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * 4096 / 2**20


def time_parts(estimator: GazeEstimator, video: Path, lens: Lens, count: int) -> NDArray[np.float64]:
    """Return the time in seconds (n, 5) that each part takes on each of the n frames with a face."""
    rows, frames = [], repeated(video, count)
    while True:
        times = [time.perf_counter()]
        frame = next(frames, None)
        if frame is None:
            return np.array(rows)
        times.append(time.perf_counter())
        faces = estimator.detect(frame.image)
        times.append(time.perf_counter())
        if not faces or isinstance(faces[0], UnusableFrame):
            continue
        camera = lens.of(frame.image)
        pose = pose_of(faces[0], frame.image, *camera)
        times.append(time.perf_counter())
        found = estimator.at_pose(frame.image, camera, pose)
        times.append(time.perf_counter())
        draw(frame.image, lens, [found])
        times.append(time.perf_counter())
        rows.append(np.diff(times))


def main() -> None:
    """Run the benchmark and print the results."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("video", type=Path)
    parser.add_argument("--landmarker", type=Path)
    parser.add_argument("--model", default=SHIPPED)
    parser.add_argument("--frames", type=int, default=10_000)
    args = parser.parse_args()
    lens = Lens(hfov_deg=60.0)
    with GazeEstimator.load(args.model, args.landmarker, lens=lens) as estimator:
        sizes, latency = {}, []
        began = before = time.perf_counter()
        for number, _ in enumerate(estimator.frames(repeated(args.video, args.frames)), start=1):
            now = time.perf_counter()
            latency.append(now - before)
            before = now
            if number in (args.frames // 10, args.frames):
                sizes[number] = resident_mib()
        rate = args.frames / (time.perf_counter() - began)
        median, late = 1e3 * np.percentile(latency, [50, 95])
        print(f"whole pipeline: {rate:.1f} frames/s, latency {median:.1f} ms (95th percentile {late:.1f} ms)")
        print("; ".join(f"resident memory after {number:,} frames: {mib:.0f} MiB" for number, mib in sizes.items()))
        parts = 1e3 * np.median(time_parts(estimator, args.video, lens, min(args.frames, 300)), axis=0)
        print("; ".join(f"{part} {ms:.1f} ms" for part, ms in zip(PARTS, parts, strict=True)))


if __name__ == "__main__":
    main()
