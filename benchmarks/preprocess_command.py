"""The whole preprocess command, including startup: time compared with the released procedure, and memory."""

import contextlib
import os
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
from baselines import preprocess as baseline
from rendered_frames import ROOT, multiply

from faze.benchmark.rows import ratio_interval
from faze.config.stage_config import resolve, to_lines
from faze.config.yaml_files import read_yaml
from faze.data.store.supplementary import supplementary_persons


@contextlib.contextmanager
def many_frames(source: Path, count: int) -> Iterator[Path]:
    """Yield a folder with this many frames next to the source, since hard links cannot cross file systems."""
    with tempfile.TemporaryDirectory(dir=source.parent) as name:
        folder = Path(name)
        multiply(source, folder, supplementary_persons(source / "supplementary.h5"), count)
        values = resolve(read_yaml(ROOT / "config" / "config.yaml"), "preprocess", dataset="mpiigaze")
        (folder / "preprocess.config.yaml").write_text("\n".join(to_lines(values)), encoding="utf-8")
        yield folder


def commands(folder: Path, processes: int) -> dict[str, list[str]]:
    ours = [sys.executable, "-m", "faze", "preprocess", "--threads", str(processes)]
    ours += ["--config", str(folder / "preprocess.config.yaml"), "--raw", str(folder / "raw")]
    ours += ["--supplementary", str(folder / "supplementary.h5")]
    ours += ["--out", str(folder / "ours.h5"), "--rejects", str(folder / "rejects.csv")]
    released = [sys.executable, baseline.__file__, str(folder / "raw"), str(folder / "supplementary.h5")]
    return {"ours": ours, "released": [*released, str(folder / "released.h5")]}


def run(command: Sequence[str]) -> None:
    subprocess.run(command, check=True, cwd=ROOT, capture_output=True, env=os.environ | {"PYTHONPATH": str(ROOT)})


def command(folder: Path, frames: int, blocks: int, processes: int) -> None:
    """Print the seconds that the whole commands take, and their ratio."""
    seconds: dict[str, list[float]] = defaultdict(list)
    with many_frames(folder, frames) as many:
        for block in range(blocks):
            for name, words in list(commands(many, processes).items())[:: 1 if block % 2 else -1]:
                for old in many.glob("*s.h5"):
                    old.unlink()
                began = time.perf_counter()
                run(words)
                seconds[name].append(time.perf_counter() - began)
    for name, found in seconds.items():
        print(
            f"command, {name}: {frames} frames in {np.median(found):.2f} s ({min(found):.2f} to {max(found):.2f}), "
            f"{frames / np.median(found):.0f} frames/s"
        )
    if blocks > 1:
        ratio = ratio_interval(seconds["released"], seconds["ours"])
        print("  released / ours: {ratio:.2f} ({low:.2f} to {high:.2f})".format(**ratio))


def memory(folder: Path, counts: Sequence[int], processes: int) -> None:
    """Print the command's peak memory."""
    for count in counts:
        with many_frames(folder, count) as many:
            peaks = peak_mib(commands(many, processes)["ours"])
        each = ", ".join(f"{value:.0f}" for value in sorted(peaks, reverse=True))
        print(f"memory: {count} frames, {sum(peaks):.0f} MiB at the peaks of all processes ({each})")


def peak_mib(words: Sequence[str]) -> list[float]:
    """Run a command; return the peak memory, in MiB, of each of its processes, observed while they run."""
    peaks: dict[int, float] = {}
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    with subprocess.Popen(
        words, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=environment
    ) as top:
        while top.poll() is None:
            for process in descendants(top.pid):
                with contextlib.suppress(OSError, StopIteration):
                    lines = Path(f"/proc/{process}/status").read_text(encoding="ascii").splitlines()
                    peaks[process] = next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) / 1024
            time.sleep(0.02)
    if top.returncode:
        raise ChildProcessError(f"{' '.join(words)}: ended with {top.returncode}")
    return list(peaks.values())


def descendants(process: int) -> list[int]:
    """Return a process and all its descendants."""
    found = [process]
    with contextlib.suppress(OSError):
        for task in Path(f"/proc/{process}/task").iterdir():
            for child in (task / "children").read_text(encoding="ascii").split():
                found += descendants(int(child))
    return found
