"""Changes that alter the code hash, and modules on which a stage depends."""

import hashlib
import subprocess
import sys
from pathlib import Path

import grimp
import pytest

from faze.base import code_hash
from faze.base.code_hash import fingerprint, is_neutral, module_hash, sources
from faze.config.parameters import STAGES

ROOT = Path(__file__).resolve().parents[2]
ALL = (*STAGES, "inspect", "landmarks")
CODE = '"""Doc."""\n\nimport math\n\n\ndef area(r):\n    """Say."""\n    return math.pi * r**2\n'
CODE += '\n\nclass A:\n    """Kind."""\n\n    async def f(self):\n        """Wait."""\n        return 1\n'


def hash_of(folder: Path, text: str) -> str:
    path = folder / f"m{len(list(folder.iterdir()))}.py"
    path.write_text(text)
    return module_hash(path)


@pytest.mark.parametrize(
    "text",
    [
        CODE + "# a comment\n",
        CODE.replace("\n\n\ndef", "\n\n\n\n# why\ndef"),
        CODE.replace("Say.", "Say more."),
        CODE.replace('"""Doc."""\n\n', ""),
        CODE.replace("Kind.", "Kinds."),
        CODE.replace("Wait.", "Wait for it."),
        CODE.replace("math.pi * r**2", "(math.pi * r ** 2)  # m2"),
    ],
    ids=["comment", "blank lines", "docstring", "no docstring", "class", "coroutine", "layout"],
)
def test_what_python_does_not_run_changes_nothing(tmp_path: Path, text: str) -> None:
    assert text != CODE
    assert hash_of(tmp_path, text) == hash_of(tmp_path, CODE)


@pytest.mark.parametrize(
    "text",
    [
        CODE.replace("r**2", "r**3"),
        CODE.replace("import math", "import cmath as math"),
        CODE + 'KIND = "area"\n',
        CODE + '"""A text that is no docstring."""\n',
    ],
)
def test_what_python_runs_changes_the_hash(tmp_path: Path, text: str) -> None:
    assert hash_of(tmp_path, text) != hash_of(tmp_path, CODE)


def test_hash_looks_at_content_not_at_name_or_time(tmp_path: Path) -> None:
    assert hash_of(tmp_path, CODE) == hash_of(tmp_path, CODE)
    assert len(hash_of(tmp_path, CODE)) == 8


DATA_FILES = ["atlas.js", "kernel.c", "page.j2", "people.csv", "shape.json", "style.css", "tiers.yaml", "words.txt"]


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """Create a package in place of faze: stages.draw -> walk -> art.line, art.late; stages.weigh -> config."""
    texts = {
        "faze/__init__.py": "",
        "faze/base/__init__.py": "",
        "faze/base/progress.py": "import faze.art.unused\n",
        "faze/config/__init__.py": "",
        "faze/config/stage_config.py": "A = 1\n",
        "faze/configured.py": "",
        "faze/redirection/__init__.py": "",
        "faze/redirection/walk.py": "from faze.art import line\n\ndef main():\n    from faze.art.late import PAINT\n",
        "faze/art/__init__.py": "from faze.art import paper\n",
        "faze/art/late.py": "PAINT = 1\n",
        "faze/art/line.py": "",
        "faze/art/paper.py": "",
        "faze/art/unused.py": "",
        **{f"faze/art/{name}": "" for name in DATA_FILES},
        "faze/art/notes.md": "Words.",
        "faze/stages/__init__.py": "",
        "faze/stages/draw.py": "import faze.config.stage_config\n\ndef main():\n    import faze.redirection.walk\n",
        "faze/stages/weigh.py": "from faze.base.progress import Progress\nfrom faze.config import stage_config\n"
        "import faze.configured\n",
    }
    for name, text in texts.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    (tmp_path / "faze" / "base" / "code_hash.py").write_text(Path(code_hash.__file__).read_text())
    return tmp_path


def ask(package: Path, statement: str) -> str:
    command = [sys.executable, "-c", f"from faze.base.code_hash import *\n{statement}"]
    return subprocess.run(command, cwd=package, check=True, capture_output=True, text=True).stdout.strip()


