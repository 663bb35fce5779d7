"""Mutation testing with cosmic-ray, whose operators make the mutants: how many small faults the tests notice.

    .venv/bin/pip install cosmic-ray==8.7.0 "pytest-cov<7"
    .venv/bin/python tests/mutants.py --out results/mutants

It tries every mutant of the modules in WHOLE and a random sample of those in the packages in SAMPLED, each in a copy of
the tracked files: the working tree is not changed. First, all tests run once, and coverage records which lines each
test reaches, also in processes that it starts. A mutant is killed if a test that reaches its line fails: the fastest
tests run first, for at most a minute, until one fails. Strings, docstrings, annotations and the flags of dataclasses
are not changed. Each try adds a line to OUT/mutants.jsonl, and killed mutants are not tried again; OUT/survivors.md
lists the mutants that no test noticed, with file and line. It takes an hour or two, so it is not part of `make test`.
"""

import argparse
import ast
import contextlib
import importlib
import itertools
import json
import multiprocessing
import os
import queue
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import asdict, dataclass
from pathlib import Path
from xml.etree import ElementTree

import coverage
import pytest
from cosmic_ray.ast import ast_nodes, get_ast
from cosmic_ray.mutating import mutate_code
from cosmic_ray.plugins import get_operator

ROOT = Path(__file__).resolve().parents[1]
WHOLE = ("faze/model/losses.py", "faze/model/objective.py", "faze/evaluation/statistics.py", "faze/data/normalization")
SAMPLED = ("faze/engine", "faze/fewshot", "faze/evaluation", "faze/training")
BINARY = (
    "Add_Sub",
    "Sub_Add",
    "Mul_Div",
    "Div_Mul",
    "FloorDiv_Mul",
    "Mod_Sub",
    "Pow_Mul",
    "BitOr_BitAnd",
    "BitAnd_BitOr",
)
COMPARISON = ("Eq_NotEq", "NotEq_Eq", "Lt_LtE", "LtE_Lt", "Gt_GtE", "GtE_Gt", "Lt_Gt", "Gt_Lt", "Is_IsNot", "IsNot_Is")
OPERATORS = (  # one or two for each kind of place: cosmic-ray has 11 for each arithmetic sign
    *(f"core/ReplaceBinaryOperator_{name}" for name in BINARY),
    *(f"core/ReplaceComparisonOperator_{name}" for name in COMPARISON),
    *(f"core/ReplaceUnaryOperator_{name}" for name in ("USub_UAdd", "Delete_Not")),
    *(f"core/{name}" for name in ("AddNot", "ReplaceTrueWithFalse", "ReplaceFalseWithTrue", "ReplaceAndWithOr")),
    *(f"core/{name}" for name in ("ReplaceOrWithAnd", "NumberReplacer", "ZeroIterationForLoop")),
)
IMPORTED_ONCE = ("cv2", "pandas", "scipy.stats", "torch")  # for all mutants: what takes long, but nothing of faze
BUDGET_S = 60  # of the unchanged code's tests for one mutant
SLOWER = 4  # times as long as the unchanged code's tests, and the mutant hangs: killed
MARKED = "not workflow and not kills and not compiled"  # the tests of `make unit`
Place = tuple[int, int]  # line from 1, column from 0


@dataclass(frozen=True)
class Mutant:
    """One change in one place of the source."""

    module: str
    operator: str
    occurrence: int
    line: int


def silent_spans(source: str) -> list[tuple[Place, Place]]:
    """List the places where a change reveals nothing about the tests: annotations, strings, class decorators."""
    nodes: list[ast.AST | None] = []
    for node in ast.walk(ast.parse(source)):
        nodes.append(getattr(node, "annotation", None))
        nodes.append(getattr(node, "returns", None))
        nodes += node.decorator_list if isinstance(node, ast.ClassDef) else []
        nodes.append(node if isinstance(node, ast.JoinedStr) or is_string(node) else None)
    return [((n.lineno, n.col_offset), (n.end_lineno, n.end_col_offset)) for n in nodes if n is not None]


def is_string(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str | bytes)


def mutants_of(module: str) -> Iterator[Mutant]:
    """List all mutants of a module."""
    source = (ROOT / module).read_text(encoding="utf-8")
    tree, silent, lines = get_ast(source), silent_spans(source), source.splitlines()
    for name in OPERATORS:
        operator = get_operator(name)()
        places = (start for node in ast_nodes(tree) for start, _ in operator.mutation_positions(node))
        for occurrence, start in enumerate(places):
            marker = lines[start[0] - 1][start[1] :].startswith("*,")  # of arguments by name; no multiplication
            if not marker and not any(first <= tuple(start) < last for first, last in silent):
                yield Mutant(module, name, occurrence, start[0])


