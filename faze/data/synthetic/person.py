"""A synthetic person: anatomy, colours, and deviations of eyes and annotation.

`sample_person` draws the `simple` people, who differ mainly by a constant angle; those of
`faze.data.synthetic.measured_person` have published distributions.

Head frame: origin midway between the inner eye corners, x right and y down as a camera sees the face, z into the head;
mm. Eye 0 is on the image's left (the person's right). `faze.base.geometry` defines the signs of pitch and yaw.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from faze.data.synthetic.spectacles import Spectacles

KAPPA_NASAL_DEG = 5.0  # mean angle of the visual axis to the optical axis: toward the nose ...
KAPPA_UP_DEG = 1.5  # ... and upward

# Streams of random numbers: each aspect of a person has its own, so that aspects do not affect each other.
ANATOMY, SKIN, SCENE, ROOM, PIXELS, FILES = range(6)
# The seed of each domain's people. Test people had 0 and 3 until defaults had been tuned on them; today's are new, and
# tuning uses val people only (decision 10).
DOMAINS = {"mpiigaze_test": 4, "gazecapture_train": 1, "gazecapture_val": 2, "gazecapture_test": 5}

_SKINS = np.array([[243, 208, 184], [230, 186, 158], [214, 167, 135], [190, 138, 104], [150, 103, 74], [104, 70, 52]])
_IRISES = np.array([[50, 33, 23], [72, 50, 33], [96, 76, 46], [92, 98, 70], [88, 112, 128], [116, 136, 148]])
_HAIRS = np.array([[24, 20, 20], [44, 32, 26], [78, 56, 40], [128, 96, 62], [112, 108, 106]])


def random(seed: int, domain: str, index: int, stream: int, *more: int) -> np.random.Generator:
    """Start a stream of random numbers that depends only on the arguments."""
    return np.random.default_rng([seed, DOMAINS[domain], index, stream, *more])


@dataclass(frozen=True, eq=False)
class Lids:
    """Palpebral fissure of both eyes; heights from the line between the corners, looking straight ahead."""

    upper_mm: float
    lower_mm: float
    tilt_mm: float  # the outer corner above the inner one
    crease_mm: float  # fold above the upper margin
    follow: tuple[float, float]  # travel of the upper and lower margin per travel of the iris
    lashes: float  # 0..1


@dataclass(frozen=True, eq=False)
class Fixation:
    """Deviation of the point that a person looks at from the annotated dot."""

    screen_shift_mm: NDArray  # (2,) of the real screen, right and down, from the annotated geometry
    spread_deg: float  # standard deviation of fixations around the dot, along either axis


@dataclass(frozen=True, eq=False)
class SyntheticPerson:
    """A person to be rendered. Angles are (pitch, yaw) in radians; colours RGB 0..1."""

    inner_half_mm: float  # half the distance of the inner corners
    outer_half_mm: float  # ... and of the outer ones
    outer_depth_mm: float  # outer corners behind the inner ones
    eye_centres_mm: NDArray  # (2, 3) of the eyeballs
    mouth_mm: NDArray  # (2, 3) corners
    kappa_rad: NDArray  # (2, 2) visual minus optical axis per eye, in the head frame
    gaze_bias_rad: NDArray  # (2,) annotated minus true gaze, a rotation in the camera frame
    head_bias_rad: NDArray  # (2,) the same of the head pose
    lids: tuple[Lids, Lids]
    pupil_mm: float
    skin: NDArray  # (3,)
    iris: NDArray  # (3,)
    sclera: NDArray  # (3,)
    hair: NDArray  # (3,)
    brow_height_mm: float  # above the eye
    brow_weight: float  # 0..1, how dense
    eyeball_mm: float = 12.0  # radius of the sphere around the eye's centre of rotation
    iris_mm: float = 5.9  # radius
    spectacles: Spectacles | None = None
    fixation: Fixation | None = None  # None: the annotated direction deviates only by gaze_bias_rad

    @property
    def corners_mm(self) -> NDArray:
        """Return the eye corners (4, 3) from the image's left to right: outer, inner, inner, outer."""
        inner, outer = self.inner_half_mm, self.outer_half_mm
        rim = [outer, -self.lids[0].tilt_mm, self.outer_depth_mm]
        return np.array([[-rim[0], *rim[1:]], [-inner, 0.0, 0.0], [inner, 0.0, 0.0], rim])


