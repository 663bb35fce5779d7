"""Parts of a person's error that were put in are found again, and chance explains nothing.

Seen red: without degrees of freedom a slope explains pure noise; with pitch and yaw exchanged.
"""

import numpy as np
import pytest

from faze.base.geometry import vector_from_pitchyaw
from faze.evaluation.person_variance import mean_squares


def person(seed: int, offset: float, slope: float, head: float, noise: float, entries: int = 150) -> dict:
    """Codes of somebody whose residual has parts of these sizes, in degrees, alike on both axes."""
    rng = np.random.default_rng(seed)
    hat, pose = rng.normal(0, 0.2, (entries, 2)), rng.normal(0, 0.2, (entries, 2))
    unit = [offset * rng.choice([-1, 1], (1, 2)), slope * hat / 0.2, head * pose[:, ::-1] / 0.2]
    residual = sum(unit) + noise * rng.normal(size=hat.shape)
    return {"gaze": hat + np.radians(residual), "head": pose, "gaze_hat": vector_from_pitchyaw(hat)}


def parts(**sizes: float) -> np.ndarray:
    squares = np.mean([mean_squares(person(seed, **sizes)) for seed in range(60)], axis=0)
    return np.append(-np.diff(squares), squares[-1])


def test_each_part_is_found() -> None:
    found = parts(offset=3.0, slope=1.5, head=1.0, noise=2.0)
    assert found == pytest.approx(2 * np.array([9.0, 2.25, 1.0, 4.0]), rel=0.1)


@pytest.mark.parametrize("entries", [8, 150])
def test_of_noise_nothing_is_explained(entries: int) -> None:
    sizes = {"offset": 0.0, "slope": 0.0, "head": 0.0, "noise": 1.0}
    squares = np.mean([mean_squares(person(seed, **sizes, entries=entries)) for seed in range(600)], axis=0)
    assert squares == pytest.approx(2.0, abs=0.2)


def test_too_few_entries_have_no_parts() -> None:
    assert np.isnan(mean_squares(person(0, 1.0, 0.0, 0.0, 1.0, entries=5))).any()


def test_the_label_may_lie_beyond_the_half_circle() -> None:
    codes = person(0, 0.0, 0.0, 0.0, 1.0)
    turned = codes | {"gaze": codes["gaze"] + [0, 2 * np.pi]}
    assert mean_squares(turned) == pytest.approx(mean_squares(codes))
