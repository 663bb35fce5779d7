"""List sentences that break the rules of plain English in CONTRIBUTING.md: `python tests/english.py [PATH ...]`.

A rule is a regular expression. Quoted words are matched too, so this file and CONTRIBUTING.md are left out.
"""

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
KINDS = (".py", ".md", ".smk", ".yaml", ".j2", ".js", ".c", ".sh", "Snakefile", "Makefile")
LEFT_OUT = ("tests/english.py", "CONTRIBUTING.md", "docs/_build/")
BEGIN = r"(?:^\s*(?:#+|//|/?\*+|\"{3}|[-|*])?\s*|[.:;]\s+|\"{3})"  # of a sentence, of a comment or of a table's cell
CODE = re.compile(r"`[^`]*`")  # quoted, so it is not a sentence of the page
RULES = {
    "begin with a standard verb: return, compute, describe": r"\"{3}(?:Give|Say|Tell|Name|Listen)\b(?![.:])",
    "name the noun": rf"{BEGIN}(?:Who|Whom|Of (?:which|these|those|each|several|all|a|the))\b(?!.*\?)",
    "again, re-run": r"\banew\b",
    "say, report, show": r"\b(?:tells?|told) (?:of|that|by|what|who|how|whether)\b",
    "is stored in, is": r"\b(?:lie|lies|lay|stand|stands|stood) (?:in|under|beside|above|below|there|at)\b",
    "reuse": r"\b(?:taken?|takes|took) over\b",
    "exclusive, shared": r"\bwhence\b|\bnobody's\b|\bis another affair\b|\bis dear\b|\bas faze wrote it\b",
    "tier": r"\brungs?\b|\bladder\b",
    "cached": r"\bmade once\b|\bsole writer\b",
}


def files(paths: list[str]) -> list[Path]:
    """Return the tracked text files below the paths; without git, as in a ZIP of the checkout, all text files."""
    listed = subprocess.run(["git", "ls-files", "--", *paths], cwd=ROOT, capture_output=True, text=True)
    if listed.returncode:
        listed = subprocess.run(["find", *paths, "-type", "f"], cwd=ROOT, capture_output=True, text=True, check=True)
    names = listed.stdout.splitlines()
    return [ROOT / name for name in names if name.endswith(KINDS) and not name.startswith(LEFT_OUT)]


def main(paths: list[str]) -> int:
    """Print every match, and return the number of matches."""
    found = 0
    for path in files(paths):
        for number, line in enumerate(path.read_text(encoding="utf-8", errors="replace").splitlines(), 1):
            for advice, pattern in RULES.items():
                if match := re.search(pattern, CODE.sub("", line)):
                    found += 1
                    print(f"{path.relative_to(ROOT)}:{number}: {match.group().strip()!r}: {advice}")
    return found


if __name__ == "__main__":
    sys.exit(1 if main(sys.argv[1:]) else 0)
