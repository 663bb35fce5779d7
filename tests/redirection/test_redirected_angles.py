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
from faze.evaluation.redirected_angles import BINS_DEG, by_angle, by_variant, turning
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
        rows = evaluate_person(reader or Reader(), images, of, targets, np.arange(0))
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
    turned = turning(rows)
    assert turned[["gaze_gain", "head_gain"]].to_numpy() == pytest.approx(1, abs=1e-12)
    requested = angle(labels()[draw_targets(0, STRIPS)][:, :2], labels()[:, :2]).mean()
    found = by_variant(rows).set_index(["person", "variant"])
    assert found.loc[("p00", "not_turned"), "gaze_error_deg"] == pytest.approx(requested, abs=1e-9)


def test_an_estimator_that_shrinks_angles_shrinks_the_gain_of_real_strips_too():
    class Shrinking(nn.Module):
        def forward(self, image):
            return image[:, 0].flatten(1) * image.new_tensor([0.7, 0.7, 0.4, 0.4]) + 0.05

    turned = turning(rows_of(perfect(), Shrinking()))
    for factor, gain in (("gaze", 0.7), ("head", 0.4)):
        assert turned[f"{factor}_gain"].to_numpy() == pytest.approx(gain, abs=1e-9)
        assert turned[f"{factor}_gain_real"].to_numpy() == pytest.approx(gain, abs=1e-9)
        assert turned[f"{factor}_gain_rendered"].isna().all()  # nobody is rendered here


def test_rows_of_rendered_strips_are_those_of_their_pairs():
    """The images of the control `rendered` may show only some of the pairs, in any order."""
    of, targets, rendered = labels(), draw_targets(0, STRIPS), np.array([7, 2, 31])
    image = torch.from_numpy(of).reshape(-1, 1, 2, 2).expand(-1, 3, -1, -1)
    images = {"real": image[targets], "rendered": image[targets[rendered]]}
    rows = evaluate_person(Reader(), images, of, targets, rendered)
    some = rows[rows["variant"] == "rendered"]
    assert some["pair"].tolist() == [7, 2, 31]
    for kind, wanted in (("own", of[rendered]), ("wanted", of[targets[rendered]]), ("seen", of[targets[rendered]])):
        columns = [f"{kind}_{angle}" for angle in ("gaze_pitch", "gaze_yaw", "head_pitch", "head_yaw")]
        np.testing.assert_allclose(some[columns].to_numpy(float), wanted, atol=1e-12)
    assert (some["l1"] == 0).all()


def test_a_decoder_that_ignores_gaze_has_no_gain():
    rows = rows_of(perfect(gaze_of=lambda app, gaze, head: app[:, :2]))
    turned = turning(rows)
    assert turned["gaze_gain"].to_numpy() == pytest.approx(0, abs=1e-12)
    assert turned[["gaze_gain_real", "head_gain_real"]].to_numpy() == pytest.approx(1, abs=1e-12)  # the estimator's
    assert mean(rows, "redirected", "gaze_error_deg") == pytest.approx(
        mean(rows, "not_turned", "gaze_error_deg"), abs=1e-9
    )
    assert turned["head_gain"].to_numpy() == pytest.approx(1, abs=1e-12)


def test_a_decoder_that_copies_b_has_the_error_of_real_strips():
    rows = rows_of(perfect(), Reader(NOISE_DEG))
    for factor in ("gaze", "head"):
        lower_bound = mean(rows, "real", f"{factor}_error_deg")
        assert lower_bound > 0.5
        assert mean(rows, "redirected", f"{factor}_error_deg") == pytest.approx(lower_bound, abs=1e-6)
        assert mean(rows, "redirected", f"{factor}_to_real_deg") == pytest.approx(0, abs=1e-6)
        assert mean(rows, "real", f"{factor}_to_real_deg") == 0
    assert mean(rows, "redirected", "l1") == pytest.approx(0, abs=1e-9)
    assert mean(rows, "not_turned", "l1") > 0.05
    assert np.isnan(mean(rows, "real", "l1"))


