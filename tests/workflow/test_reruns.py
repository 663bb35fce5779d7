"""docs/reruns.md, row by row: each change, and the jobs that it re-runs.

Jobs and their files come from one dry run of Snakemake. The reasons to re-run are computed by the functions that make
the jobs' params, so that a row needs no start of Snakemake; only rows with other jobs need one each. `test_ablation.py`
asks Snakemake itself about some of them.
"""

import re
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

import pytest
import yaml
from checkout import ROOT, Answer, Checkout

from faze.base import code_hash
from faze.config.parameters import PER_DATASET, STAGES
from faze.config.stage_config import resolve, to_lines
from faze.config.yaml_files import merge, read_yaml

pytestmark = pytest.mark.workflow

PAGE = (ROOT / "docs" / "reruns.md").read_text(encoding="utf-8")
SMOKE = "config/smoke.yaml"
WORDS = {
    "runs": ("train", "encode", "meta_train", "adapt", "walk", "redirect"),
    "page": ("evaluate", "report", "track"),
    "data": ("preprocess", "inspect"),
    "evaluators": ("estimator", "oracle"),
}


def rows(heading: str) -> list[tuple[str, str]]:
    """Return the change and the jobs in each row of a section's table."""
    section = re.search(rf"^## {heading}$(.*?)(?=^## |\Z)", PAGE, re.MULTILINE | re.DOTALL)
    return re.findall(r"^\| `?([^|`\n]+)`?(?: rewritten)? \| ([^|\n]+) \|$", section[1], re.MULTILINE)[1:]


VALUES, MORE, FILES = rows("A value"), rows("Additions"), rows("A file")
CODE = [row for row in rows("Code") if row[0].startswith("faze/")]


class Job(NamedTuple):
    """A job of the ablation, as a dry run prints it."""

    rule: str
    wildcards: frozenset[tuple[str, str]]
    inputs: frozenset[str]
    outputs: frozenset[str]

    def is_of(self, word: str) -> bool:
        """Return whether this job belongs to a tier or a data set, or to `seed N`."""
        return any(word in (value, f"{key} {value}") for key, value in self.wildcards)


def jobs_of(answer: Answer) -> list[Job]:
    found = []
    for rule in sorted(set(re.findall(r"^(?:local)?rule (\w+):$", answer.text, re.MULTILINE))):
        for block in answer.blocks(rule):
            told = dict(
                re.findall(r"^    (input|output|wildcards): (.*)$", block.replace(" (update)", ""), re.MULTILINE)
            )
            inputs, outputs, wildcards = (
                filter(None, told.get(k, "").split(", ")) for k in ("input", "output", "wildcards")
            )
            pairs = frozenset(tuple(pair.split("=", 1)) for pair in wildcards)
            found.append(Job(rule, pairs, frozenset(inputs), frozenset(outputs)))
    return found


def run_again(jobs: list[Job], first: Iterable[Job]) -> set[Job]:
    """Return the jobs that have a reason to re-run and all jobs that depend on them, without targets."""
    found: set[Job] = set()
    waiting = list(first)
    while waiting:
        job = waiting.pop()
        if job not in found:
            found.add(job)
            waiting += (other for other in jobs if other.inputs & job.outputs)
    return {job for job in found if job.rule != "ablation"}


def wanted(jobs: list[Job], sentence: str) -> set[Job]:
    """Return the jobs that a row names."""
    if sentence == "nothing":
        return set()
    real = {job for job in jobs if job.rule != "ablation"}
    if sentence == "everything":
        return real
    found = set()
    for part in sentence.split(", "):
        name, _, whose = part.partition(" of ")
        named = {job for job in real if job.rule in WORDS.get(name, (name,)) and (not whose or job.is_of(whose))}
        assert named, f"no job is named by {part!r}"
        found |= named
    return found


@pytest.fixture(scope="module")
def jobs(fresh: Checkout) -> list[Job]:
    return jobs_of(fresh.dry_run("ablation"))


def told_apart(found: set[Job], expected: set[Job]) -> str:
    def names(some: set[Job]) -> list[str]:
        return sorted(f"{job.rule} {sorted(job.wildcards)}" for job in some)

    return f"not in the table: {names(found - expected)}; only there: {names(expected - found)}"


def nested(change: str) -> dict:
    """Convert `a.b: 1` to {"a": {"b": 1}}."""
    key, value = change.split(": ", 1)
    tree = yaml.safe_load(value)
    for name in reversed(key.split(".")):
        tree = {name: tree}
    return tree


