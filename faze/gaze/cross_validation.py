"""Measure a person's calibration by leave-one-target-out cross-validation, and find likely mistakes in bad recordings.

Frames of the same target resemble each other, so the error on a target that was used for calibration would be too
small. Therefore, each target is measured with a calibration on frames of the other targets. The reference is the
constant guess: the mean gaze of the same calibration frames.
"""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from faze.base.geometry import angular_error, pitchyaw_from_vector, vector_from_pitchyaw
from faze.evaluation.statistics import compare
from faze.evaluation.wording import signed
from faze.fewshot.interface import Learned
from faze.fewshot.learners import calibrate
from faze.fewshot.person_codes import PersonCodes
from faze.gaze.recording import Recording

CONSTANT, CALIBRATED = "constant guess", "calibrated"
# Plausible ratios of the standard deviations of labels and estimates. For nine targets, 95 % of the ratios were from
# 0.95 to 1.5 (two real people, shipped network) and from 0.8 to 2.0 (four networks that were trained on real people).
SPANS = {"shipped": (0.85, 1.75), "other": (0.75, 1.9)}
Span = tuple[float, float]
# What each mistake does to the labels' deviations from their mean (pitch, yaw). Each matrix is its own inverse.
MISTAKES = (
    ("the images or x of the targets are mirrored", [[1, 0], [0, -1]]),
    ("y of the targets is counted from the bottom", [[-1, 0], [0, 1]]),
    ("x and y of the targets are exchanged", [[0, -1], [-1, 0]]),  # px: yaw grows with x, and pitch with -y
    ("x and y of the targets are exchanged", [[0, 1], [1, 0]]),  # mm or angles
)
UNIT = "the targets are in another unit than the columns or screen.yaml state"


def cross_validate(recording: Recording, learned: Learned, shots: int | None) -> pd.DataFrame:
    """Measure the errors (n, 3) of all frames in rad, in columns for unadapted, constant and calibrated estimates.

    Each calibration uses `shots` frames (None: one per target). Raise UserError if there are too few targets or frames.
    """
    person = recording.person
    constant, calibrated = np.empty((2, *person.gaze.shape))
    for target in range(recording.target.max() + 1):
        query, support = np.flatnonzero(recording.target == target), recording.support(shots, left_out=target)
        constant[query] = person.gaze[support].mean(axis=0)
        calibrated[query] = calibrate(person, support, query, learned).gaze(person.seen(query))
    columns = {"unadapted": person.gaze_hat, CONSTANT: constant, CALIBRATED: calibrated}
    return pd.DataFrame({name: angular_error(estimate, person.gaze) for name, estimate in columns.items()})


def compare_with_constant(recording: Recording, errors: pd.DataFrame) -> dict[str, float]:
    """Compare calibrated estimates with the constant guess in degrees; the 95 % interval is Student's over targets."""
    per_target = np.degrees(errors).groupby(recording.target).mean()
    return compare(per_target[CALIBRATED] - per_target[CONSTANT], margin=1.0, alpha=0.025)  # the margin is not used


def span_ratio(person: PersonCodes) -> float:
    """Return the standard deviation of the labels divided by that of the unadapted estimates (pitch and yaw)."""
    labels, estimates = (pitchyaw_from_vector(vectors).var(axis=0).sum() for vectors in (person.gaze, person.gaze_hat))
    return float(np.sqrt(labels / estimates))


def without_mistakes(person: PersonCodes, span: Span) -> Iterator[tuple[str, NDArray[np.float64]]]:
    """Yield mistakes in the labels, each with the gaze (n, 2) that the labels would be without it."""
    gaze, estimates = (pitchyaw_from_vector(vectors) for vectors in (person.gaze, person.gaze_hat))
    mean, ratio = gaze.mean(axis=0), span_ratio(person)
    for mistake, matrix in MISTAKES:
        yield mistake, mean + (gaze - mean) @ np.array(matrix)
    yield "the targets are counted from another point than the top left corner", gaze - mean + estimates.mean(axis=0)
    yield "each label is one row too late", np.roll(gaze, -1, axis=0)
    yield "each label is one row too early", np.roll(gaze, 1, axis=0)
    if not span[0] <= ratio <= span[1]:
        yield UNIT, mean + (gaze - mean) / ratio


def find_mistake(recording: Recording, learned: Learned, shots: int | None, span: Span) -> str | None:
    """Return the mistake whose correction fits best, if it is shown to be better than the constant guess, or None."""
    fits = {}
    for mistake, gaze in without_mistakes(recording.person, span):
        changed = replace(recording, person=replace(recording.person, gaze=vector_from_pitchyaw(gaze)))
        errors = cross_validate(changed, learned, shots)
        if compare_with_constant(changed, errors)["high_deg"] < 0:
            fits.setdefault(errors[CALIBRATED].mean() / errors[CONSTANT].mean(), mistake)
    return fits[min(fits)] if fits else None


def check(recording: Recording, learned: Learned, shots: int | None, span: Span) -> tuple[pd.Series, list[str], str]:
    """Return the mean errors in degrees, a report on them, and the reason to refuse the calibration ("" if none).

    `span` is the plausible range of `span_ratio`.
    """
    errors = cross_validate(recording, learned, shots)
    means_deg = np.degrees(errors).groupby(recording.target).mean().mean()
    means_mm = (2 * np.sin(errors / 2)).mul(recording.distance_mm, axis=0).groupby(recording.target).mean().mean()
    lines = [f"mean error on {recording.target.max() + 1} targets, each left out of its calibration:"]
    for name, mm in means_mm.items():
        at_target = "" if np.isnan(mm) else f", {mm:.0f} mm at the target"
        lines.append(f"  {name}: {means_deg[name]:.2f} degrees{at_target}")
    change, ratio = compare_with_constant(recording, errors), span_ratio(recording.person)
    difference, low, high = (signed(change[name]) for name in ("difference_deg", "low_deg", "high_deg"))
    lines.append(f"  difference of the last two: {difference} degrees (95 % interval over targets: {low} to {high})")
    if means_deg[CALIBRATED] >= means_deg["unadapted"]:
        lines.append("  the calibration does not improve the unadapted estimates")
    if not change["high_deg"] < 0:
        fault = "it is not shown to be better than always guessing the mean gaze"
        mistake = find_mistake(recording, learned, shots, span)
    elif not span[0] <= ratio <= span[1]:
        fault = f"the labels vary {ratio:.2f} times as much as the estimates (plausible: {span[0]} to {span[1]})"
        mistake = UNIT
    else:
        return means_deg, lines, ""
    remedy = f"probably, {mistake}: correct this" if mistake else "check the screen, camera and labels"
    return means_deg, lines, f"no calibration was written, because {fault}; {remedy}, or record more targets"
