"""Peak memory does not grow with the number of a person's frames."""

import contextlib
import os
import re
import subprocess
import time
from pathlib import Path

import pytest
import raw_data
from test_preprocess_kills import ROOT, command, members

FEW, MANY = 300, 2500


def peaks_mib(raw: Path, out: Path) -> list[float]:
    """Run the command, and return the peak memory observed for each process, in MiB and ascending order."""
    out.mkdir()
    peaks: dict[int, float] = {}
    with subprocess.Popen(command(raw, out), cwd=ROOT, stderr=subprocess.DEVNULL, start_new_session=True) as top:
        while top.poll() is None:
            for process in members(top.pid):
                with contextlib.suppress(OSError, TypeError):
                    status = Path(f"/proc/{process}/status").read_text()
                    peaks[process] = int(re.search(r"VmHWM:\s+(\d+)", status)[1]) / 1024
            time.sleep(0.01)
    assert top.returncode == 0
    return sorted(peaks.values())


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="the high-water mark is read from /proc")
def test_peak_memory_is_flat(tmp_path: Path) -> None:
    """2,200 more frames add 103 MiB of strips. Regression: shards had any size; a person's strips were joined."""
    found = {}
    for frames in (FEW, MANY):
        raw = tmp_path / f"raw{frames}"
        raw_data.write_mpiifacegaze(raw, people=1, frames=1)
        names = [f"day01/{i:04d}.jpg" for i in range(frames)]
        for name in names[1:]:
            os.link(raw / "p00" / names[0], raw / "p00" / name)
        (raw / "p00" / "p00.txt").write_text("\n".join(map(raw_data.mpiifacegaze_line, names)) + "\n")
        found[frames] = peaks_mib(raw, tmp_path / str(frames))
    assert found[MANY][-1] < found[FEW][-1] + 25, found
