"""A training run in separate processes: started, stopped, and compared with an undisturbed one."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import torch
from stores import PersonStrips, write_strips

from faze.config.stage_config import resolve, to_lines
from faze.config.validation import merge, read_config

ROOT = Path(__file__).resolve().parents[2]


def write_store(path: Path, seed: int = 0) -> Path:
    """Create strips of three people; the seed determines their pixels, not their labels."""
    pixels, labels = np.random.default_rng(seed), np.random.default_rng(0)

    def person(number: int, split: str) -> PersonStrips:
        strips = pixels.integers(0, 256, (12, 64, 256, 3), dtype=np.uint8)
        targets = labels.normal(0, 0.2, (12, 4)).astype(np.float32)
        return PersonStrips(f"{number:05d}", split, strips, targets)

    write_strips(path, "gazecapture", [person(1, "train"), person(2, "train"), person(3, "val")])
    return path


class Training:
    """One training run in a separate folder."""

    def __init__(
        self,
        folder: Path,
        data: Path,
        tier: str,
        *,
        name: str = "checkpoint",
        seed: int = 0,
        sections: dict | None = None,
        **train,
    ) -> None:
        self.out, self.log = folder / f"{name}.pt", folder / f"{name}.jsonl"
        self.work = folder / f"{name}.work" / "checkpoint.pt"
        steps = {"pairs": 320, "log_every_pairs": 32, "validate_every_pairs": 160, "checkpoint_every_pairs": 32}
        changes = {"tiers": {"baseline": {"device": "cpu"}}, "model": {"growth": 2}, "train": steps | train}
        config = read_config(changes=merge(changes, sections or {}))
        path = folder / f"{name}.config.yaml"
        path.write_text("\n".join(to_lines(resolve(config, "train", tier, seed))) + "\n")
        self.arguments = ["--config", path, "--data", data, "--out", self.out, "--run-log", self.log]
        self.arguments = list(map(str, self.arguments))

    def start(
        self, program: tuple[str, ...] = ("-m", "faze", "train"), environment: dict[str, str] | None = None
    ) -> subprocess.Popen:
        command = [sys.executable, *program, *self.arguments]
        pipes = {"text": True, "stderr": subprocess.PIPE, "stdout": subprocess.DEVNULL}
        environment = os.environ | (environment or {})
        return subprocess.Popen(command, cwd=ROOT, env=environment, start_new_session=True, **pipes)

    def finish(self) -> str:
        process = self.start()
        _, words = process.communicate(timeout=240)
        assert process.returncode == 0, words
        return words

    def weights(self) -> dict[str, torch.Tensor]:
        return torch.load(self.out, weights_only=True)["model"]


def kill_group(process: subprocess.Popen) -> None:
    with contextlib.suppress(ProcessLookupError):  # it has ended
        os.killpg(process.pid, signal.SIGKILL)
    process.communicate()


def wait_for(path: Path, process: subprocess.Popen) -> None:
    while not path.exists():
        assert process.poll() is None, process.stderr.read()
        time.sleep(0.02)
