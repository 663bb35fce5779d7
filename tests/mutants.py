"""How many small faults the tests notice: mutation testing by cosmic-ray, whose operators make the mutants.

    .venv/bin/pip install cosmic-ray==8.7.0
    .venv/bin/python tests/mutants.py --out results/mutants

It tries every mutant of the modules in WHOLE and as many random ones of the rooms in SAMPLED, each in a copy of the
tracked files: the working tree stays as it is. A mutant is killed if a test of its module's room fails; those tests
alone are run, since `tests/` mirrors the rooms, and the first failure ends them. Strings, docstrings and annotations
are left alone. What is done stands in OUT/mutants.jsonl and is not done again; OUT/survivors.md lists, with file and
line, what no test noticed. It takes hours, so it is no part of `make test`.
"""

import argparse
import ast
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from cosmic_ray.ast import ast_nodes, get_ast
from cosmic_ray.mutating import mutate_code
from cosmic_ray.plugins import get_operator

ROOT = Path(__file__).resolve().parents[1]
WHOLE = ("faze/model/losses.py", "faze/model/objective.py", "faze/evaluation/statistics.py", "faze/data/normalization")
SAMPLED = ("faze/engine", "faze/fewshot", "faze/evaluation", "faze/training")
# The tests of a part of a room where the whole room's take minutes.
NARROWER = {
    "faze/data/normalization": (
        "test_normalization",
        "test_lookup",
        "test_jpeg",
        "test_labels",
        "test_preprocess_golden",
    ),
    "faze/evaluation/statistics.py": ("test_statistics", "test_design", "test_learner_differences", "test_evaluate"),
}
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
SLOWER = 4  # times as long as the unchanged code's tests, and the mutant hangs: killed
Place = tuple[int, int]  # line from 1, column from 0


@dataclass(frozen=True)
class Mutant:
    """One change of one place."""

    module: str
    operator: str
    occurrence: int
    line: int


def silent_spans(source: str) -> list[tuple[Place, Place]]:
    """Where a change says nothing about the tests: annotations and strings."""
    nodes: list[ast.AST | None] = []
    for node in ast.walk(ast.parse(source)):
        nodes.append(getattr(node, "annotation", None))
        nodes.append(getattr(node, "returns", None))
        nodes.append(node if isinstance(node, ast.JoinedStr) or is_string(node) else None)
    return [((n.lineno, n.col_offset), (n.end_lineno, n.end_col_offset)) for n in nodes if n is not None]


def is_string(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str | bytes)


def mutants_of(module: str) -> Iterator[Mutant]:
    """All mutants of a module."""
    source = (ROOT / module).read_text(encoding="utf-8")
    tree, silent = get_ast(source), silent_spans(source)
    for name in OPERATORS:
        operator = get_operator(name)()
        places = (start for node in ast_nodes(tree) for start, _ in operator.mutation_positions(node))
        for occurrence, start in enumerate(places):
            if not any(first <= tuple(start) < last for first, last in silent):
                yield Mutant(module, name, occurrence, start[0])


def modules_of(parts: Sequence[str]) -> list[str]:
    """The modules in files and folders."""
    paths = (
        path for part in parts for path in ([ROOT / part] if part.endswith(".py") else (ROOT / part).rglob("*.py"))
    )
    return sorted({str(path.relative_to(ROOT)) for path in paths})


def tests_of(module: str) -> list[str]:
    """The tests that look at a module."""
    room = module.split("/")[1]
    for part, names in NARROWER.items():
        if module.startswith(part):
            return [test for name in names if (ROOT / (test := f"tests/{room}/{name}.py")).exists()]
    return [f"tests/{room}"]


def run_tests(copy: Path, tests: Sequence[str], limit_s: float | None) -> tuple[str, float]:
    """Run tests in the copy: survived, killed (also at the limit) or broken, and the seconds."""
    golden = os.environ.get("FAZE_GOLDEN_DIR", str(ROOT.parent / "shared" / "golden"))
    environment = {
        "PYTHONPATH": str(copy),
        "FAZE_GOLDEN_DIR": golden,
        "OMP_NUM_THREADS": "1",
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    options = ["-x", "-q", "-p", "no:cacheprovider", "-m", "not workflow and not compiled"]
    began = time.monotonic()
    streams = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "start_new_session": True}
    command = [sys.executable, "-m", "pytest", *options, *tests]
    process = subprocess.Popen(command, cwd=copy, env=os.environ | environment, **streams)
    try:
        code = process.wait(limit_s)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, 9)
        process.wait()
        return "killed", time.monotonic() - began
    # 1: a test failed; 2: the tests could not even be collected, as when the module fails at its import.
    return {0: "survived", 1: "killed", 2: "killed"}.get(code, "broken"), time.monotonic() - began