def sample_person(rng: np.random.Generator, kappa_spread_deg: float, bias_deg: float) -> SyntheticPerson:
    """Draw a person.

    Args:
        rng: of this person's anatomy.
        kappa_spread_deg: standard deviation over eyes of kappa, along either axis.
        bias_deg: standard deviation over people of the annotation's bias of gaze and of head pose, along either axis.
    """
    eye_half = rng.normal(32.0, 1.5)
    inner_half, outer_half = eye_half - rng.normal(13.4, 0.5), eye_half + rng.normal(13.0, 0.5)
    depth, height = rng.normal(7.6, 0.7), rng.normal(-0.6, 0.4)
    nasal, up = rng.normal([KAPPA_NASAL_DEG, KAPPA_UP_DEG], kappa_spread_deg, (2, 2)).T
    # Nasal is toward +x for the eye on the left. A direction toward +x has negative yaw.
    kappa = np.radians(np.stack([up, nasal * [-1, 1]], axis=-1))
    gaze_bias, head_bias = np.radians(rng.normal(0.0, bias_deg, (2, 2)))
    mouth_half = rng.normal(25.0, 1.5)
    mouth_y = rng.normal(67.0, 2.5)
    tone = rng.uniform(0, len(_SKINS) - 1)
    hair = _blend(_HAIRS, rng.uniform(0, 1) if tone > 3 else rng.uniform(0, len(_HAIRS) - 1))
    iris = _blend(_IRISES, rng.uniform(0, 1.2) if tone > 3 else rng.uniform(0, len(_IRISES) - 1))
    return SyntheticPerson(
        inner_half_mm=inner_half,
        outer_half_mm=outer_half,
        outer_depth_mm=rng.normal(5.2, 0.5),
        eye_centres_mm=np.array([[-eye_half, height, depth], [eye_half, height, depth]]),
        mouth_mm=np.array([[-mouth_half, mouth_y, 2.0], [mouth_half, mouth_y, 2.0]]),
        kappa_rad=kappa,
        gaze_bias_rad=gaze_bias,
        head_bias_rad=head_bias,
        lids=(lids := _sample_lids(rng), lids),
        pupil_mm=rng.uniform(1.5, 2.6),
        skin=np.clip(_blend(_SKINS, tone) * rng.normal(1.0, 0.03, 3), 0, 1),
        iris=np.clip(iris * rng.normal(1.0, 0.08, 3), 0.04, 1),
        sclera=np.clip(np.array([0.93, 0.90, 0.88]) * rng.normal(1.0, 0.02) - [0.0, 0.02, 0.03] * rng.random(3), 0, 1),
        hair=hair,
        brow_height_mm=rng.normal(19.0, 1.6),
        brow_weight=rng.uniform(0.35, 1.0),
    )


def _sample_lids(rng: np.random.Generator) -> Lids:
    return Lids(
        upper_mm=float(np.clip(rng.normal(5.0, 0.6), 3.9, 6.4)),
        lower_mm=float(np.clip(rng.normal(5.2, 0.5), 4.2, 6.4)),
        tilt_mm=rng.normal(1.6, 0.9),
        crease_mm=rng.uniform(2.5, 6.0),
        follow=(rng.uniform(0.72, 0.92), rng.uniform(0.3, 0.5)),
        lashes=rng.uniform(0.4, 1.0),
    )


def _blend(palette: NDArray, position: float) -> NDArray:
    """Interpolate between two neighbouring colours of a palette."""
    lower = min(int(position), len(palette) - 2)
    return ((1 - position + lower) * palette[lower] + (position - lower) * palette[lower + 1]) / 255.0
