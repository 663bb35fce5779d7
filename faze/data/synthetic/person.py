"""A synthetic person: anatomy, colours, spectacles, kappa, fixation, and annotation errors.

docs/explanation/people.md contains the source of each number, except for colours, brows and lashes, of which no
published measurements were found.

Head frame: origin midway between the inner eye corners, x right and y down as a camera sees the face, z into the head;
mm. Eye 0 is on the image's left (the person's right). `faze.base.geometry` defines the signs of pitch and yaw.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from faze.data.synthetic.setting import Spread


@dataclass(frozen=True, eq=False)
class Spectacles:
    """One person's spectacles: thin lenses in a plane of constant z in the head frame; lens 0 is in front of eye 0."""

    power_dioptres: NDArray  # (2,)
    centre_mm: NDArray  # (2, 2) x, y of each lens's optical centre, which is its middle
    plane_mm: float  # z of both lenses
    behind_mm: float  # from the lenses to the irises, where the image is exact
    half_mm: tuple[float, float]  # half the width and height of a lens
    rim_mm: float
    rim_rgb: NDArray  # (3,) 0..1
    reflectance: float  # of both surfaces together, 0..1

    def apparent_target(self, eye_centres_mm: NDArray, target_mm: NDArray) -> NDArray:
        """Return the positions (N, 2, 3) at which the eyes (2, 3) see targets (N, 3) through the lenses."""
        behind = eye_centres_mm[:, 2:] - self.plane_mm  # (2, 1)
        before = (self.plane_mm - target_mm[:, 2])[:, None, None]  # (N, 1, 1)
        bend = (self.power_dioptres / 1000)[:, None] * before  # (N, 2, 1); slope per mm off the centre: Prentice's rule
        aside = target_mm[:, None, :2] - eye_centres_mm[:, :2] + bend * (eye_centres_mm[:, :2] - self.centre_mm)
        slope = aside / (behind + before - bend * behind)
        seen = eye_centres_mm[:, :2] + slope * (behind + before)
        return np.concatenate([seen, np.broadcast_to(target_mm[:, None, 2:], (*seen.shape[:2], 1))], axis=-1)


# Streams of random numbers: each aspect of a person has its own, so that aspects do not affect each other.
ANATOMY, SKIN, SCENE, ROOM, PIXELS, FILES = range(6)
# The seed of each domain's people. Test people had seeds 0 and 3 until defaults were tuned on them. The current seeds
# are new, and tuning uses only val people (decision 9).
_DOMAINS = {"mpiifacegaze_test": 4, "gazecapture_train": 1, "gazecapture_val": 2, "gazecapture_test": 5}
_FIRST_ID = {"train": 1, "val": 60001, "test": 80001}  # so that adding people to one split renames no others

_SKINS = np.array([[243, 208, 184], [230, 186, 158], [214, 167, 135], [190, 138, 104], [150, 103, 74], [104, 70, 52]])
_SCLERA = np.array([0.93, 0.90, 0.88])
_IRISES = np.array([[50, 33, 23], [72, 50, 33], [96, 76, 46], [92, 98, 70], [88, 112, 128], [116, 136, 148]])
_HAIRS = np.array([[24, 20, 20], [44, 32, 26], [78, 56, 40], [128, 96, 62], [112, 108, 106]])


@dataclass(frozen=True)
class Role:
    """One person to be rendered, determined by the seed and these three fields."""

    layout: str  # mpiifacegaze | gazecapture
    split: str
    index: int

    @property
    def person_id(self) -> str:
        """Return the name of the person's folder in the data set."""
        return f"p{self.index:02d}" if self.layout == "mpiifacegaze" else f"{_FIRST_ID[self.split] + self.index:05d}"

    def random(self, seed: int, stream: int, *more: int) -> np.random.Generator:
        """Start one of this person's random number streams."""
        return np.random.default_rng([seed, _DOMAINS[f"{self.layout}_{self.split}"], self.index, stream, *more])


