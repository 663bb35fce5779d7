"""Cases of a target: a hostile file is made, its parser gets it, and what comes of it is judged.

A parser gives a value or raises a UserError of plain lines that names the file or the person. Anything else is a
finding: another exception, a hang, the end of the process, memory beyond the limit, a file outside the case's folder.
"""

import json
import os
import shutil
import traceback
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path

from draws import Chance, Shrinking
from hostile import Draw
from hypothesis import HealthCheck, given, seed, settings
from hypothesis import strategies as st
from limits import Watch, forget_peak, in_child, limit_memory, limited_time, own_peak_mib

from faze.base.errors import UserError

LONGEST_LINE = 20_000  # characters of a sentence
BATCH = 5000  # cases of one process


@dataclass(frozen=True)
class Target:
    """A parser, and how hostile files for it are made."""

    name: str
    make: Callable[[Draw, Path], None]  # writes into an empty folder
    parse: Callable[[Path], object]  # reads that folder, as far as any user of the parser does
    probed: str = ""  # library whose end or hang is another process's in faze (faze.data.store.probe)
    nameless: bool = False  # its sentences name no file: whoever calls it does
    warm: Callable[[], object] = lambda: None  # what is imported or compiled at the first use, and no case's affair


@dataclass
class Tally:
    """What came of the cases of a target."""

    cases: int = 0
    values: int = 0
    refused: int = 0
    probed: int = 0  # ended the library, in the process that faze gives it
    seconds: float = 0.0
    extra_mib: float = 0.0
    findings: list[str] = field(default_factory=list)

    def add(self, other: "Tally") -> None:
        """Add another process's."""
        for name in ("cases", "values", "refused", "probed", "seconds"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.extra_mib = max(self.extra_mib, other.extra_mib)
        self.findings += [finding for finding in other.findings if finding not in self.findings]


def judge(target: Target, folder: Path) -> str:
    """Parse one case; returns "value" or "refused", raises whatever a user should never see."""
    try:
        target.parse(folder)
    except UserError as error:
        words = str(error)
        names = [path.name for path in folder.rglob("*")] + ["person"]
        assert words.strip(), "a UserError without words"
        assert all(len(line) <= LONGEST_LINE for line in words.split("\n")), f"an endless line: {words[:200]!r}"
        assert "Traceback" not in words and len(words.split("\n")) < 500, f"no sentence: {words[:200]!r}"
        assert target.nameless or any(name in words for name in names), (
            f"names neither file nor person: {words[:200]!r}"
        )
        return "refused"
    return "value"


def run_batch(target: Target, numbers: range, number: int, home: Path) -> Tally:
    """Run cases in processes of their own; a finding is its place in the code, and the files that lead there.

    Args:
        target: whose.
        numbers: of the cases.
        number: seed.
        home: folder for the cases, and for what is kept of them.
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
        numbers = numbers[tally.cases + 1 :]  # it ended within a case
        _judge_end(total, target, code, home)
        if total.findings:
            break
    return total


def _judge_end(total: Tally, target: Target, code: int, home: Path) -> None:
    """Say whether the end of a process is a finding, or that of a library which faze does not have in its own."""
    total.cases += 1
    words = (home / "log").read_text(errors="replace")
    innermost = words.partition("most recent call first):\n")[2].partition("\n")[0]
    if target.probed and f"/{target.probed}/" in innermost:
        total.probed += 1
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
        if target.probed or done % 100 == 0:
            result.write_text(json.dumps(asdict(tally)))
        emptied(case)
        target.make(Chance(target.name, number, each), case)
        try:
            with watch.on(), limited_time():
                outcome = judge(target, case)
            tally.values, tally.refused = tally.values + (outcome == "value"), tally.refused + (outcome == "refused")
        except BaseException as error:
            _keep(error, case, home, seen)
        tally.cases = done + 1
    tally.extra_mib, tally.findings = own_peak_mib() - before, list(seen.values())
    result.write_text(json.dumps(asdict(tally)))


def shrink(target: Target, count: int, number: int, home: Path) -> None:
    """Let hypothesis look for a case that comes through, and make it as small as it can; what comes through is raised.

    Memory is not limited here, since hypothesis needs some itself.
    """
    target.warm()

    @seed(number)
    @settings(max_examples=count, deadline=None, database=None, suppress_health_check=list(HealthCheck))
    @given(st.data())
    def one(data: st.DataObject) -> None:
        emptied(home)
        target.make(Shrinking(data), home)
        with limited_time():
            judge(target, home)

    one()


def emptied(folder: Path) -> None:
    """Make a folder anew."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()


def _keep(error: BaseException, case: Path, home: Path, seen: dict[str, str]) -> None:
    """Keep one case of each place in faze where something came through."""
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if Path(frame.filename).name != "limits.py"]
    own = [frame for frame in frames if "/faze/" in frame.filename] or frames
    place = f"{type(error).__name__} at {Path(own[-1].filename).name}:{own[-1].lineno} ({own[-1].name})"
    if place not in seen:
        kept = home / f"finding{len(seen)}"
        shutil.rmtree(kept, ignore_errors=True)
        shutil.copytree(case, kept, symlinks=True)
        seen[place] = f"{place}: {str(error)[:300]!r} {kept}"
