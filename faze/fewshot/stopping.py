"""When to stop adapting: a fixed number of steps over-fits where k is small (at k = 3 by 0.2 degrees, FACTS F).

The rule `validation` takes, for each k, the number of steps after which the error of the val people is lowest, and
applies it to everyone. Their own query decides, never that of a test person.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from faze.config.parameters import Fewshot
from faze.fewshot.draws import Calibration


def recorded_steps(settings: Fewshot) -> tuple[int, ...]:
    """Steps after which the error is measured, ascending: none, those asked for, and all."""
    return tuple(sorted({0, *(step for step in settings.record_steps if step < settings.adapt_steps)})) + (
        settings.adapt_steps,
    )


def best_steps(
    errors_deg: NDArray[np.float64], draws: Sequence[Calibration], shots: Sequence[int], steps: Sequence[int]
) -> list[int]:
    """Choose the number of steps of each k.

    Args:
        errors_deg: (M, len(steps)) of calibrations of val people, each with as many of every k.
        draws: the M calibrations.
        shots: every k.
        steps: after which the errors were measured.
    """
    of = np.array([draw.shots for draw in draws])
    return [steps[int(errors_deg[of == k].mean(axis=0).argmin())] for k in shots]


def error_at(
    errors_deg: NDArray[np.float64], draws: Sequence[Calibration], chosen: dict[int, int], steps: Sequence[int]
) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Error (M,) of each calibration after the steps chosen for its k, and these steps (M,)."""
    taken = np.array([chosen[draw.shots] for draw in draws])
    column = np.searchsorted(steps, taken)
    return errors_deg[np.arange(len(draws)), column], taken
