"""Generate the pages on commands and on Python from the code at every build.

A line `<!-- generated: NAME WORDS -->` on a page is replaced by the Markdown that the function NAME returns.
"""

import contextlib
import importlib
import io
import os
import re

from sphinx.application import Sphinx

from faze.__main__ import COMMANDS, STAGES, parse

MARK = re.compile(r"^<!-- generated: (.+) -->$", re.MULTILINE)
SECTION = re.compile(r"(Args|Returns|Yields|Raises|Attributes):$")


def commands() -> str:
    """Return the help text of every command."""
    os.environ["COLUMNS"] = "100"
    texts = {name: help_of(name, module) for name, module in sorted((STAGES | COMMANDS).items())}
    return "\n\n".join(f"## {name}\n\n```text\n{text}\n```" for name, text in texts.items())


def help_of(command: str, module: str) -> str:
    """Return what `faze COMMAND --help` prints."""
    with contextlib.redirect_stdout(io.StringIO()) as printed, contextlib.suppress(SystemExit):
        parse(importlib.import_module(module).main, f"faze {command}", ["--help"])
    return printed.getvalue().strip()


def modules(*names: str) -> str:
    """Return the documentation of modules."""
    return "\n\n".join(f"## faze.{name}\n\n```{{eval-rst}}\n.. automodule:: faze.{name}\n```" for name in names)


def fill(app: Sphinx, page: str, source: list[str]) -> None:
    """Replace each mark with its generated text."""

    def text(mark: re.Match) -> str:
        name, *words = mark[1].split()
        return {"commands": commands, "modules": modules}[name](*words)

    source[0] = MARK.sub(text, source[0])


def as_rst(app: Sphinx, kind: str, name: str, thing: object, options: object, lines: list[str]) -> None:
    """Convert a docstring to reStructuredText, with indented text outside sections as literal blocks."""
    # Without an empty first line, napoleon interprets text before a colon as a type.
    shown: list[str] = [""] if kind in ("attribute", "property") else []
    in_section = in_block = False
    for line in lines:
        indented = line.startswith(" ")
        if line and not indented:
            in_section, in_block = bool(SECTION.match(line)), False
        if indented and not in_section and not in_block:
            shown += ["", "::", ""]
            in_block = True
        shown.append(line if in_block else escaped(line))
    lines[:] = shown


def escaped(line: str) -> str:
    """Escape characters that reStructuredText would interpret as markup, except between backquotes."""
    parts = re.split(r"(`[^`]*`)", line)
    return "".join(part if part.startswith("`") else re.sub(r"([*|\\]|_\b)", r"\\\1", part) for part in parts)


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the extension's callbacks."""
    app.connect("source-read", fill)
    app.connect("autodoc-process-docstring", as_rst, priority=100)  # before napoleon
    return {"parallel_read_safe": True}
