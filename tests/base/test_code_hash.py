"""Changes that alter the code hash, and modules on which a stage or a user's class depends."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from faze.base.code_hash import NEUTRAL, ROOT, fingerprint, sources
from faze.config.parameters import STAGES

CODE = '''"""Doc."""

import math


class Network:
    """Kind."""

    def area(self, r):
        """Say."""
        return math.pi * r**2
'''
USER = {  # my_training imports its siblings, a package and a relative module; big.py is unrelated
    "my_training.py": "import torch\nimport my_net\nfrom faze.training.workload import Workload\n",
    "my_net.py": "def build():\n    from parts import blocks\n",
    "parts/__init__.py": "from . import sizes\nfrom .blocks import Block\n",
    "parts/blocks.py": "from .sizes import WIDTH\nfrom ..parts import heads\n\n\nclass Block:\n    pass\n",
    "parts/heads.py": "",
    "parts/sizes.py": "WIDTH = 1\n",
    "parts/unused.py": "",
    "parts/anchors.json": "[1, 2]",
    "big.py": "",
    "notes.txt": "",
}


@pytest.fixture
def user(tmp_path: Path) -> Path:
    for name, text in USER.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


def hash_of(folder: Path, text: str) -> str:
    folder.mkdir(exist_ok=True)
    name = f"m{len(list(folder.iterdir()))}"
    (folder / f"{name}.py").write_text(text)
    [source] = sources(name, folder)
    return source.partition("@")[2]


def run_python(script: str, cwd: Path) -> str:
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", script]
    return subprocess.run(command, cwd=cwd, env=environment, check=True, capture_output=True, text=True).stdout


def names(found: list[str]) -> list[str]:
    return [source.partition("@")[0] for source in found]


@pytest.mark.parametrize("text", [
    CODE + "# a comment\n",
    CODE.replace("\n\n\nclass", "\n\n\n\n# why\nclass"),
    CODE.replace("Say.", "Say more."),
    CODE.replace('"""Doc."""\n\n', ""),
    CODE.replace("Kind.", "Kinds."),
    CODE.replace("math.pi * r**2", "(math.pi * r ** 2)"),
])  # fmt: skip
def test_what_python_does_not_run_changes_nothing(tmp_path: Path, text: str) -> None:
    assert text != CODE
    assert hash_of(tmp_path, text) == hash_of(tmp_path, CODE)


@pytest.mark.parametrize("text", [
    CODE.replace("r**2", "r**3"),
    CODE.replace("import math", "import cmath as math"),
    CODE + '"""A text that is no docstring."""\n',
])  # fmt: skip
def test_what_python_runs_changes_the_hash(tmp_path: Path, text: str) -> None:
    assert hash_of(tmp_path, text) != hash_of(tmp_path, CODE)


def test_a_users_class_depends_on_all_that_it_imports_from_its_folder(user: Path) -> None:
    used = ["my_net.py", "my_training.py", "parts/__init__.py", "parts/anchors.json"]
    used += ["parts/blocks.py", "parts/heads.py", "parts/sizes.py"]
    assert names(sources("my_training", user)) == used


@pytest.mark.parametrize(("file", "text", "changes"), [
    ("my_net.py", "def build():\n    from parts import heads\n", True),
    ("parts/sizes.py", "WIDTH = 2\n", True),
    ("parts/anchors.json", "[1, 3]", True),
    ("parts/__init__.py", USER["parts/__init__.py"] + "DEPTH = 1\n", True),
    ("my_net.py", USER["my_net.py"] + "# a comment\n", False),
    ("parts/unused.py", "X = 1\n", False),
    ("big.py", "X = 1\n", False),
])  # fmt: skip
def test_a_change_in_a_users_folder(user: Path, file: str, text: str, changes: bool) -> None:
    script = "import pathlib, faze.base.code_hash as c; print(c.sources('my_training', pathlib.Path.cwd()))"
    before = run_python(script, cwd=user)
    (user / file).write_text(text)
    assert (run_python(script, cwd=user) != before) == changes


@pytest.mark.parametrize("stage", ["train", "adapt", "report"])  # the others import less
def test_sources_cover_what_importing_a_stage_loads(stage: str) -> None:
    script = (
        f"import sys, faze.stages.{stage}\n"
        "print(*(m.__file__ for n, m in sys.modules.items() if n.split('.')[0] == 'faze' and m.__file__))"
    )
    loaded = {str(Path(file).relative_to(ROOT)) for file in run_python(script, cwd=ROOT).split()}
    neutral = tuple(name.replace(".", "/") for name in NEUTRAL)
    assert {file for file in loaded if not file.startswith(neutral)} <= set(names(sources(f"faze.stages.{stage}")))


def test_late_imports_and_kernels_count() -> None:
    assert "faze/model/fused_norm_triton.py" in names(sources("faze.stages.train"))  # of the first step that needs it
    assert "faze/fewshot/kernel.c" in names(sources("faze.stages.adapt"))
    assert len({fingerprint(f"faze.stages.{stage}") for stage in STAGES}) == len(STAGES)


def test_neutral_modules_exist_and_do_not_count() -> None:
    for name, reason in NEUTRAL.items():
        path = ROOT.joinpath(*name.split("."))
        assert reason and (path.with_suffix(".py").exists() or path.is_dir()), name
    assert not [file for file in names(sources("faze.stages.train")) if file.startswith(("faze/config", "faze/base/p"))]