@dataclass(frozen=True, eq=False)
class SyntheticPerson:
    """A person to be rendered. Angles are (pitch, yaw) in radians; colours are RGB, 0..1."""

    inner_half_mm: float  # half the distance between the inner corners
    outer_half_mm: float  # ... and between the outer ones
    outer_depth_mm: float  # from the inner corners back to the outer ones
    eye_centres_mm: NDArray  # (2, 3) of the eyeballs
    mouth_mm: NDArray  # (2, 3) corners
    kappa_rad: NDArray  # (2, 2) visual minus optical axis per eye, in the head frame
    head_bias_rad: NDArray  # (2,) annotated minus true head pose, a rotation in the camera frame
    head_below_mm: float  # ... and a shift along the head's y axis
    upper_lids_mm: NDArray  # (2,) heights from the line between the corners when looking straight ahead
    lower_lids_mm: NDArray  # (2,) the same, downward
    tilt_mm: float  # from the inner corner up to the outer one
    crease_mm: float  # from the upper margin up to the fold
    upper_lid_follow: float  # travel of the upper margin per travel of the iris
    lower_lid_follow: float
    lashes: float  # 0..1
    pupil_mm: float
    skin: NDArray  # (3,)
    iris: NDArray  # (3,)
    sclera: NDArray  # (3,)
    hair: NDArray  # (3,)
    brow_height_mm: float  # above the eye
    brow_weight: float  # 0..1, how dense
    eyeball_mm: float  # radius of the sphere around the eye's centre of rotation
    iris_mm: float  # radius
    screen_shift_mm: NDArray  # (2,) of the real screen, right and down, relative to the annotated one
    fixation_deg: float  # standard deviation of fixations around the annotated dot, along either axis
    spectacles: Spectacles | None = None

    @property
    def corners_mm(self) -> NDArray:
        """Return the eye corners (4, 3) from left to right in the image: outer, inner, inner, outer."""
        inner, outer = self.inner_half_mm, self.outer_half_mm
        rim = [outer, -self.tilt_mm, self.outer_depth_mm]
        return np.array([[-rim[0], *rim[1:]], [-inner, 0.0, 0.0], [inner, 0.0, 0.0], rim])


def _blend(palette: NDArray, position: float) -> NDArray:
    """Interpolate between two neighbouring colours of a palette."""
    lower = min(int(position), len(palette) - 2)
    return ((1 - position + lower) * palette[lower] + (position - lower) * palette[lower + 1]) / 255.0


# Distributions over people. docs/explanation/people.md contains a row with the source of each.
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
    "lower_lid_below_mm": Spread(2.2, 0.6, 0.7, 3.7),  # the line between the corners
    "upper_lid_mm": Spread(3.5, 0.9, 1.6, 6.2),  # MRD1, from the pupil up to the margin
    "lower_lid_mm": Spread(5.4, 0.8, 3.0, 7.8),  # MRD2, from the pupil down to the margin
    "fissure_between_eyes_mm": Spread(0.0, 0.53, -1.8, 1.8),
    "upper_lid_follow": Spread(0.9, 0.16, 0.5, 1.2),  # travel of the margin per travel of the iris
    "lower_lid_follow": Spread(0.55, 0.16, 0.1, 0.9),
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
    "head_below_mm": Spread(0.8, 0.3),  # annotated minus true head
    "sclera": Spread(0.7, 0.15, 0.45, 0.95),  # brightness: lids shade it
}
WEARERS, LEAST_DIOPTRES = 0.41, 0.5  # share of people who wear spectacles; minimum power of their lenses
COATED, REFLECTANCE, RIMLESS = 0.5, (0.08, 0.01), 0.15  # share coated; reflectance uncoated and coated; share rimless
KAPPA_PER_DIOPTRE_DEG = 0.16
ANNOTATED_FARTHER = 1.04  # so that irises in strips are as large as real ones
BROWN = 0.6  # share of people with brown irises, in addition to those with dark skin

_AS_MEASURED = (
    "eyeball_mm",
    "iris_mm",
    "pupil_mm",
    "upper_lid_follow",
    "lower_lid_follow",
    "fixation_deg",
    "head_below_mm",
)
_IRIS_DEPTH_MM = 10.45  # distance of the iris's plane from the eyeball's centre, in the mean eye
_APEX_MM = 13.3  # distance of the cornea from the eyeball's centre
_SIDES = np.array([-0.5, 0.5])  # each eye's share of a difference between the eyes
_RIMS = np.array([[0.05, 0.05, 0.06], [0.16, 0.10, 0.07], [0.45, 0.36, 0.24], [0.55, 0.56, 0.58], [0.30, 0.12, 0.12]])


