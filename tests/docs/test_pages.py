"""The pages agree with the code: paths, links, switches, stages, packages, and words of the glossary."""

import re
import tomllib
from pathlib import Path

import pytest

from faze.config.parameters import Engine

ROOT = Path(__file__).resolve().parents[2]
PAGES = [*ROOT.glob("*.md"), *(page for page in ROOT.glob("docs/**/*.md") if "_build" not in page.parts)]
PATH = re.compile(r"`((?:faze|tests|workflow|config|benchmarks|examples|envs|profiles|docs)/[\w./-]*)")
LINK = re.compile(r"\]\((?!https?:)([^)#\s]*)(?:#([^)]*))?\)")


def name(page: Path) -> str:
    return str(page.relative_to(ROOT))


def text_of(page: str) -> str:
    return (ROOT / page).read_text(encoding="utf-8")


@pytest.mark.parametrize("page", [page for page in PAGES if page.name != "CHANGELOG.md"], ids=name)
def test_paths_exist(page: Path) -> None:
    assert [path for path in PATH.findall(text_of(name(page))) if not (ROOT / path).exists()] == []


def anchors(page: Path) -> set[str]:
    """Return the anchors of a page's headings, as GitHub and MyST make them."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_links_lead_somewhere(page: Path) -> None:
    for target, anchor in LINK.findall(text_of(name(page))):
        path = page.parent / target if target else page
        assert path.exists(), target
        assert not anchor or anchor in anchors(path), f"{target}#{anchor}"


def test_every_page_is_in_the_table_of_contents() -> None:
    listed = re.findall(r"^([\w/-]+)$", text_of("docs/index.md"), re.MULTILINE)
    pages = {str(page.relative_to(ROOT / "docs").with_suffix("")) for page in PAGES if page.parent != ROOT}
    assert pages - {"index"} == set(listed)


def test_every_switch_has_a_row_and_names_tests_that_exist() -> None:
    text = text_of("docs/switches.md")
    told = set(re.findall(r"\w+", " ".join(re.findall(r"^\| (`[^|]+) \|", text, re.MULTILINE))))
    assert set(Engine.model_fields) - told == set()
    tests = {path.stem for path in (ROOT / "tests").rglob("test_*.py")}
    assert set(re.findall(r"\btest_\w+", text)) - tests == set()


def test_architecture_lists_every_stage_and_package() -> None:
    text = text_of("docs/explanation/architecture.md")
    stages = {path.stem.removesuffix("_workload") for path in (ROOT / "faze/stages").glob("[a-z]*.py")}
    assert set(re.findall(r"^\| (\w+) \|[^|]+\|[^|]+\|$", text, re.MULTILINE)) - {"stage"} == stages
    contracts = tomllib.loads(text_of("pyproject.toml"))["tool"]["importlinter"]["contracts"]
    layers = next(contract["layers"] for contract in contracts if contract["type"] == "layers")
    rows = re.findall(r"^\| [\w ]+ \| (`.+) \|$", text.split("## Packages")[1].split("\n## ")[0], re.MULTILINE)
    assert [set(re.findall(r"`(\w+)`", row)) for row in rows] == [set(re.findall(r"\w+", layer)) for layer in layers]


def test_readme_and_glossary_are_short() -> None:
    assert len(text_of("README.md").splitlines()) <= 70
    assert len(re.findall(r"^\| \*\*", text_of("docs/reference/glossary.md"), re.MULTILINE)) <= 25
