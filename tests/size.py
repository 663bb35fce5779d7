"""Fail if a part of the project has more lines than its limit under [tool.faze.limits] in pyproject.toml.

A part is a list of folders and files; a folder after a minus is left out. Of docs, pages are counted; elsewhere, code.
"""

import subprocess
import sys
import tomllib
from pathlib import Path

CODE = (".py", ".c", ".css", ".js", ".html", ".j2", ".smk")


def lines(part: str, files: list[Path]) -> int:
    """Count the lines of a part: newlines of its files in git."""
    left_out = tuple(name[1:] for name in part.split() if name.startswith("-"))
    suffixes = (".md",) if part == "docs" else CODE
    total = 0
    for file in files:
        owners = {str(parent) for parent in (file, *file.parents)}
        counted = str(file) in part.split() or file.suffix in suffixes
        if counted and owners & set(part.split()) and not owners & set(left_out):
            total += file.read_bytes().count(b"\n")
    return total


tracked = [Path(name) for name in subprocess.check_output(["git", "ls-files"], text=True).splitlines()]
tracked = [file for file in tracked if file.is_file()]
limits = tomllib.loads(Path("pyproject.toml").read_text(encoding="utf-8"))["tool"]["faze"]["limits"]
found = {part: len(tracked) if part == "files" else lines(part, tracked) for part in limits}
over = [f"{part}: {found[part]} lines, limit {limits[part]}" for part in limits if found[part] > limits[part]]
print("\n".join(over or [f"{part}: {count}" for part, count in found.items() if "-v" in sys.argv]))
sys.exit(bool(over))