def try_mutant(copy: Path, mutant: Mutant, limit_s: float) -> dict:
    """Change, test, change back."""
    path = copy / mutant.module
    source = path.read_text(encoding="utf-8")
    changed = mutate_code(source, get_operator(mutant.operator)(), mutant.occurrence)
    path.write_text(changed, encoding="utf-8")
    try:
        outcome, seconds = run_tests(copy, tests_of(mutant.module), limit_s)
    finally:
        path.write_text(source, encoding="utf-8")
    pairs = zip(source.splitlines(), changed.splitlines(), strict=False)
    was, became = next((a.strip(), b.strip()) for a, b in pairs if a != b)
    return asdict(mutant) | {"outcome": outcome, "seconds": round(seconds, 1), "was": was, "became": became}


def report(results: Sequence[dict]) -> str:
    """Score and survivors."""
    killed, survivors = (
        sum(r["outcome"] == "killed" for r in results),
        [r for r in results if r["outcome"] != "killed"],
    )
    lines = [f"{killed} of {len(results)} mutants killed: {killed / max(len(results), 1):.1%}", ""]
    for r in sorted(survivors, key=lambda r: (r["module"], r["line"])):
        lines += [f"- {r['module']}:{r['line']} ({r['outcome']}): `{r['was']}` became `{r['became']}`"]
    return "\n".join(lines) + "\n"


def chosen(args: argparse.Namespace) -> list[Mutant]:
    """The mutants to try: all of --only, or those of WHOLE and a sample of SAMPLED."""
    draw = random.Random(args.seed)
    whole = [mutant for module in modules_of(args.only or WHOLE) for mutant in mutants_of(module)]
    if args.only:
        return draw.sample(whole, min(args.random, len(whole)))
    left = [m for m in modules_of(SAMPLED) if m not in modules_of(WHOLE)]
    rest = [mutant for module in left for mutant in mutants_of(module)]
    return whole + draw.sample(rest, min(args.random, len(rest)))


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("results/mutants"))
    parser.add_argument("--random", type=int, default=300, help="mutants drawn of the sampled rooms, or of --only")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--only", nargs="*", help="modules or folders of which --random mutants are drawn, and no others"
    )
    return parser.parse_args()


def main() -> None:
    """Try what has not been tried, and list what survived."""
    args = parse()
    args.out.mkdir(parents=True, exist_ok=True)
    log, wanted = args.out / "mutants.jsonl", chosen(args)
    done = {} if not log.exists() else {key_of(r): r for r in map(json.loads, log.read_text().splitlines())}
    limits: dict[tuple[str, ...], float] = {}
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder)
        for name in subprocess.run(
            ["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True
        ).stdout.split("\n"):
            if name:
                (copy / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(ROOT / name, copy / name, follow_symlinks=False)
        for number, mutant in enumerate(wanted, 1):
            if key_of(asdict(mutant)) in done:
                continue
            tests = tuple(tests_of(mutant.module))
            if tests not in limits:
                outcome, seconds = run_tests(copy, tests, None)
                if outcome != "survived":
                    raise SystemExit(f"the tests of unchanged code fail: {' '.join(tests)}")
                limits[tests] = SLOWER * seconds + 30
            result = try_mutant(copy, mutant, limits[tests])
            done[key_of(result)] = result
            with log.open("a") as file:
                file.write(json.dumps(result) + "\n")
            print(
                f"{number}/{len(wanted)} {result['outcome']:9} {mutant.module}:{mutant.line} {result['became']}",
                flush=True,
            )
    text = report([done[key_of(asdict(mutant))] for mutant in wanted])
    (args.out / "survivors.md").write_text(text)
    print(text)


def key_of(record: dict) -> tuple:
    """What tells a mutant from the others, as long as its module stays."""
    return record["module"], record["operator"], record["occurrence"], record["line"]


if __name__ == "__main__":
    main()
