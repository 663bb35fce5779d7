"""Redirection by a decoder with known results, from the drawn pairs to the numbers, recomputed in plain numpy.

Images have four fields: the angles of gaze and head in radians, which the estimator reads. Codes are rotations, so
turned codes are known exactly. Fails with a gain relative to the unturned label, and a pair whose b is its a.
"""

import numpy as np
import pandas as pd
import pytest
import torch

from faze.base.geometry import pitchyaw_from_vector, rotation_from_pitchyaw
from faze.evaluation.diagnostics import by_variant
from faze.model.dted import Codes
from faze.redirection.redirect import draw_targets, measure_person, redirect

STRIPS = 40


def draw(angles):
    fields = angles.reshape(-1, 1, 2, 2).repeat_interleave(8, 2).repeat_interleave(8, 3)
    return fields.expand(-1, 3, -1, -1)


def read(image):
    return image[:, 0, ::8, ::8].flatten(1)


class Network:
    """DT-ED with rotations as codes, which decodes gaze and head as they are (mixed = 0), or mixed with others."""

    def __init__(self, mixed):
        self.mixed = mixed

    def encode(self, image):
        angles = read(image)
        return Codes(angles, *(rotation_from_pitchyaw(part, torch).mT for part in angles.split(2, 1)))

    def decode(self, codes):
        # The last row of a transposed rotation is R e_z, with y mirrored.
        up = codes.gaze.new_tensor([1, -1, 1])
        gaze, head = (pitchyaw_from_vector(code[:, 2] * up, torch) for code in (codes.gaze, codes.head))
        other = torch.cat([codes.app[:, :2] + 0.5 * head + 0.02, 0.25 * gaze], 1)
        return draw((1 - self.mixed) * torch.cat([gaze, head], 1) + self.mixed * other)


def rows_of(network, off_deg=0.0):
    """Measure the strips of two people by an estimator with a fixed error for each label."""
    parts = []
    for number, person in enumerate(("p00", "p01")):
        random = np.random.default_rng(number).normal(0, np.radians([8, 12, 6, 9]), (STRIPS, 4))
        labels, targets = torch.from_numpy(random), draw_targets(STRIPS)
        images = redirect(network, draw(labels), labels, targets)
        rows = measure_person(lambda i: read(i) + off_deg / 57 * torch.sin(100 * read(i)), images, labels, targets)
        parts.append(rows.assign(dataset="mpiigaze", person=person))
    return pd.concat(parts, ignore_index=True)


def test_a_perfect_decoder_has_no_error_and_gain_one():
    found = by_variant(rows_of(Network(0))).set_index("variant")
    made = found.loc[["real", "redirected"]]
    assert made[["gaze_error_deg", "head_error_deg"]].to_numpy() == pytest.approx(0, abs=1e-9)
    assert made[["gaze_gain", "head_gain"]].to_numpy() == pytest.approx(1, abs=1e-12)
    assert found.loc["not_turned", ["gaze_gain", "head_gain"]].isna().all(axis=None)


def angle_deg(a, b):
    """Compute angles between directions in plain numpy, by the chord."""
    a, b = (np.stack([np.cos(p) * np.sin(y), np.sin(p), np.cos(p) * np.cos(y)], 1) for p, y in (a.T, b.T))
    return np.degrees(2 * np.arcsin(np.linalg.norm(a - b, axis=1) / 2))


def test_every_number_again_in_plain_numpy():
    rows = rows_of(Network(0.4), off_deg=2.0)
    found = by_variant(rows).set_index(["person", "variant"])
    for person, factor in (("p00", "gaze"), ("p00", "head"), ("p01", "gaze"), ("p01", "head")):
        angles = {}
        for variant, part in rows[rows["person"] == person].groupby("variant"):
            for kind in ("own", "wanted", "seen"):
                angles[variant, kind] = part[[f"{kind}_{factor}_pitch", f"{kind}_{factor}_yaw"]].to_numpy()
            expected = angle_deg(angles[variant, "seen"], angles[variant, "wanted"]).mean()
            assert found.loc[(person, variant), f"{factor}_error_deg"] == pytest.approx(expected, abs=1e-9)
        requested = angles["redirected", "wanted"] - angles["redirected", "own"]
        turned = angles["redirected", "seen"] - angles["not_turned", "seen"]
        design = np.zeros((2 * STRIPS, 3))  # one gain, a constant of each axis
        design[:, 0], design[::2, 1], design[1::2, 2] = requested.ravel(), 1, 1
        gain = np.linalg.lstsq(design, turned.ravel(), rcond=None)[0][0]
        assert found.loc[(person, "redirected"), f"{factor}_gain"] == pytest.approx(gain, abs=1e-9)


@pytest.mark.parametrize("strips", [2, 3, 30])
def test_targets_are_other_strips(strips):
    targets = draw_targets(strips)
    assert (targets != np.arange(strips)).all() and set(targets) <= set(range(strips))
    assert strips < 30 or len(set(targets)) > 10
