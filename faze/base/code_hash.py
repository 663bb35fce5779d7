"""Hashes of the code that produces an output, computed from syntax trees without comments, docstrings or layout."""

import ast
import functools
import hashlib
from pathlib import Path

import faze

ROOT = Path(faze.__file__).resolve().parents[1]
# Modules that cannot change an output, each with the reason. Hashes exclude them: see docs/decisions.md.
NEUTRAL = {
    "faze.__main__": "dispatches to the requested command",
    "faze.base.code_hash": "identifies code, and computes no result",
    "faze.base.errors": "reports errors, after which there is no output",
    "faze.base.machine": "measures the machine, and may delay a job",
    "faze.data.worker_processes": "distributes work; results do not depend on the number of processes",
    "faze.base.progress": "writes only to the terminal and to the job's log",
    "faze.weights": "contains only a path; the checkpoint itself is an input of the rule",
    "faze.config": "acts only through values, which are params of the rule; see decision 1",
}
DATA = (".c", ".css", ".j2", ".json", ".csv", ".yaml")  # suffixes of the data files in packages
_DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


def fingerprint(module: str) -> str:
    """Return a hash (12 hex digits) of a module's `sources`, which is stored in outputs."""
    return hashlib.sha256("\n".join(sources(module)).encode()).hexdigest()[:12]


def sources(module: str, root: Path = ROOT) -> list[str]:
    """Return `path@hash`, sorted, for each file of a module and of the modules below `root` that it imports.

    The packages that contain these modules are included, with their data files, since Python runs their __init__ first.
    For a user's class, `root` is the class's folder; faze's modules are then left out, as they are hashed separately.
    The workflow's rules use this list as params.
    """
    neutral = tuple(f"{name}." for name in NEUTRAL)
    found, waiting = set[str](), {module}
    while waiting:
        name = waiting.pop()
        if name in found or f"{name}.".startswith(neutral) or not (files := _files(name, root)):
            continue
        found.add(name)
        parts = name.split(".")
        waiting |= {".".join(parts[:end]) for end in range(1, len(parts))} | _read(files[0], name)[1]
    files = [(path, name) for name in found if root == ROOT or name[:5] != "faze." for path in _files(name, root)]
    return sorted(f"{path.relative_to(root)}@{_read(path, name)[0]}" for path, name in files)


def _files(name: str, root: Path) -> tuple[Path, ...]:
    """Return the files of a module (for a package, __init__.py and its data files), or none if it does not exist."""
    path = root.joinpath(*name.split("."))
    if (path / "__init__.py").exists():
        return (path / "__init__.py", *(data for data in path.iterdir() if data.suffix in DATA))
    return (file,) if (file := path.with_suffix(".py")).exists() else ()


@functools.cache
def _read(path: Path, module: str) -> tuple[str, frozenset[str]]:
    """Return a file's hash (8 hex digits) and the modules, or names in modules, that it may import."""
    if path.suffix != ".py":
        return hashlib.sha256(path.read_bytes()).hexdigest()[:8], frozenset()
    tree = ast.parse(path.read_bytes(), filename=str(path))
    imported: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, _DOCUMENTED) and ast.get_docstring(node, clean=False) is not None:
            del node.body[0]
        if isinstance(node, ast.Import):
            imported |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            package = module.split(".") + ["__init__"] * (path.name == "__init__.py")
            above = package[: -node.level] if node.level else []
            base = ".".join([*above, *([node.module] if node.module else [])])
            imported |= {base, *(f"{base}.{alias.name}".lstrip(".") for alias in node.names)}
    return hashlib.sha256(ast.dump(tree).encode()).hexdigest()[:8], frozenset(imported - {""})
