"""Generate the pages on commands and modules from the code at every build.

A line `<!-- generated: NAME ... -->` on a page is replaced by the Markdown that the function of that name returns.
"""

import contextlib
import importlib
import io
import os
import pkgutil
import re

from sphinx.application import Sphinx

from faze.__main__ import COMMANDS, STAGES, parse

MARK = re.compile(r"^<!-- generated: (.+) -->$", re.MULTILINE)


def commands() -> str:
    """Return the help text of every command."""
    os.environ["COLUMNS"] = "100"
    return "\n\n".join(
        f"## {name}\n\n```text\n{help_of(name, module)}\n```" for name, module in sorted((STAGES | COMMANDS).items())
    )


def help_of(command: str, module: str) -> str:
    """Return what `faze COMMAND --help` prints."""
    with contextlib.redirect_stdout(io.StringIO()) as printed, contextlib.suppress(SystemExit):
        parse(importlib.import_module(module).main, f"faze {command}", ["--help"])
    return printed.getvalue().strip()


def modules(package_name: str) -> str:
    """Return the documentation of a package's modules, or of one module, sorted by name."""
    package = importlib.import_module(f"faze.{package_name}")
    inside = pkgutil.walk_packages(getattr(package, "__path__", []), f"{package.__name__}.")
    names = [package.__name__, *(module.name for module in inside if "._" not in module.name)]  # no C libraries
    return "\n\n".join(f"## {name}\n\n{_module(name)}" for name in names)


def _module(name: str) -> str:
    try:
        importlib.import_module(name)
    except ModuleNotFoundError as missing:
        return f"Not shown here: it needs `{missing.name}`."
    return f"```{{eval-rst}}\n.. automodule:: {name}\n```"


GENERATORS = {"commands": commands, "modules": modules}


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
