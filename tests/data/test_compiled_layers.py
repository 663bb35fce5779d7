"""Frames rendered by compiled code and by numpy are equal to within one grey level.

Checked by breaking kernel.c: a crease that is narrower by a fiftieth, and different rounding at the point where rays
meet the eyeball. The test also fails if numpy computes that point as a matrix product, using OpenBLAS's Haswell
kernels.
"""

import dataclasses
from pathlib import Path

import cv2
import numpy as np
import pytest

from faze.base.compiled import library, processor_features
from faze.config.parameters import Synthetic
from faze.config.yaml_files import read_yaml
from faze.data.synthetic import compiled_layers
from faze.data.synthetic.compiled_layers import rounding_identity
from faze.data.synthetic.people import Role, render_frames, sample_frames

VALUES = read_yaml(Path(__file__).parents[2] / "config" / "config.yaml")["synthetic"]
DEFAULT = Synthetic(**VALUES | {"gazecapture_train_frames": None})
# Among the measured people, mpiifacegaze 1 and gazecapture 2 wear spectacles.
CASES = [
    (kind, Role(*role))
    for kind in ("simple", "measured")
    for role in (("mpiifacegaze", "test", 0), ("mpiifacegaze", "test", 1), ("gazecapture", "train", 2))
]


def frames(kind: str, role: Role) -> list[np.ndarray]:
    synthetic = dataclasses.replace(DEFAULT, people=kind, frames_per_person=4)
    return list(render_frames(role, sample_frames(role, synthetic), synthetic.seed))


@pytest.mark.parametrize(("kind", "role"), CASES, ids=lambda case: str(getattr(case, "person_id", case)))
def test_both_ways_give_the_same_pixels(kind, role, request, monkeypatch):
    """Only one kind of layers can be built each time, so a comparison of numpy with itself fails."""
    if library("data/synthetic/kernel.c", "skipped") is None:
        pytest.skip("kernel.c is not compiled")
    with monkeypatch.context() as patch:
        patch.setattr(compiled_layers, "NumpyLayers", None)
        compiled = frames(kind, role)
    request.getfixturevalue("without_kernels")
    monkeypatch.setattr(compiled_layers, "CompiledLayers", None)
    by_numpy = frames(kind, role)
    assert len(compiled) == 4
    for a, b in zip(compiled, by_numpy, strict=True):
        apart = np.abs(a.astype(int) - b)
        assert apart.max() <= 1
        assert (apart > 0).mean() < 1e-4, "they round alike nearly everywhere"


def test_some_of_the_people_compared_wear_spectacles():
    worn = [sample_frames(role, dataclasses.replace(DEFAULT, people=kind)).person.spectacles for kind, role in CASES]
    assert [glasses is not None for glasses in worn] == [False, False, False, False, True, True]


def test_without_the_compiled_kernel_numpy_renders_and_one_line_says_so(without_kernels, capsys):
    assert rounding_identity() == ("numpy", processor_features(), np.__version__, cv2.__version__)
    assert len(frames("simple", CASES[0][1])) == 4
    (line,) = capsys.readouterr().err.splitlines()
    assert "faze/data/synthetic/kernel.c" in line and "numpy" in line