def own_config(job: Job, config: dict) -> list[str]:
    """Return the values that a job depends on, as in its params."""
    of = dict(job.wildcards)
    if job.rule not in STAGES:
        return []
    seed = int(of["seed"]) if "seed" in of else None
    dataset = of.get("dataset") if job.rule in PER_DATASET else None
    return to_lines(resolve(config, job.rule, of.get("tier"), seed, dataset))


DEFAULTS = [ROOT / "config/config.yaml", ROOT / SMOKE]


@pytest.mark.parametrize(("change", "sentence"), VALUES, ids=[change for change, _ in VALUES])
def test_value(jobs: list[Job], change: str, sentence: str) -> None:
    before = read_yaml(*DEFAULTS)
    after = merge(before, nested(change))
    assert after != before
    found = run_again(jobs, (job for job in jobs if own_config(job, after) != own_config(job, before)))
    expected = wanted(jobs, sentence)
    assert found == expected, told_apart(found, expected)


@pytest.mark.parametrize(("change", "sentence"), MORE, ids=[change for change, _ in MORE])
def test_one_more(fresh: Checkout, jobs: list[Job], change: str, sentence: str) -> None:
    before = read_yaml(*DEFAULTS)
    after = merge(before, nested(change))
    text = (ROOT / SMOKE).read_text(encoding="utf-8")
    with fresh.edited(SMOKE, text, yaml.safe_dump(merge(read_yaml(ROOT / SMOKE), nested(change)), sort_keys=False)):
        more = jobs_of(fresh.dry_run("ablation"))
    first = [job for job in more if job not in jobs or own_config(job, after) != own_config(job, before)]
    found, expected = run_again(more, first), wanted(more, sentence)
    assert found == expected, told_apart(found, expected)


@pytest.mark.parametrize(("path", "sentence"), CODE, ids=[path for path, _ in CODE])
def test_code(jobs: list[Job], path: str, sentence: str) -> None:
    assert (ROOT / path).is_file()

    def runs(job: Job) -> bool:
        if job.rule == "ablation":
            return False
        return any(source.startswith(f"{path}@") for source in code_hash.sources(f"faze.stages.{job.rule}"))

    found, expected = run_again(jobs, filter(runs, jobs)), wanted(jobs, sentence)
    assert found == expected, told_apart(found, expected)


@pytest.mark.parametrize(("path", "sentence"), FILES, ids=[path for path, _ in FILES])
def test_file(jobs: list[Job], path: str, sentence: str) -> None:
    found, expected = run_again(jobs, (job for job in jobs if path in job.inputs)), wanted(jobs, sentence)
    assert found == expected, told_apart(found, expected)


def test_comment_anywhere(tmp_path: Path) -> None:
    assert "| a comment, a docstring or layout in any `.py` file | nothing |" in PAGE
    for number, path in enumerate(sorted((ROOT / "faze").rglob("*.py"))):
        copy = tmp_path / f"{number}.py"
        shutil.copy(path, copy)
        with copy.open("a", encoding="utf-8") as file:
            file.write("\n\n# a thought\n")
        assert code_hash.module_hash(copy) == code_hash.module_hash(path), path


def test_every_neutral_module_runs_nothing_again(jobs: list[Job]) -> None:
    named = {source.split("@")[0] for job in jobs for source in _sources(job)}
    for module in code_hash.NEUTRAL:
        assert f"{module.replace('.', '/')}.py" not in named
    assert not any(path.startswith("faze/config/") for path in named)


def _sources(job: Job) -> list[str]:
    is_stage = (ROOT / "faze" / "stages" / f"{job.rule}.py").exists()
    return code_hash.sources(f"faze.stages.{job.rule}") if is_stage else []


def test_the_page_has_rows_of_each_kind() -> None:
    """Without this test, a table that the expression above does not match would pass."""
    assert (len(VALUES), len(MORE), len(CODE), len(FILES)) == (
        PAGE.count("\n| `", PAGE.index("## A value"), PAGE.index("## Additions")),
        PAGE.count("\n| `", PAGE.index("## Additions"), PAGE.index("## Code")),
        PAGE.count("\n| `faze/"),
        PAGE.count("\n| `results/"),
    )
    assert min(len(VALUES), len(CODE)) >= 15 and len(MORE) == 3 and len(FILES) >= 3