def test_gain_and_bias_are_fitted_separately():
    constant = torch.tensor([0.02, -0.03], dtype=torch.float64)

    def half(app, gaze, head):
        turned = (gaze - app[:, :2]).abs().sum(1, keepdim=True) > 1e-9
        return app[:, :2] + 0.5 * (gaze - app[:, :2]) + constant * turned

    turned = turning(rows_of(perfect(gaze_of=half)))
    assert turned["gaze_gain"].to_numpy() == pytest.approx(0.5, abs=1e-9)
    assert turned["gaze_bias_pitch_deg"].to_numpy() == pytest.approx(np.degrees(0.02), abs=1e-9)
    assert turned["gaze_bias_yaw_deg"].to_numpy() == pytest.approx(np.degrees(-0.03), abs=1e-9)


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
    of_variant, of_person = by_variant(rows), turning(rows)
    for number, person in enumerate(("p00", "p01")):
        some = rows[rows["person"] == person]
        part = {v: some[some["variant"] == v].reset_index(drop=True) for v in ("real", "not_turned", "redirected")}

        def columns(variant, kind, factor, part=part):
            return part[variant][[f"{kind}_{factor}_pitch", f"{kind}_{factor}_yaw"]].to_numpy()

        for factor in ("gaze", "head"):
            requested = np.degrees(columns("redirected", "wanted", factor) - columns("redirected", "own", factor))
            turned = np.degrees(columns("redirected", "seen", factor) - columns("not_turned", "seen", factor))
            design = np.zeros((2 * STRIPS, 3))  # one gain, a constant of each axis
            design[:, 0], design[::2, 1], design[1::2, 2] = requested.ravel(), 1, 1
            gain, pitch, yaw = np.linalg.lstsq(design, turned.ravel(), rcond=None)[0]
            found = of_person.iloc[number]
            names = [f"{factor}_{name}" for name in ("gain", "bias_pitch_deg", "bias_yaw_deg")]
            assert found[names].to_numpy(float) == pytest.approx([gain, pitch, yaw], abs=1e-9)
            for variant in part:
                row = of_variant[(of_variant["person"] == person) & (of_variant["variant"] == variant)].iloc[0]
                seen = columns(variant, "seen", factor)
                error = angle(seen, columns(variant, "wanted", factor)).mean()
                assert row[f"{factor}_error_deg"] == pytest.approx(error, abs=1e-9)
                to_real = angle(seen, columns("real", "seen", factor)).mean()
                assert row[f"{factor}_to_real_deg"] == pytest.approx(to_real, abs=1e-9)


def test_errors_by_the_requested_angle():
    rows = rows_of(perfect(gaze_of=lambda app, gaze, head: app[:, :2] + 0.5 * (gaze - app[:, :2])))
    table = by_angle(rows)
    gaze = table[(table["factor"] == "gaze") & (table["variant"] == "redirected")]
    assert gaze["from_deg"].tolist() == [d for d in BINS_DEG[:-1] if d in set(gaze["from_deg"])]
    assert gaze["pairs"].sum() == 2 * STRIPS
    redirected = rows[rows["variant"] == "redirected"]
    own, wanted = (redirected[[f"{kind}_gaze_pitch", f"{kind}_gaze_yaw"]].to_numpy(float) for kind in ("own", "wanted"))
    asked, person = angle(own, wanted), redirected["person"].to_numpy()
    uneven = 0
    for row in gaze.itertuples():
        within = (asked >= row.from_deg) & (asked < row.to_deg)
        of_people = [asked[within & (person == name)] for name in np.unique(person[within])]
        assert (row.people, row.pairs) == (len(of_people), within.sum())
        assert row.asked_deg == pytest.approx(np.mean([some.mean() for some in of_people]), abs=1e-9)  # people equally
        uneven += row.asked_deg != pytest.approx(asked[within].mean(), abs=1e-3)
        assert row.from_deg <= row.asked_deg < row.to_deg
        assert row.error_deg == pytest.approx(row.asked_deg / 2, rel=0.01)  # on a sphere, nearly
        assert row.turned_deg == pytest.approx(row.asked_deg / 2, rel=0.05)
    assert uneven, "no bin has another mean over pairs than over people"
    not_turned = table[(table["factor"] == "gaze") & (table["variant"] == "not_turned")]
    assert not_turned["error_deg"].to_numpy() == pytest.approx(not_turned["asked_deg"].to_numpy(), abs=1e-9)


@pytest.mark.parametrize(
    ("angle_deg", "edges_deg"),
    [(0, (0, 10)), (9.9, (0, 10)), (10.1, (10, 20)), (20.1, (20, 30)), (29.9, (20, 30)), (30.1, (30, 180))],
)
def test_a_requested_angle_is_in_the_bin_with_its_edges(angle_deg, edges_deg):
    asked = {f"{kind}_head_{axis}": 0.0 for kind in ("own", "wanted") for axis in ("pitch", "yaw")}
    table = by_angle(rows_of(perfect()).assign(**asked | {"wanted_head_yaw": np.radians(angle_deg)}))
    head = table[table["factor"] == "head"]
    assert len(head) == 3  # variants
    assert set(zip(head["from_deg"], head["to_deg"], strict=True)) == {edges_deg}


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
