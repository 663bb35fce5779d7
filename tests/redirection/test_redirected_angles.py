"""Redirection by decoders with known results, from the drawn pairs to the numbers, and recomputed in plain numpy.

Images have four pixels: the angles of gaze and head in radians, which a perfect estimator reads. Codes are rotations,
so turned codes are known exactly.

Fails with a gain relative to the unturned label, a fit without a bias, and a pair whose b is its a.
"""

import numpy as np
import pandas as pd
import pytest
import torch
from torch import nn

from faze.base.geometry import pitchyaw_from_vector, rotation_from_pitchyaw
from faze.evaluation.redirected_angles import by_variant
from faze.model.dted import Codes
from faze.redirection.evaluator import evaluate_person, redirect
from faze.redirection.pairs import chosen, draw_targets

STRIPS = 40
NOISE_DEG = 3.0


def angles_of(code):
    """Convert (N, 3, 3) transposed rotations to (N, 2) pitch and yaw: their last row is R e_z, with y mirrored."""
    return pitchyaw_from_vector(code[:, 2] * code.new_tensor([1, -1, 1]), torch)


class Network(nn.Module):
    """DT-ED with rotations as codes; `gaze_of` and `head_of` return the decoded angles."""

    def __init__(self, gaze_of, head_of):
        super().__init__()
        self.gaze_of, self.head_of = gaze_of, head_of

    def encode(self, image):
        angles = image[:, 0].flatten(1)
        rotations = [rotation_from_pitchyaw(part, torch).mT for part in angles.split(2, 1)]
        return Codes(angles, *rotations)

    def decode(self, codes):
        gaze, head = angles_of(codes.gaze), angles_of(codes.head)
        of = codes.app, gaze, head
        return torch.cat([self.gaze_of(*of), self.head_of(*of)], 1).reshape(-1, 1, 2, 2).expand(-1, 3, -1, -1)


class Reader(nn.Module):
    """A perfect estimator, or one with a fixed error for each label."""

    def __init__(self, off_deg=0.0):
        super().__init__()
        self.off = np.radians(off_deg)

    def forward(self, image):
        angles = image[:, 0].flatten(1)
        return angles + self.off * torch.sin(100 * angles)


def labels(count=STRIPS, seed=0):
    return np.random.default_rng(seed).normal(0, np.radians([8, 12, 6, 9]), (count, 4))


def rows_of(network, reader=None, people=("p00", "p01")):
    parts = []
    for number, person in enumerate(people):
        of, targets = labels(seed=number), draw_targets(0, STRIPS)
        image = torch.from_numpy(of).reshape(-1, 1, 2, 2).expand(-1, 3, -1, -1)
        images = dict(redirect(network, image, of, targets)) | {"real": image[targets]}
        rows = evaluate_person(reader or Reader(), images, of, targets)
        parts.append(rows.assign(dataset="mpiigaze", person=person))
    return pd.concat(parts, ignore_index=True)


def perfect(**changes):
    return Network(**{"gaze_of": lambda app, gaze, head: gaze, "head_of": lambda app, gaze, head: head} | changes)


def mean(rows, variant, number):
    found = by_variant(rows)
    return found[found["variant"] == variant][number].mean()


def test_a_perfect_decoder_has_no_error_and_gain_one():
    rows = rows_of(perfect())
    for variant in ("real", "redirected"):
        assert mean(rows, variant, "gaze_error_deg") == pytest.approx(0, abs=1e-9), variant
        assert mean(rows, variant, "head_error_deg") == pytest.approx(0, abs=1e-9), variant
    gains = by_variant(rows).set_index("variant")[["gaze_gain", "head_gain"]]
    assert gains.loc[["redirected", "real"]].to_numpy() == pytest.approx(1, abs=1e-12)
    assert gains.loc["not_turned"].isna().all(axis=None)
    requested = angle(labels()[draw_targets(0, STRIPS)][:, :2], labels()[:, :2]).mean()
    found = by_variant(rows).set_index(["person", "variant"])
    assert found.loc[("p00", "not_turned"), "gaze_error_deg"] == pytest.approx(requested, abs=1e-9)


def angle(a, b):
    """Compute angles between directions in plain numpy, by the chord."""

    def vector(p, y):
        return np.stack([np.cos(p) * np.sin(y), np.sin(p), np.cos(p) * np.cos(y)], 1)

    chord = np.linalg.norm(vector(*a.T) - vector(*b.T), axis=1)
    return np.degrees(2 * np.arcsin(chord / 2))


def test_every_number_again_in_plain_numpy():
    mixed = perfect(
        gaze_of=lambda app, gaze, head: app[:, :2] + 0.6 * (gaze - app[:, :2]) + 0.2 * head + 0.01,
        head_of=lambda app, gaze, head: 0.7 * head + 0.1 * gaze,
    )
    rows = rows_of(mixed, Reader(2.0))
    of_variant = by_variant(rows)
    for person in ("p00", "p01"):
        some = rows[rows["person"] == person]
        part = {v: some[some["variant"] == v].reset_index(drop=True) for v in ("real", "not_turned", "redirected")}

        def columns(variant, kind, factor, part=part):
            return part[variant][[f"{kind}_{factor}_pitch", f"{kind}_{factor}_yaw"]].to_numpy()

        for factor in ("gaze", "head"):
            requested = np.degrees(columns("redirected", "wanted", factor) - columns("redirected", "own", factor))
            turned = np.degrees(columns("redirected", "seen", factor) - columns("not_turned", "seen", factor))
            design = np.zeros((2 * STRIPS, 3))  # one gain, a constant of each axis
            design[:, 0], design[::2, 1], design[1::2, 2] = requested.ravel(), 1, 1
            gain = np.linalg.lstsq(design, turned.ravel(), rcond=None)[0][0]
            found = of_variant[(of_variant["person"] == person) & (of_variant["variant"] == "redirected")]
            assert found[f"{factor}_gain"].to_numpy() == pytest.approx([gain], abs=1e-9)
            for variant in part:
                row = of_variant[(of_variant["person"] == person) & (of_variant["variant"] == variant)].iloc[0]
                seen = columns(variant, "seen", factor)
                error = angle(seen, columns(variant, "wanted", factor)).mean()
                assert row[f"{factor}_error_deg"] == pytest.approx(error, abs=1e-9)


@pytest.mark.parametrize("strips", [2, 3, 30])
def test_targets_are_other_strips_and_depend_on_seed_and_number_only(strips):
    targets = draw_targets(7, strips)
    assert (targets != np.arange(strips)).all() and set(targets) <= set(range(strips))
    assert (draw_targets(7, strips) == targets).all()
    assert strips < 30 or ((draw_targets(8, strips) != targets).any() and len(set(targets)) > 10)
    if strips == 3:  # each of the others is drawn
        drawn = np.array([draw_targets(seed, 3) for seed in range(30)]).T
        assert [set(column) for column in drawn.tolist()] == [{1, 2}, {0, 2}, {0, 1}]


def test_strips_are_chosen_from_all_entries():
    assert chosen(5, 30).tolist() == [0, 1, 2, 3, 4]
    assert chosen(100, 4).tolist() == [0, 33, 66, 99]
