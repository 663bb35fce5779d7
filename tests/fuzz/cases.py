"""Readers of untrusted files, their hostile cases, and the code that runs random cases.

A reader returns a value or raises a UserError that names the file or the person. Anything else is a finding: another
exception, a hang, a crash, memory beyond the limit, a file outside the case's folder.
"""

import json
import os
import shutil
import traceback
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path

from hostile import Draw
from limits import TooLong, Watch, forget_peak, in_child, limit_memory, limited_time, own_peak_mib

from faze.base.errors import UserError

LONGEST_LINE = 20_000  # characters of a message
BATCH = 5000  # cases per process


@dataclass(frozen=True)
class Target:
    """A reader of untrusted files, and its hostile files."""

    name: str
    make: Callable[[Draw, Path], None]  # writes a random hostile file into an empty folder
    parse: Callable[[Path], object]  # reads that folder, as far as any caller of the reader does
    isolated: str = (
        ""  # library that faze runs in an isolated process (faze.base.untrusted), where it may crash or hang
    )
    nameless: bool = False  # its messages name no file, because the caller does
    warm: Callable[[], object] = lambda: None  # imports and compiles what the first use needs
    valid: Callable[[Path], object] = lambda folder: None  # writes a valid file into an empty folder
    # Changes the valid files so that they are refused, with words that the message contains.
    hostile: Mapping[str, tuple[Callable[[Path], object], str]] = field(default_factory=dict)


@dataclass
class Tally:
    """Outcomes of a target's cases."""

    cases: int = 0
    values: int = 0
    refused: int = 0
    isolated: int = 0  # crashed the library that faze isolates
    seconds: float = 0.0
    extra_mib: float = 0.0
    findings: list[str] = field(default_factory=list)

    def add(self, other: "Tally") -> None:
        """Add the outcomes of another process."""
        for name in ("cases", "values", "refused", "isolated", "seconds"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.extra_mib = max(self.extra_mib, other.extra_mib)
        self.findings += [finding for finding in other.findings if finding not in self.findings]


def judge(target: Target, folder: Path) -> str:
    """Parse one case and return "value" or "refused"; raise any exception that a user should never see."""
    try:
        target.parse(folder)
    except UserError as error:
        text, shown = str(error), f"{error!s:.200}"
        names = [path.name for path in folder.rglob("*")] + ["person"]
        assert text.strip(), "a UserError without text"
        assert all(len(line) <= LONGEST_LINE for line in text.split("\n")), f"an endless line: {shown!r}"
        assert "Traceback" not in text and len(text.split("\n")) < 500, f"no sentence: {shown!r}"
        assert target.nameless or any(name in text for name in names), f"names neither file nor person: {shown!r}"
        return "refused"
    return "value"


def run_batch(target: Target, numbers: range, number: int, home: Path) -> Tally:
    """Run cases in child processes; a finding consists of a place in the code and the files that cause it.

    Args:
        target: reader to run.
        numbers: indices of the cases.
        number: seed.
        home: folder for the cases, and for the files that cause findings.
    """
    home.mkdir(parents=True, exist_ok=True)
    result, log, total = home / "tally.json", home / "log", Tally()
    while numbers:
        result.write_text("{}")
        code = in_child(lambda numbers=numbers: _work(target, numbers, number, home, result), log)
        tally = Tally(**json.loads(result.read_text()))
        total.add(tally)
        if not code:
            break
        numbers = numbers[tally.cases + 1 :]  # it crashed within a case
        _judge_end(total, target, code, home)
        if total.findings:
            break
    return total


def _judge_end(total: Tally, target: Target, code: int, home: Path) -> None:
    """Record a process crash as a finding, unless the crash was in a library that faze isolates."""
    total.cases += 1
    words = (home / "log").read_text(errors="replace")
    innermost = words.partition("most recent call first):\n")[2].partition("\n")[0]
    if target.isolated and f"/{target.isolated}/" in innermost:
        total.isolated += 1
        return
    kept = home / f"ended{total.cases}"
    shutil.copytree(home / "case", kept, symlinks=True)
    total.findings.append(f"the process ended with {code} at {kept}:\n{words[:3000]}")


def _work(target: Target, numbers: range, number: int, home: Path, result: Path) -> None:
    case, tally, seen = home / "case", Tally(), {}
    os.chdir(home)
    target.warm()
    watch = Watch(case)
    forget_peak()
    before = own_peak_mib()
    limit_memory()
    for done, each in enumerate(numbers):
        if target.isolated or done % 100 == 0:
            result.write_text(json.dumps(asdict(tally)))
        emptied(case)
        target.make(Draw(target.name, number, each), case)
        try:
            with watch.on(), limited_time():
                outcome = judge(target, case)
            tally.values, tally.refused = tally.values + (outcome == "value"), tally.refused + (outcome == "refused")
        except BaseException as error:
            if (
                isinstance(error, MemoryError | TooLong) and target.isolated
            ):  # refused by the process that faze isolates
                tally.isolated, tally.cases = tally.isolated + 1, done + 1
                continue
            _keep(error, case, home, seen)
        tally.cases = done + 1
    tally.extra_mib, tally.findings = own_peak_mib() - before, list(seen.values())
    result.write_text(json.dumps(asdict(tally)))


def emptied(folder: Path) -> None:
    """Empty a folder."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()


def _keep(error: BaseException, case: Path, home: Path, seen: dict[str, str]) -> None:
    """Keep the files of one case for each place in faze that raises an error."""
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if Path(frame.filename).name != "limits.py"]
    own = [frame for frame in frames if "/faze/" in frame.filename] or frames
    place = f"{type(error).__name__} at {Path(own[-1].filename).name}:{own[-1].lineno} ({own[-1].name})"
    if place not in seen:
        kept = home / f"finding{len(seen)}"
        shutil.rmtree(kept, ignore_errors=True)
        shutil.copytree(case, kept, symlinks=True)
        seen[place] = f"{place}: {str(error)[:300]!r} {kept}"
