"""The installed packages: all are pinned exactly once, and none shadows another."""

import importlib.metadata
import itertools
import re
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.version import Version

ROOT = Path(__file__).resolve().parents[2]


def plain(name: str) -> str:
    """Normalise the name of a requirement as registries do."""
    return re.sub(r"[-_.]+", "-", re.split(r"[ ;<>=!\[]", name)[0]).lower()


def pins() -> dict[str, str]:
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    pairs = [line.split("==") for line in lines if not line.startswith("#")]
    assert all(len(pair) == 2 for pair in pairs), "constraints.txt holds nothing but name==version"
    return {plain(name): version for name, version in pairs}


def test_every_dependency_has_the_minor_version_of_its_pin_as_its_lower_bound() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    wanted = itertools.chain(project["dependencies"], *project["optional-dependencies"].values())
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    for requirement in map(Requirement, wanted):
        pin = Version(pins()[plain(requirement.name)])
        oldest = re.search(rf"(?<=\s){requirement.name}==(\S+)", makefile)  # tested by `make oldest`
        tested = Version(oldest[1]) if oldest else pin
        lower = [bound.version for bound in requirement.specifier if bound.operator == ">="]
        assert lower == [f"{tested.major}.{tested.minor}"] and pin in requirement.specifier, requirement
    assert "setuptools" in pins()


def test_every_package_can_be_installed_with_the_oldest_python() -> None:
    """Regression: the set-up failed with Debian's Python 3.11.2, since a pinned version needed 3.11.5."""
    installed = (distribution.metadata for distribution in importlib.metadata.distributions())
    pythons = {metadata["Name"]: metadata.get("Requires-Python") or "" for metadata in installed}
    assert [name for name, python in pythons.items() if "3.11.0" not in SpecifierSet(python)] == []


TRITON_OF_TORCH = {
    "2.13.0": "3.7.1"
}  # that torch for CUDA requires: importlib.metadata.requires("torch") of such a build


def test_triton_is_the_version_that_torch_for_cuda_pins() -> None:
    """Another version would keep pip from installing torch for CUDA. Regression: triton 3.7.0 was pinned."""
    assert pins()["triton"] == TRITON_OF_TORCH[pins()["torch"]], "look up the triton that the new torch requires"
    required = [line for line in importlib.metadata.requires("torch") or () if plain(line) == "triton"]
    assert all(line.split(";")[0].strip() == f"triton=={pins()['triton']}" for line in required)


def test_no_second_cv2_and_no_false_apex() -> None:
    """Both OpenCV packages install cv2/, and pip does not object; the registry's apex is not NVIDIA's."""
    assert not {"opencv-python", "opencv-contrib-python", "apex"} & set(pins())
    importlib.metadata.version("opencv-python-headless")
    for other in ("opencv-python", "opencv-contrib-python", "opencv-contrib-python-headless"):
        with pytest.raises(importlib.metadata.PackageNotFoundError):
            importlib.metadata.version(other)


@pytest.mark.parametrize("name", ["torch", "numpy", "snakemake", "mlflow", "import-linter", "opencv-python-headless"])
def test_installed_version_is_the_pinned_one(name: str) -> None:
    assert importlib.metadata.version(name).partition("+")[0] == pins()[name]