def closure(package: Path, module: str) -> list[str]:
    return ask(package, f"print(*(source.split('@')[0] for source in sources({module!r})))").split()


def test_closure_is_transitive_with_packages_and_late_imports(package: Path) -> None:
    assert closure(package, "faze.stages.draw") == [
        "faze/__init__.py",
        "faze/art/__init__.py",
        *(f"faze/art/{name}" for name in sorted([*DATA_FILES, "late.py", "line.py", "paper.py"])),
        "faze/redirection/__init__.py",
        "faze/redirection/walk.py",
        "faze/stages/__init__.py",
        "faze/stages/draw.py",
    ]


def test_closure_holds_neither_what_is_not_imported_nor_what_is_neutral(package: Path) -> None:
    assert closure(package, "faze.stages.weigh") == [
        "faze/__init__.py",
        "faze/configured.py",  # its name only begins like that of a neutral package
        "faze/stages/__init__.py",
        "faze/stages/weigh.py",
    ]


def test_imports_are_those_that_grimp_finds() -> None:
    graph = grimp.build_graph("faze", cache_dir=None)
    for module in graph.modules:
        found: set[str] = set()
        waiting = [module]
        while waiting:
            name = waiting.pop()
            if name not in found and not is_neutral(name):
                found.add(name)
                parts = name.split(".")
                waiting += [".".join(parts[:end]) for end in range(1, len(parts))]
                waiting += graph.find_modules_directly_imported_by(name)
        assert code_hash._closure(module) == found


def paths(stage: str) -> set[str]:
    return {source.split("@")[0] for source in sources(f"faze.stages.{stage}")}


def test_closure_of_each_stage_covers_what_importing_it_loads() -> None:
    script = (
        "import sys, faze.stages.{}\n"
        "print(*(n for n, m in sys.modules.items() if n.split('.')[0] == 'faze' and m.__spec__.origin))"
    )
    for stage in ("train", "adapt", "report"):  # the others import less
        command = [sys.executable, "-c", script.format(stage)]
        loaded = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout.split()
        assert "faze.config.stage_config" in loaded
        assert {name for name in loaded if not is_neutral(name)} <= code_hash._closure(f"faze.stages.{stage}")


@pytest.mark.parametrize("stage", ALL)
def test_every_source_is_a_file_with_its_hash(stage: str) -> None:
    assert f"faze/stages/{stage}.py" in paths(stage)
    for source in sources(f"faze.stages.{stage}"):
        path, _, found = source.partition("@")
        data = hashlib.sha256((ROOT / path).read_bytes()).hexdigest()[:8]
        assert found == (module_hash(ROOT / path) if path.endswith(".py") else data)


def test_fingerprint_depends_on_what_is_imported_late(package: Path) -> None:
    """Regression: only modules loaded so far were hashed, which excluded a kernel that is loaded later."""
    told = "import faze.redirection.walk; print(fingerprint('faze.redirection.walk'))"
    before = ask(package, told)
    assert len(before) == 12 and int(before, 16) >= 0
    (package / "faze" / "redirection" / "walk.py").open("a").write("# comment\n")
    (package / "faze" / "art" / "unused.py").write_text("X = 1\n")
    (package / "faze" / "config" / "stage_config.py").write_text("A = 2\n")
    assert ask(package, told) == before
    (package / "faze" / "art" / "late.py").write_text("PAINT = 2\n")
    assert ask(package, told) != before


def test_fingerprint_of_a_training_and_of_a_learner_is_of_their_kernels_too() -> None:
    assert "faze/model/fused_norm_triton.py" in paths("train")  # imported by the first step that needs it
    assert "faze/fewshot/kernel.c" in paths("meta_train") & paths("adapt")  # what a package compiles
    assert len({fingerprint(f"faze.stages.{stage}") for stage in ALL}) == len(ALL)


def test_snakefile_side_needs_the_standard_library_and_yaml_alone() -> None:
    script = (
        "import sys, faze.config.stage_config, faze.base.code_hash as c; c.sources('faze.stages.train')\n"
        "print(*sorted({'torch', 'mlflow', 'cv2', 'h5py', 'numpy', 'grimp'} & set(sys.modules)))"
    )
    command = [sys.executable, "-c", script]
    assert subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout.strip() == ""
