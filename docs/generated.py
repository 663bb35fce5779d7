"""Generate the pages on parameters, commands and modules from the code at every build.

A line `<!-- generated: NAME ... -->` on a page is replaced by the Markdown that the function of that name returns.
"""

import contextlib
import importlib
import io
import os
import pkgutil
import re
import sys
from pathlib import Path

import yaml
from faze.config.editor_schema import config_schema
from sphinx.application import Sphinx

import faze
import faze.__main__

ROOT = Path(__file__).resolve().parents[1]
MARK = re.compile(r"^<!-- generated: (.+) -->$", re.MULTILINE)
RULED = re.compile(r"[|_*\\]")


def config() -> str:
    """Return a table of each section of config.yaml: key, allowed values, default, meaning."""
    text = (ROOT / "config/config.yaml").read_text(encoding="utf-8")
    defaults, schema, above = yaml.safe_load(text), config_schema(text)["properties"], comments_above(text)
    named = [name for name in schema if name not in ("name", "workload", "tiers")]  # explained above the tables
    sections = {name: (schema[name], defaults[name]) for name in named}
    first = next(iter(defaults["tiers"]))
    sections[f"tiers.{first}"] = schema["tiers"]["additionalProperties"], defaults["tiers"][first]
    return "\n\n".join(_section(name, *section, above) for name, section in sections.items())


def comments_above(text: str) -> dict[str, list[str]]:
    """Return the comment lines above each key, by section and key."""
    found: dict[str, list[str]] = {}
    notes: list[str] = []
    path: list[str] = []
    for line in text.splitlines():
        indent, said = len(line) - len(line.lstrip()), line.strip()
        if said.startswith("# "):
            notes.append(said[2:])
            continue
        if key := re.match(r"(\w+):", said):
            path[indent // 2 :] = [key[1]]
            found[".".join(path)] = notes
        notes = []
    return found


def _section(name: str, schema: dict, defaults: dict, above: dict[str, list[str]]) -> str:
    header = ["", "| key | values | default | meaning |", "|---|---|---|---|"]
    lines = [f"## {name}", "", _cell(schema.get("description", "")), *header]
    for key, default in defaults.items():
        notes, value = above.get(f"{name}.{key}", []), schema["properties"][key]
        if notes and notes[0].startswith("Expert: "):
            lines += ["", _cell(notes[0]), *header]
            notes = notes[1:]
        note = value.get("description", "")
        if note.split(" | ") == value.get("enum"):
            note = ""  # it repeats the values
        meaning = ". ".join(part.rstrip(".") for part in (" ".join(notes), note) if part)
        lines.append(f"| `{key}` | {_kind(value)} | `{_as_yaml(default)}` | {_cell(meaning)} |")
    return "\n".join(lines)


def _kind(schema: dict) -> str:
    if "anyOf" in schema:
        return " or ".join(_kind(kind) for kind in schema["anyOf"])
    if "enum" in schema:
        return ", ".join(f"`{value}`" for value in schema["enum"])
    kinds = schema["type"] if isinstance(schema["type"], list) else [schema["type"]]
    if "array" in kinds:
        return f"list of {_kind(schema['items'])}"
    bounds = [f"{word} {schema[key]}" for key, word in (("minimum", "≥"), ("maximum", "≤")) if key in schema]
    return " ".join([" or ".join(kinds), *bounds])


def _as_yaml(value: object) -> str:
    return yaml.safe_dump(value, default_flow_style=True, width=1000).removesuffix("...\n").strip()


def _cell(text: str) -> str:
    return RULED.sub(lambda found: f"\\{found[0]}", text).replace("<", "&lt;")


def commands() -> str:
    """Return the help text of every command."""
    return "\n\n".join(
        f"## {name}\n\n```text\n{help_of(name, module)}\n```" for name, module in sorted(command_modules().items())
    )


def command_modules() -> dict[str, str]:
    """Return the module of each command."""
    return faze.__main__.STAGES | faze.__main__.COMMANDS


def help_of(command: str, module: str) -> str:
    """Return what `faze COMMAND --help` prints."""
    before, sys.argv = sys.argv, [f"faze {command}", "--help"]
    os.environ["COLUMNS"] = "100"
    try:
        with contextlib.redirect_stdout(io.StringIO()) as printed, contextlib.suppress(SystemExit):
            importlib.import_module(module).main()
    finally:
        sys.argv = before
    return printed.getvalue().strip()


def modules(package_name: str) -> str:
    """Return the documentation of a package's modules, sorted by name."""
    package = importlib.import_module(f"faze.{package_name}")
    inside = pkgutil.walk_packages(package.__path__, f"{package.__name__}.")
    names = [package.__name__, *(module.name for module in inside if "._" not in module.name)]  # no C libraries
    return "\n\n".join(f"## {name}\n\n{_module(name)}" for name in names)


def _module(name: str) -> str:
    try:
        importlib.import_module(name)
    except ModuleNotFoundError as missing:
        return f"Not shown here: it needs `{missing.name}`."
    return f"```{{eval-rst}}\n.. automodule:: {name}\n```"


GENERATORS = {"config": config, "commands": commands, "modules": modules}


def fill(app: Sphinx, page: str, source: list[str]) -> None:
    """Replace each mark by its generated text."""

    def text(mark: re.Match) -> str:
        name, *words = mark[1].split()
        return GENERATORS[name](*words)

    source[0] = MARK.sub(text, source[0])


def as_rst(app: Sphinx, kind: str, name: str, thing: object, options: object, lines: list[str]) -> None:
    """Convert a docstring of plain sentences and indented tables to reStructuredText without unintended markup."""
    shown: list[str] = []
    section = re.compile(r"(Args|Returns|Yields|Raises|Attributes|Example|Examples|Note|Notes):$")
    in_section = in_table = False
    for line in lines:
        indented = line.startswith((" ", "\t"))
        if section.match(line):
            in_section = True
        elif line and not indented:
            in_section = False
        if indented and not in_section and not in_table:
            while shown and not shown[-1]:
                shown.pop()
            shown += ["", "::", ""]
            in_table = True
        if in_table and line and not indented:
            shown.append("")
            in_table = False
        shown.append(line if in_table else _escaped(line))
    first = (
        [""] if kind in ("attribute", "data", "property") else []
    )  # or napoleon takes what precedes a colon for a type
    lines[:] = first + shown


def _escaped(line: str) -> str:
    parts = re.split(r"(`[^`]*`)", line)
    return "".join(part if part.startswith("`") else re.sub(r"([*|\\]|_\b)", r"\\\1", part) for part in parts)


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the extension's callbacks."""
    app.connect("source-read", fill)
    app.connect("autodoc-process-docstring", as_rst, priority=100)  # before napoleon
    return {"parallel_read_safe": True}
