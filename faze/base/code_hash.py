"""Hash the code that produces an output, by its syntax trees: comments, docstrings and layout have no effect.

`sources` returns the files that a module runs and their hashes; the workflow's rules have these as params.
`fingerprint` combines all of them in one hash, which outputs record. Standard library only.
"""

import ast
import functools
import hashlib
from collections.abc import Iterator
from pathlib import Path

import faze

ROOT = Path(faze.__file__).resolve().parents[1]

# Modules that change no output, each with the reason; hashes exclude them. See docs/decisions/0001.
NEUTRAL = {
    "faze.__main__": "finds the requested command",
    "faze.base.cgroup": "measures the machine: the default number of threads, the size of caches, and what is recorded",
    "faze.base.code_hash": "identifies code; no number passes through it",
    "faze.base.command_line": "reads arguments, which are the rule's, and turns an error into one sentence",
    "faze.base.errors": "reports errors; there is no output then",
    "faze.base.locks": "delays or refuses a job",
    "faze.base.process_pool": "distributes work to processes; results are the same for any number of them",
    "faze.base.progress": "writes only to the terminal and to the job's log",
    "faze.config": "acts through the stage's resolved config file, which is an input; see decision 1",
}

_DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
DATA = (".c", ".css", ".j2", ".js", ".json", ".csv", ".txt", ".yaml")  # read from beside the modules of a package


def is_neutral(module: str) -> bool:
    """Return whether a module, or the package that contains it, cannot affect any output."""
    return f"{module}.".startswith(tuple(f"{name}." for name in NEUTRAL))


def module_hash(path: Path | str) -> str:
    """Hash the syntax tree of a source file without its docstrings, or the bytes of any other file: 8 hex digits.

    A tree's hash depends on the Python version, whose parser determines the tree.
    """
    return _read(Path(path))[0]


def fingerprint(module: str) -> str:
    """Hash the code of a module and of everything that it imports: 12 hex digits.

    The hash does not depend on the modules that a process has loaded.
    """
    return hashlib.sha256("\n".join(sources(module)).encode()).hexdigest()[:12]


def sources(module: str) -> list[str]:
    """Return `path@hash` for each file of a module and of all that it imports, transitively, sorted by path.

    This includes the packages that contain each module, since Python runs their __init__ first, and the data files of
    these packages.
    """
    paths = (path for name in _closure(module) for path in _files(name))
    return sorted(f"{path.relative_to(ROOT)}@{module_hash(path)}" for path in paths)


def _closure(module: str) -> set[str]:
    found: set[str] = set()
    waiting = {module}
    while waiting:
        name = waiting.pop()
        if name in found or is_neutral(name):
            continue
        found.add(name)
        parts = name.split(".")
        waiting |= {".".join(parts[:end]) for end in range(1, len(parts))}
        waiting |= {imported for imported in _read(_files(name)[0])[1] if _files(imported)}
    return found


@functools.cache
def _files(name: str) -> tuple[Path, ...]:
    """Return the files of a module (for a package, __init__.py and its data files), or none if it does not exist."""
    path = ROOT.joinpath(*name.split("."))
    if (path / "__init__.py").exists():
        return (path / "__init__.py", *(p for p in path.iterdir() if p.is_file() and p.suffix in DATA))
    file = path.with_suffix(".py")
    return (file,) if file.exists() else ()


@functools.cache
def _read(path: Path) -> tuple[str, frozenset[str]]:
    """Return the hash of a file and the names that it imports from faze, which may be modules or names in them."""
    if path.suffix != ".py":
        return hashlib.sha256(path.read_bytes()).hexdigest()[:8], frozenset()
    tree = ast.parse(path.read_bytes(), filename=str(path))
    for node in ast.walk(tree):
        if isinstance(node, _DOCUMENTED) and ast.get_docstring(node, clean=False) is not None:
            del node.body[0]
    imported = frozenset(name for node in ast.walk(tree) for name in _imported(node) if name.split(".")[0] == "faze")
    return hashlib.sha256(ast.dump(tree).encode()).hexdigest()[:8], imported


def _imported(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
        assert node.module and not node.level, "relative imports are not followed: use the module's full name"
        yield node.module
        yield from (f"{node.module}.{alias.name}" for alias in node.names)
