"""What counts as a change of code, and which modules a stage depends on."""

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

from faze.base import code_hash
from faze.base.code_hash import Sources, module_hash
from faze.config.parameters import STAGES

ROOT = Path(__file__).resolve().parents[2]
CODE = '"""Doc."""\n\nimport math\n\n\ndef area(r):\n    """Say."""\n    return math.pi * r**2\n'


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
        CODE.replace("math.pi * r**2", "(math.pi * r ** 2)  # m2"),
    ],
    ids=["comment", "blank lines", "docstring", "no docstring", "layout"],
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


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A small package in faze's place: stages.draw -> walk -> art.line; stages.weigh -> config."""
    texts = {
        "faze/__init__.py": "",
        "faze/base/__init__.py": "",
        "faze/config/__init__.py": "",
        "faze/config/stage_config.py": "A = 1\n",
        "faze/redirection/__init__.py": "",
        "faze/redirection/walk.py": (
            "import typing\nfrom faze.art import line\nif typing.TYPE_CHECKING:\n    import faze.hints\n"
        ),
        "faze/hints.py": "",
        "faze/art/__init__.py": "from faze.art import paper\n",
        "faze/art/line.py": "",
        "faze/art/paper.py": "",
        "faze/art/unused.py": "",
        "faze/art/page.j2": "<p>",
        "faze/stages/__init__.py": "",
        "faze/stages/draw.py": "import faze.config.stage_config\n\ndef main():\n    import faze.redirection.walk\n",
        "faze/stages/weigh.py": "from faze.config import stage_config\n",
    }
    for name, text in texts.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    script = (
        "import sys; from faze.base.code_hash import Sources\n"
        "s = Sources()\nprint(*(','.join(s.of(m)) for m in sys.argv[1:]), sep='\\n')"
    )
    (tmp_path / "faze" / "base" / "code_hash.py").write_text(Path(code_hash.__file__).read_text())
    (tmp_path / "ask.py").write_text(script)
    return tmp_path


def closure(package: Path, module: str) -> list[str]:
    command = [sys.executable, "ask.py", module]
    answer = subprocess.run(command, cwd=package, check=True, capture_output=True, text=True)
    return [source.split("@")[0] for source in answer.stdout.strip().split(",")]


def test_closure_is_transitive_with_packages_and_late_imports(package: Path) -> None:
    assert closure(package, "faze.stages.draw") == [
        "faze/__init__.py",
        "faze/art/__init__.py",
        "faze/art/line.py",
        "faze/art/page.j2",
        "faze/art/paper.py",
        "faze/redirection/__init__.py",
        "faze/redirection/walk.py",
        "faze/stages/__init__.py",
        "faze/stages/draw.py",
    ]


def test_closure_leaves_out_what_is_not_imported(package: Path) -> None:
    assert closure(package, "faze.stages.weigh") == [
        "faze/__init__.py",
        "faze/stages/__init__.py",
        "faze/stages/weigh.py",
    ]


@pytest.fixture(scope="module")
def sources() -> Sources:
    return Sources()


def paths(sources: Sources, stage: str) -> set[str]:
    return {source.split("@")[0] for source in sources.of(f"faze.stages.{stage}")}


@pytest.mark.parametrize("stage", STAGES)
def test_closure_of_each_stage_covers_what_importing_it_loads(sources: Sources, stage: str) -> None:
    script = (
        f"import sys, faze.stages.{stage}\n"
        "print(*(m.__spec__.origin for n, m in sys.modules.items() if n.split('.')[0] == 'faze' and m.__spec__.origin))"
    )
    command = [sys.executable, "-c", script]
    loaded = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout.split()
    neutral = {str(path.relative_to(ROOT)) for name in code_hash.NEUTRAL for path in code_hash._files(name)}
    assert {str(Path(path).relative_to(ROOT)) for path in loaded} - neutral <= paths(sources, stage)


@pytest.mark.parametrize("stage", STAGES)
def test_every_source_is_a_file_with_its_hash(sources: Sources, stage: str) -> None:
    for source in sources.of(f"faze.stages.{stage}"):
        path, _, found = source.partition("@")
        assert found == module_hash(ROOT / path)


def test_what_a_package_compiles_is_part_of_its_code(sources: Sources) -> None:
    assert any(source.startswith("faze/fewshot/kernel.c@") for source in sources.of("faze.stages.adapt"))


def test_walks_re_render_alone_and_only_training_follows_the_engine(sources: Sources) -> None:
    with_walk = {stage for stage in STAGES if "faze/redirection/walk.py" in paths(sources, stage)}
    assert with_walk == {"walk"}
    with_engine = {stage for stage in STAGES if any(p.startswith("faze/engine/") for p in paths(sources, stage))}
    assert {"train", "benchmark"} <= with_engine
    assert not with_engine & {"synthesise", "preprocess", "meta_train", "adapt", "evaluate", "report", "track"}


def test_no_stage_depends_on_a_neutral_module(sources: Sources) -> None:
    neutral = {str(path.relative_to(ROOT)) for name in code_hash.NEUTRAL for path in code_hash._files(name)}
    assert not any(paths(sources, stage) & neutral for stage in STAGES)


def test_neutral_modules_exist() -> None:
    assert all(importlib.util.find_spec(name) for name in code_hash.NEUTRAL)


def fingerprint_after(statement: str, package: Path) -> str:
    command = [
        sys.executable,
        "-c",
        f"{statement}\nimport faze.base.code_hash; print(faze.base.code_hash.fingerprint())",
    ]
    return subprocess.run(command, cwd=package, check=True, capture_output=True, text=True).stdout.strip()


def test_fingerprint_is_of_the_loaded_modules(package: Path) -> None:
    before = fingerprint_after("import faze.redirection.walk", package)
    assert len(before) == 12 and int(before, 16) >= 0
    (package / "faze" / "redirection" / "walk.py").open("a").write("# comment\n")
    (package / "faze" / "art" / "unused.py").write_text("X = 1\n")
    (package / "faze" / "config" / "stage_config.py").write_text("A = 2\n")
    assert fingerprint_after("import faze.redirection.walk, faze.config.stage_config", package) == before
    (package / "faze" / "art" / "line.py").write_text("X = 1\n")
    assert fingerprint_after("import faze.redirection.walk", package) != before


def test_fingerprint_is_the_same_as_module_and_as_main(package: Path) -> None:
    (package / "faze" / "stages" / "tell.py").write_text(
        "import faze.base.code_hash\n\n\ndef main():\n    print(faze.base.code_hash.fingerprint())\n\n\n"
        'if __name__ == "__main__":\n    main()\n'
    )
    imported = [sys.executable, "-c", "import faze.stages.tell as t; t.main()"]
    run = [sys.executable, "-m", "faze.stages.tell"]
    answers = [
        subprocess.run(c, cwd=package, check=True, capture_output=True, text=True).stdout for c in (imported, run)
    ]
    assert answers[0] == answers[1]


def test_snakefile_side_needs_neither_torch_nor_mlflow() -> None:
    script = (
        "import sys, faze.config.stage_config, faze.base.code_hash as p; p.Sources().of('faze.stages.train')\n"
        "print(*sorted({'torch', 'mlflow', 'cv2', 'h5py', 'numpy'} & set(sys.modules)))"
    )
    command = [sys.executable, "-c", script]
    assert subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout.strip() == ""