def modules_of(parts: Sequence[str]) -> list[str]:
    """List the modules in files and folders."""
    paths = (
        path for part in parts for path in ([ROOT / part] if part.endswith(".py") else (ROOT / part).rglob("*.py"))
    )
    return sorted({str(path.relative_to(ROOT)) for path in paths})


@dataclass(frozen=True)
class Reach:
    """The tests that reach each line, and their times."""

    contexts: dict[str, dict[int, list[str]]]  # module -> line -> "test|run", "test|setup", "" at import
    seconds: dict[str, float]  # of each test

    def tests_of(self, mutant: Mutant) -> list[str]:
        """Return the tests that reach the mutant's statement, fastest first, up to a total of BUDGET_S."""
        lines = self.contexts.get(mutant.module, {})
        contexts = {c for line in statement_lines(mutant) for c in lines.get(line, ())}
        if "" in contexts:  # it runs at import: all that reach the module
            contexts = {c for reached in lines.values() for c in reached}
        tests = {context.rpartition("|")[0] for context in contexts} & self.seconds.keys()
        # A fixture that several tests share is seen by all tests of its file.
        files = {context.partition("::")[0] for context in contexts if context.endswith("|setup")}
        tests |= {test for test in self.seconds if test.partition("::")[0] in files}
        quick_first = sorted(tests, key=self.seconds.get)
        total = itertools.accumulate(self.seconds[test] for test in quick_first)
        return [test for test, until in zip(quick_first, total, strict=True) if until < BUDGET_S]


def statement_lines(mutant: Mutant) -> range:
    """Return the lines of a mutant's innermost statement; for a compound statement, only those before its body."""
    tree = ast.parse((ROOT / mutant.module).read_text(encoding="utf-8"))
    statements = [node for node in ast.walk(tree) if isinstance(node, ast.stmt)]
    around = [node for node in statements if node.lineno <= mutant.line <= node.end_lineno]
    inner = max(around, key=lambda node: node.lineno, default=None)
    if inner is None:  # a decorator
        return range(mutant.line, mutant.line + 1)
    last = inner.body[0].lineno - 1 if getattr(inner, "body", None) else inner.end_lineno
    return range(inner.lineno, max(last, mutant.line) + 1)


def measure_reach(copy: Path, modules: Sequence[str], jobs: int) -> Reach:
    """Run the tests of the unchanged code once under coverage, and return which lines they reach."""
    options = ["-n", str(jobs), "-m", MARKED, "-p", "no:cacheprovider", "--junitxml", "tests.xml"]
    options += ["--cov", "faze", "--cov-context", "test", "--cov-report="]
    environment = os.environ | {"PYTHONPATH": str(copy)}
    if subprocess.run([sys.executable, "-m", "pytest", *options], cwd=copy, env=environment).returncode:
        raise SystemExit("the tests of unchanged code fail")
    seconds = {
        f"{case.get('classname').replace('.', '/')}.py::{case.get('name')}": float(case.get("time"))
        for case in ElementTree.parse(copy / "tests.xml").iter("testcase")
    }
    data = coverage.CoverageData(str(copy / ".coverage"))
    data.read()
    return Reach({module: data.contexts_by_lineno(str(copy / module)) for module in modules}, seconds)


def run_tests(copy: Path, tests: Sequence[str], limit_s: float | None) -> tuple[str, float]:
    """Run tests in the copy, and return survived, killed (also at the time limit) or broken, and the seconds taken.

    The tests run in a fork of this process, which has already imported the modules in IMPORTED_ONCE.
    """
    began = time.monotonic()
    process = multiprocessing.get_context("fork").Process(target=_run_pytest, args=(copy, tests))
    process.start()
    process.join(limit_s)
    if process.exitcode is None:
        with contextlib.suppress(ProcessLookupError):  # it has just ended
            os.killpg(process.pid, signal.SIGKILL)
        process.join()
        return "killed", time.monotonic() - began
    # 1: a test failed; 2 and 4: the tests could not even be collected, as when the module fails at its import; below 0:
    # it was ended by a signal, as when memory runs out.
    killed = process.exitcode in (1, 2, 4) or process.exitcode < 0
    words = "survived" if process.exitcode == 0 else "killed" if killed else "broken"
    return words, time.monotonic() - began


def _run_pytest(copy: Path, tests: Sequence[str]) -> None:
    """Run tests in the copy, as the main function of the forked process."""
    os.setsid()
    os.chdir(copy)
    sys.path.insert(0, str(copy))
    os.environ["PYTHONPATH"] = str(copy)
    with open(os.devnull, "r+") as nowhere:
        for stream in range(3):
            os.dup2(nowhere.fileno(), stream)
    options = ["-x", "-q", "-p", "no:cacheprovider", "-m", MARKED]
    os._exit(pytest.main([*options, *tests]))


