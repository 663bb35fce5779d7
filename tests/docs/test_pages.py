"""The pages agree with the code: paths, reading order, the figure, and the table of decisions."""

import importlib
import re
import sys
from pathlib import Path

import pytest

from faze.config.parameters import Engine

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "docs"))

import architecture  # noqa: E402

PAGES = [*ROOT.glob("*.md"), *(page for page in ROOT.glob("docs/**/*.md") if "_build" not in page.parts)]
HISTORY = {ROOT / "docs/log.md", ROOT / "docs/ledger.md", ROOT / "CHANGELOG.md"}  # with the paths of that time
PATH = re.compile(r"`((?:faze|tests|workflow|config|benchmarks|envs|profiles|docs)/[\w./-]*)")
LINK = re.compile(r"\]\((?!https?:)([^)#\s]+)(?:#[^)]*)?\)")
MODULE = re.compile(r"`faze((?:\.[a-z_0-9]+)+)")


def name(page: Path) -> str:
    return str(page.relative_to(ROOT))


@pytest.mark.parametrize("page", [page for page in PAGES if page not in HISTORY], ids=name)
def test_paths_and_modules_exist(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert [path for path in PATH.findall(text) if not (ROOT / path).exists()] == []
    modules = [module[1:].split(".") for module in MODULE.findall(text)]
    assert [".".join(parts) for parts in modules if not is_module(parts)] == []


def is_module(parts: list[str]) -> bool:
    """Return whether the parts of a dotted name lead to a module, or to a name in one."""
    for count in (len(parts), len(parts) - 1):
        path = ROOT / "faze" / "/".join(parts[:count])
        if count and (path.is_dir() or path.with_suffix(".py").is_file()):
            return True
    return False


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_links_lead_somewhere(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert [link for link in LINK.findall(text) if not (page.parent / link).exists()] == []


def test_every_switch_has_a_row_and_names_tests_that_exist() -> None:
    text = (ROOT / "docs/switches.md").read_text(encoding="utf-8")
    switches = set(Engine.model_fields)
    told = set(re.findall(r"\w+", " ".join(re.findall(r"^\| (`[^|]+) \|", text, re.MULTILINE))))
    assert switches - told == set()
    tests = {path.stem for path in (ROOT / "tests").rglob("test_*.py")}
    assert set(re.findall(r"\btest_\w+", text)) - tests == set()


def test_architecture_shows_the_rooms_and_arrows_of_the_code() -> None:
    picture = architecture.PICTURE.read_text(encoding="utf-8")
    rooms = re.findall(r'data-room="(\w+)"', picture)
    assert rooms == [room for layer in architecture.layers() for room in layer], "run: python docs/architecture.py"
    arrows = re.findall(r'data-from="(\w+)" data-to="(\w+)"', picture)
    assert sorted(arrows) == sorted(architecture.arrows(architecture.imports())), "run: python docs/architecture.py"


def test_every_room_has_its_page() -> None:
    rooms = {room for layer in architecture.layers() for room in layer}
    assert {page.stem for page in (ROOT / "docs/reference/api").glob("*.md")} == rooms | {"index"}


def test_reading_order_is_short_and_true() -> None:
    """Check the README's table of files, lines and subjects: at most ten files and 1,600 lines, starting at
    config.yaml."""
    section = (ROOT / "README.md").read_text(encoding="utf-8").split("## Reading the code")[1].split("\n## ")[0]
    rows = re.findall(r"^\| \[`?([\w./]+)`?\]\(([\w./]+)\) \| ([\d,]+) \|", section, re.MULTILINE)
    assert rows[0][1] == "config/config.yaml"
    assert len(rows) <= 10
    lines = {path: len((ROOT / path).read_text(encoding="utf-8").splitlines()) for _, path, _ in rows}
    assert sum(lines.values()) <= 1600
    said = {path: int(count.replace(",", "")) for _, path, count in rows}
    wrong = {path: (said[path], count) for path, count in lines.items() if abs(said[path] - count) > 0.1 * count + 3}
    assert wrong == {}, "said, counted"


def test_every_decision_has_status_and_date_and_is_in_the_table() -> None:
    folder = ROOT / "docs/decisions"
    table = (folder / "index.md").read_text(encoding="utf-8")
    for record in folder.glob("0*.md"):
        text = record.read_text(encoding="utf-8")
        assert text.startswith(f"# {int(record.name[:4])}. "), record.name
        date = re.search(r"^Date: (\d{4}-\d\d-\d\d)$", text, re.MULTILINE)
        assert "\nStatus: " in text and date, record.name
        assert f"]({record.name}) | {date[1]} |" in table, record.name


def test_log_has_every_entry_in_its_index() -> None:
    text = (ROOT / "docs/log.md").read_text(encoding="utf-8")
    entries = re.findall(r"^## (\d{4}-\d\d-\d\d) ", text, re.MULTILINE)
    index = re.findall(r"^\| (\d{4}-\d\d-\d\d) \| \[", text, re.MULTILINE)
    assert entries == index


def test_numbers_on_pages_are_those_of_the_measured_tables() -> None:
    measured = importlib.import_module("measured")
    pages = {page.name: page.read_text(encoding="utf-8") for page in measured.PAGES}
    assert [page.name for page in measured.PAGES if measured.rendered(page) != pages[page.name]] == []
