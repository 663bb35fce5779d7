"""Which code made an output: hashes over syntax trees, so that comments, docstrings and layout change nothing.

`fingerprint` names the code that a running process has loaded. `Sources` names, before anything runs, the modules that
a stage will import; the workflow's rules carry them as params. Standard library only; `Sources` needs grimp besides.
"""

import ast
import functools
import hashlib
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

import faze

ROOT = Path(faze.__file__).resolve().parents[1]

# All that these can do to a stage is in its resolved config file, which is its input, or in its run log's words about
# itself. Following them would retrain everything for each new parameter. See docs/decisions/0001.
NEUTRAL = frozenset(
    {
        "faze.__main__",
        "faze.base.code_hash",
        "faze.config",
        "faze.config.check",
        "faze.config.data_parameters",
        "faze.config.parameters",
        "faze.config.ladder",
        "faze.config.stage_config",
        "faze.config.validation",
        "faze.config.yaml_files",
    }
)

DATA = (".c", ".css", ".j2", ".json", ".csv", ".txt", ".yaml")  # read from beside the modules of a package


@functools.cache
def module_hash(path: Path | str) -> str:
    """Hash the syntax tree of a source file, docstrings left out, or the bytes of any other file: 8 hex digits.

    A tree's hash depends on the Python version: its parser decides what the tree looks like.
    """
    path = Path(path)
    if path.suffix != ".py":
        return hashlib.sha256(path.read_bytes()).hexdigest()[:8]
    tree = ast.parse(path.read_bytes(), filename=str(path))
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) and _speaks(node):
            del node.body[0]
    return hashlib.sha256(ast.dump(tree).encode()).hexdigest()[:8]


def _speaks(node: ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    return ast.get_docstring(node, clean=False) is not None


def fingerprint() -> str:
    """Hash the code of every faze module that this process has loaded by now: 12 hex digits."""
    sources = sorted({f"{name}@{module_hash(path)}" for name, path in _loaded()})
    return hashlib.sha256("\n".join(sources).encode()).hexdigest()[:12]


def _loaded() -> Iterator[tuple[str, str]]:
    """Yield name and file of each loaded module; `python -m faze.stages.x` holds faze.stages.x as __main__."""
    for module in list(sys.modules.values()):
        spec = getattr(module, "__spec__", None)
        if spec and spec.origin and spec.name.split(".")[0] == "faze" and spec.name not in NEUTRAL:
            yield spec.name, spec.origin


class Sources:
    """The import graph of the package, and what each of its modules pulls in."""

    def __init__(self) -> None:
        import grimp

        self._graph = grimp.build_graph("faze", cache_dir=None, exclude_type_checking_imports=True)

    def of(self, module: str) -> list[str]:
        """Give `path@hash` of a module and of all that it imports, transitively, in the order of their paths.

        A module's packages count too, since Python runs their __init__ first, and the templates and the like in them.
        """
        paths = (path for name in self._closure([module]) - NEUTRAL for path in _files(name))
        return sorted(f"{path.relative_to(ROOT)}@{module_hash(path)}" for path in paths)

    def _closure(self, modules: Iterable[str]) -> set[str]:
        found: set[str] = set()
        waiting = list(modules)
        while waiting:
            name = waiting.pop()
            if name in found:
                continue
            found.add(name)
            parts = name.split(".")
            waiting += [".".join(parts[:end]) for end in range(1, len(parts))]
            waiting += self._graph.find_modules_directly_imported_by(name)
        return found


def _files(name: str) -> list[Path]:
    path = ROOT.joinpath(*name.split("."))
    if not path.is_dir():
        return [path.with_suffix(".py")]
    return [path / "__init__.py", *(p for p in path.iterdir() if p.is_file() and p.suffix in DATA)]