def copied(folder: Path) -> Path:
    """Copy the tracked files to a folder."""
    names = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    for name in filter(None, names.split("\0")):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / name, folder / name, follow_symlinks=False)
    return folder


def try_mutant(copies: queue.SimpleQueue, reach: Reach, mutant: Mutant) -> dict:
    """Apply a mutant to a private copy, run its tests, and restore the copy."""
    tests = reach.tests_of(mutant)
    limit_s = SLOWER * sum(reach.seconds[test] for test in tests) + 60
    copy = copies.get()
    path = copy / mutant.module
    source = path.read_text(encoding="utf-8")
    changed = mutate_code(source, get_operator(mutant.operator)(), mutant.occurrence)
    try:
        path.write_text(changed, encoding="utf-8")
        outcome, seconds = run_tests(copy, tests, limit_s) if tests else ("unreached", 0.0)
    finally:
        path.write_text(source, encoding="utf-8")
        copies.put(copy)
    pairs = zip(source.splitlines(), changed.splitlines(), strict=False)
    was, became = next((a.strip(), b.strip()) for a, b in pairs if a != b)
    return asdict(mutant) | {"outcome": outcome, "seconds": round(seconds, 1), "was": was, "became": became}


def report(results: Sequence[dict]) -> str:
    """Format the score and the list of survivors."""
    killed, survivors = (
        sum(r["outcome"] == "killed" for r in results),
        [r for r in results if r["outcome"] != "killed"],
    )
    lines = [f"{killed} of {len(results)} mutants killed: {killed / max(len(results), 1):.1%}", ""]
    for r in sorted(survivors, key=lambda r: (r["module"], r["line"])):
        lines += [f"- {r['module']}:{r['line']} ({r['outcome']}): `{r['was']}` became `{r['became']}`"]
    return "\n".join(lines) + "\n"


def chosen(args: argparse.Namespace) -> list[Mutant]:
    """Return the mutants to try: all of --only, or those of WHOLE and a sample of SAMPLED."""
    draw = random.Random(args.seed)
    modules = [module for part in args.only or WHOLE for module in modules_of([part])]
    whole = [mutant for module in modules for mutant in mutants_of(module)]
    if args.only:
        return draw.sample(whole, min(args.random, len(whole)))
    left = [m for m in modules_of(SAMPLED) if m not in modules_of(WHOLE)]
    rest = [mutant for module in left for mutant in mutants_of(module)]
    return whole + draw.sample(rest, min(args.random, len(rest)))


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("results/mutants"))
    parser.add_argument("--random", type=int, default=300, help="mutants drawn of the sampled rooms, or of --only")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="mutants tried at once")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--only", nargs="*", help="modules or folders of which --random mutants are drawn, and no others"
    )
    return parser.parse_args()


def main() -> None:
    """Try the mutants that were not killed before, and list the survivors."""
    args = parse()
    os.environ |= {"OMP_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "1"}  # before the imports read them
    os.environ.setdefault("FAZE_GOLDEN_DIR", str(ROOT.parent / "shared" / "golden"))
    for name in IMPORTED_ONCE:
        importlib.import_module(name)
    args.out.mkdir(parents=True, exist_ok=True)
    log, wanted = args.out / "mutants.jsonl", chosen(args)
    done = {} if not log.exists() else {key_of(r): r for r in map(json.loads, log.read_text().splitlines())}
    todo = [m for m in wanted if done.get(key_of(asdict(m)), {}).get("outcome") != "killed"]
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(args.jobs) as pool, log.open("a") as file:
        copies = queue.SimpleQueue()
        places = [copied(Path(folder) / str(number)) for number in range(args.jobs)]
        reach = measure_reach(places[0], sorted({mutant.module for mutant in todo}), args.jobs)
        for place in places:
            copies.put(place)
        tries = [pool.submit(try_mutant, copies, reach, mutant) for mutant in todo]
        for number, ended in enumerate(as_completed(tries), len(wanted) - len(todo) + 1):
            if ended.exception():
                pool.shutdown(wait=False, cancel_futures=True)
            result = ended.result()
            done[key_of(result)] = result
            file.write(json.dumps(result) + "\n")
            file.flush()
            print(
                f"{number}/{len(wanted)} {result['outcome']:9} {result['module']}:{result['line']} {result['became']}"
            )
    text = report([done[key_of(asdict(mutant))] for mutant in wanted])
    (args.out / "survivors.md").write_text(text)
    print(text)


def key_of(record: dict) -> tuple:
    """Return a mutant's identity, which is valid as long as its module does not change."""
    return record["module"], record["operator"], record["occurrence"], record["line"]


if __name__ == "__main__":
    main()