def sample_person(rng: np.random.Generator) -> SyntheticPerson:
    """Sample a person."""
    eye_depth = rng.normal(7.6, 0.7)
    mouth_half, mouth_y = rng.normal(25.0, 1.5), rng.normal(67.0, 2.5)
    tone = rng.uniform(0, len(_SKINS) - 1)
    hair = _blend(_HAIRS, rng.uniform(0, 1) if tone > 3 else rng.uniform(0, len(_HAIRS) - 1))
    brown = tone > 3 or rng.random() < BROWN
    iris = _blend(_IRISES, rng.uniform(0, 1.2) if brown else rng.uniform(0, len(_IRISES) - 1))
    one = {name: spread.draw(rng) for name, spread in PEOPLE.items()}
    drawn = {name: one[name] for name in _AS_MEASURED} | {
        "outer_depth_mm": rng.normal(5.2, 0.5),
        "tilt_mm": rng.normal(1.6, 0.9),
        "crease_mm": rng.uniform(2.5, 6.0),
        "lashes": rng.uniform(0.4, 1.0),
        "skin": np.clip(_blend(_SKINS, tone) * rng.normal(1.0, 0.03, 3), 0, 1),
        "iris": np.clip(iris * rng.uniform(0.5, 1.0) * rng.normal(1.0, 0.08, 3), 0.04, 1),
        "sclera": one["sclera"] * _SCLERA - [0.0, 0.02, 0.03] * rng.random(3),
        "hair": hair,
        "brow_height_mm": rng.normal(19.0, 1.6),
        "brow_weight": rng.uniform(0.35, 1.0),
    }
    half, width = one["interpupillary_mm"] / 2, one["fissure_width_mm"]
    deeper = one["eyeball_mm"] - 12.0  # the cornea does not move: a larger eye extends further back
    wider = _SIDES * one["fissure_between_eyes_mm"] / 2  # per lid
    above = one["lower_lid_mm"] - one["lower_lid_below_mm"]  # the pupil, above the line between the corners
    eye_height = -above - drawn["tilt_mm"] / 2  # that line rises by the tilt
    wears = rng.random() < WEARERS
    person = SyntheticPerson(
        inner_half_mm=half - 0.5 * width,
        outer_half_mm=half + 0.5 * width,
        eye_centres_mm=np.array([half, eye_height, eye_depth + deeper]) * [[-1, 1, 1], [1, 1, 1]],
        mouth_mm=np.array([[-mouth_half, mouth_y, 2.0], [mouth_half, mouth_y, 2.0]]),
        kappa_rad=_kappa(one),
        head_bias_rad=np.radians([PEOPLE["head_bias_deg"].draw(rng) for _ in range(2)]),
        upper_lids_mm=one["upper_lid_mm"] + wider + above,
        lower_lids_mm=one["lower_lid_below_mm"] + wider,
        screen_shift_mm=np.array([PEOPLE["screen_shift_mm"].draw(rng) for _ in range(2)]),
        **drawn,
    )
    spectacles = _spectacles(rng, person, one)  # drawn for everybody, so that wearing them changes no other draw
    return replace(person, spectacles=spectacles) if wears else person


def _kappa(one: Mapping[str, float]) -> NDArray:
    """Compute each eye's angle kappa as (pitch, yaw), (2, 2); a direction toward +x has negative yaw."""
    nasal = one["kappa_nasal_deg"] + KAPPA_PER_DIOPTRE_DEG * one["refraction_dioptres"]
    nasal = nasal + one["kappa_nasal_between_eyes_deg"] * _SIDES
    up = one["kappa_up_deg"] + one["kappa_up_between_eyes_deg"] * _SIDES
    return np.radians(np.stack([up, nasal * [-1, 1]], axis=-1))


def _spectacles(rng: np.random.Generator, person: SyntheticPerson, one: Mapping[str, float]) -> Spectacles:
    refraction = one["refraction_dioptres"]
    power = np.copysign(max(abs(refraction), LEAST_DIOPTRES), refraction)
    power = power + one["refraction_between_eyes_dioptres"] * _SIDES
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
