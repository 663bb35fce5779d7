"""People who differ as published measurements say: docs/explanation/people.md has each number's source.

Colours, brows and lashes are those of the `simple` people, of whom no such measurements were found.
"""

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from faze.data.synthetic.person import Fixation, Lids, SyntheticPerson, sample_person
from faze.data.synthetic.setting import Spread
from faze.data.synthetic.spectacles import Spectacles

# How people differ. Names that end in a unit are of one number; the page has a row, with its source, for each.
PEOPLE = {
    "interpupillary_mm": Spread(63.0, 3.6, 52, 76),
    "fissure_width_mm": Spread(26.4, 1.7, 22, 31),
    "eyeball_mm": Spread(12.0, 0.85, 9.8, 14.2),  # centre of rotation to the front of the sclera's sphere
    "iris_mm": Spread(5.86, 0.21, 5.2, 6.3),
    "pupil_mm": Spread(2.0, 0.45, 1.0, 3.4),
    "kappa_nasal_deg": Spread(5.3, 1.6),
    "kappa_up_deg": Spread(2.0, 1.5),
    "kappa_nasal_between_eyes_deg": Spread(0.0, 0.75),
    "kappa_up_between_eyes_deg": Spread(0.0, 0.6),
    "upper_lid_mm": Spread(3.5, 0.9, 1.6, 6.2),  # MRD1
    "lower_lid_mm": Spread(5.4, 0.7, 3.6, 7.0),  # MRD2
    "fissure_between_eyes_mm": Spread(0.0, 0.53, -1.8, 1.8),
    "upper_lid_follow": Spread(0.95, 0.08, 0.7, 1.1),  # travel of the margin per travel of the iris
    "lower_lid_follow": Spread(0.55, 0.08, 0.3, 0.8),
    "refraction_dioptres": Spread(-0.65, 2.38, -9, 5),
    "refraction_between_eyes_dioptres": Spread(0.0, 0.33),
    "vertex_mm": Spread(13.0, 1.0, 10, 16),
    "lens_width_mm": Spread(52.0, 3.0, 44, 62),
    "lens_height_mm": Spread(36.0, 4.0, 26, 46),
    "lens_below_eye_mm": Spread(2.0, 1.5),
    "lens_beside_eye_mm": Spread(0.0, 1.0),
    "screen_shift_mm": Spread(0.0, 3.0),
    "fixation_deg": Spread(0.36, 0.15, 0.07, 0.79),
    "head_bias_deg": Spread(0.0, 2.0),
}
WEARERS, LEAST_DIOPTRES = 0.41, 0.5  # share of people who wear spectacles; weaker ones nobody wears
COATED, REFLECTANCE, RIMLESS = 0.5, (0.08, 0.01), 0.15  # share of lenses; plain and coated; share of spectacles
KAPPA_PER_DIOPTRE_DEG = 0.16
UPPER_SHARE = 0.5  # of a difference between the eyes' fissures: the upper lids' share

_IRIS_DEPTH_MM = 10.45  # of the iris's plane before the eyeball's centre, in the mean eye
_APEX_MM = 13.3  # of the cornea before it
_RIMS = np.array([[0.05, 0.05, 0.06], [0.16, 0.10, 0.07], [0.45, 0.36, 0.24], [0.55, 0.56, 0.58], [0.30, 0.12, 0.12]])


def sample_measured_person(rng: np.random.Generator) -> SyntheticPerson:
    """Draw a person."""
    person = sample_person(rng, kappa_spread_deg=0.0, bias_deg=0.0)
    one = {name: spread.draw(rng) for name, spread in PEOPLE.items()}
    half, width = one["interpupillary_mm"] / 2, one["fissure_width_mm"]
    deeper = one["eyeball_mm"] - 12.0  # the cornea stays where it is: a larger eye reaches further back
    centre = np.array([half, person.eye_centres_mm[1, 1], person.eye_centres_mm[1, 2] + deeper])
    wears, dioptres = rng.random() < WEARERS, one["refraction_dioptres"]
    measured = replace(
        person,
        inner_half_mm=half - 0.5 * width,
        outer_half_mm=half + 0.5 * width,
        eye_centres_mm=centre * [[-1, 1, 1], [1, 1, 1]],
        kappa_rad=_kappa(one, dioptres),
        head_bias_rad=np.radians([PEOPLE["head_bias_deg"].draw(rng) for _ in range(2)]),
        lids=_lids(person.lids[0], one),
        pupil_mm=one["pupil_mm"],
        eyeball_mm=one["eyeball_mm"],
        iris_mm=one["iris_mm"],
        fixation=Fixation(np.array([PEOPLE["screen_shift_mm"].draw(rng) for _ in range(2)]), one["fixation_deg"]),
    )
    spectacles = _spectacles(rng, measured, one)  # drawn of everybody, so that who wears them moves nothing else
    return replace(measured, spectacles=spectacles) if wears else measured


def _kappa(one: Mapping[str, float], dioptres: float) -> NDArray:
    """Compute (2, 2) kappa of both eyes, pitch and yaw; a direction toward +x has negative yaw."""
    sides = np.array([-0.5, 0.5])
    nasal = one["kappa_nasal_deg"] + KAPPA_PER_DIOPTRE_DEG * dioptres + one["kappa_nasal_between_eyes_deg"] * sides
    up = one["kappa_up_deg"] + one["kappa_up_between_eyes_deg"] * sides
    return np.radians(np.stack([up, nasal * [-1, 1]], axis=-1))


def _lids(usual: Lids, one: Mapping[str, float]) -> tuple[Lids, Lids]:
    """Open both eyes, one a little wider than the other."""

    def of(side: float) -> Lids:
        wider = side * one["fissure_between_eyes_mm"]
        return replace(
            usual,
            upper_mm=max(one["upper_lid_mm"] + UPPER_SHARE * wider, 1.2),
            lower_mm=max(one["lower_lid_mm"] + (1 - UPPER_SHARE) * wider, 2.5),
            follow=(one["upper_lid_follow"], one["lower_lid_follow"]),
        )

    return of(-0.5), of(0.5)


def _spectacles(rng: np.random.Generator, person: SyntheticPerson, one: Mapping[str, float]) -> Spectacles:
    sides = np.array([-0.5, 0.5])
    refraction = one["refraction_dioptres"]
    power = np.copysign(max(abs(refraction), LEAST_DIOPTRES), refraction)
    power = power + one["refraction_between_eyes_dioptres"] * sides
    centre = person.eye_centres_mm[:, :2] + [[-one["lens_beside_eye_mm"], 0], [one["lens_beside_eye_mm"], 0]]
    centre[:, 1] += one["lens_below_eye_mm"]
    eye = person.eye_centres_mm[0, 2]
    deeper = person.eyeball_mm - 12.0
    plane = eye - _APEX_MM - deeper - one["vertex_mm"]
    rimless, coated = rng.random() < RIMLESS, rng.random() < COATED
    return Spectacles(
        power_dioptres=power,
        centre_mm=centre,
        plane_mm=float(plane),
        behind_mm=float(eye - _IRIS_DEPTH_MM - deeper - plane),
        half_mm=(one["lens_width_mm"] / 2, one["lens_height_mm"] / 2),
        rim_mm=0.0 if rimless else rng.uniform(0.5, 2.0),
        rim_rgb=_RIMS[rng.integers(len(_RIMS))] * rng.uniform(0.7, 1.2),
        reflectance=REFLECTANCE[int(coated)],
    )
