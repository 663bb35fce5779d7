"""A copy of the project to run its workflow in, and Snakemake's output there."""

import contextlib
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
LEFT_OUT = shutil.ignore_patterns(".*", "__pycache__", "results", "*.egg-info")
NOTHING = "Nothing to be done"


@dataclass(frozen=True)
class Answer:
    """Output and exit code of one call of Snakemake."""

    code: int
    text: str

    @property
    def jobs(self) -> dict[str, int]:
        """Return the number of jobs of each rule, without targets."""
        table = re.search(r"^job +count\n-+ +-+\n(.*?)^total", self.text, re.MULTILINE | re.DOTALL)
        rows = (row.split() for row in table[1].splitlines()) if table else ()
        return {rule: int(count) for rule, count in rows if rule != "ablation"}

    def blocks(self, rule: str) -> list[str]:
        """Return what Snakemake printed about each job of a rule."""
        return re.findall(rf"^(?:local)?rule {rule}:\n((?:    .*\n)+)", self.text, re.MULTILINE)


class Checkout:
    """A copy of the project, or of another checkout with its results, in a separate folder."""

    def __init__(self, folder: Path, config: str, of: Path | None = None) -> None:
        shutil.copytree(of or ROOT, folder, ignore=None if of else LEFT_OUT, symlinks=True)
        self.folder, self.config = folder, config

    def command(self, *arguments: str) -> list[str]:
        return [sys.executable, "-m", "snakemake", *arguments, "--configfile", self.config]

    def start(self, *arguments: str, log: Path) -> subprocess.Popen[bytes]:
        """Start Snakemake in a process group of its own."""
        with log.open("wb") as file:
            return subprocess.Popen(
                self.command(*arguments),
                cwd=self.folder,
                stdout=file,
                stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL,
                start_new_session=True,
                env=environment(),
            )

    def snakemake(self, *arguments: str, **variables: str) -> Answer:
        env = environment() | variables
        done = subprocess.run(self.command(*arguments), cwd=self.folder, capture_output=True, text=True, env=env)
        return Answer(done.returncode, done.stdout + done.stderr)

    def dry_run(self, *targets: str) -> Answer:
        answer = self.snakemake(*targets, "-n")
        assert answer.code == 0, answer.text
        return answer

    @contextlib.contextmanager
    def edited(self, path: str, old: str, new: str) -> Iterator[None]:
        """Replace text in a file for the duration of a block."""
        file = self.folder / path
        before = file.read_text(encoding="utf-8")
        assert old in before, f"{path} does not hold {old!r}"
        file.write_text(before.replace(old, new), encoding="utf-8")
        try:
            yield
        finally:
            file.write_text(before, encoding="utf-8")

    def appended(self, path: str, text: str) -> contextlib.AbstractContextManager[None]:
        """Append text to a file for the duration of a block."""
        before = (self.folder / path).read_text(encoding="utf-8")
        return self.edited(path, before, before + text)


def environment() -> dict[str, str]:
    """Return this environment without variables that send runs elsewhere or import another checkout's code."""
    return {key: value for key, value in os.environ.items() if key not in ("MLFLOW_TRACKING_URI", "PYTHONPATH")}
