"""Fail if a part of the project has more lines than its limit under [tool.faze.limits] in pyproject.toml.

A part is a list of git's pathspecs. Of docs, pages are counted; elsewhere, code and the files that the part names.
"""

import subprocess
import sys
import tomllib
from pathlib import Path

CODE = (".py", ".c", ".css", ".js", ".html", ".j2", ".smk")


def git(*words: str) -> list[str]:
    return subprocess.check_output(["git", *words], text=True).splitlines()


def lines(part: str) -> int:
    """Count the lines of a part."""
    counted = (".md",) if part == "docs" else (*CODE, *part.split())
    rows = [row.rsplit(":", 1) for row in git("grep", "--count", "-I", "", "--", *part.split())]
    return sum(int(count) for name, count in rows if name.endswith(counted))


limits = tomllib.loads(Path("pyproject.toml").read_text(encoding="utf-8"))["tool"]["faze"]["limits"]
found = {part: len(git("ls-files")) if part == "files" else lines(part) for part in limits}
over = [part for part in limits if found[part] > limits[part]]
for part in limits if "-v" in sys.argv else over:
    print(f"{part}: {found[part]} lines, limit {limits[part]}")
sys.exit(bool(over))
