"""People follow published distributions, wear realistic spectacles, and differ by more than an offset.

Regression: spectacles bent rays the wrong way, a lens was in front of the other eye, eyes fixated the dot exactly.
"""

import re
from pathlib import Path

import numpy as np
import pytest

from faze.config.validation import read_config
from faze.data.synthetic import setting
from faze.data.synthetic.layouts import truth
from faze.data.synthetic.people import Role, sample_frames
from faze.data.synthetic.person import PEOPLE, Spectacles, SyntheticPerson, sample_person

ROOT = Path(__file__).parents[2]
DEFAULT = read_config().synthetic.model_copy(update={"phone_train_frames": None})


@pytest.fixture(scope="module")
def people() -> list[SyntheticPerson]:
    return [sample_person(np.random.default_rng(k)) for k in range(1500)]


def spectacles(power_dioptres: float) -> Spectacles:
    return Spectacles(
        power_dioptres=np.array([power_dioptres, power_dioptres / 2]),
        centre_mm=np.array([[-31.0, 2.0], [32.0, 3.0]]),
        plane_mm=-18.0,
        behind_mm=15.0,
        half_mm=(26.0, 18.0),
        rim_mm=1.0,
        rim_rgb=np.zeros(3),
        reflectance=0.0,
    )


CENTRES = np.array([[-32.0, -0.5, 8.0], [32.0, -0.5, 8.0]])


@pytest.mark.parametrize("power", [-6.0, -1.0, 0.0, 4.0])
@pytest.mark.parametrize("target", [(0.0, 0.0, -500.0), (150.0, 120.0, -300.0), (-90.0, -20.0, -420.0)])
def test_eyes_turn_as_a_ray_through_the_lens_does(power: float, target: tuple[float, ...]) -> None:
    """Trace the ray in the opposite direction: out of the eye, bent at the lens, to the plane of the target."""
    worn = spectacles(power)
    apparent = worn.apparent_target(CENTRES, np.array([target]))[0]
    for eye, centre in enumerate(CENTRES):

        def misses(slope: np.ndarray, centre: np.ndarray = centre, eye: int = eye) -> np.ndarray:
            at_lens = centre[:2] + slope * (centre[2] - worn.plane_mm)
            bent = slope - worn.power_dioptres[eye] / 1000 * (at_lens - worn.centre_mm[eye])
            return at_lens + bent * (worn.plane_mm - target[2]) - target[:2]

        at_none, at_one = misses(np.zeros(2)), misses(np.ones(2))
        slope = -at_none / (at_one - at_none)  # it is linear
        assert apparent[eye] == pytest.approx([*(centre[:2] + slope * (centre[2] - target[2])), target[2]], abs=1e-6)


def test_people_are_spread_as_the_table_says(people: list[SyntheticPerson]) -> None:
    up, yaw = np.degrees([p.kappa_rad for p in people]).transpose(2, 0, 1)
    nasal = yaw * [-1, 1]
    upper, lower = (np.array([getattr(p, f"{lid}_lids_mm") for p in people]) for lid in ("upper", "lower"))
    # Both lids are at heights from the line between the corners; the pupil is above that line.
    above = np.array([-p.eye_centres_mm[0, 1] - p.tilt_mm / 2 for p in people])
    wearing = [p for p in people if p.spectacles]
    powers = np.array([p.spectacles.power_dioptres for p in wearing])
    found = {
        "interpupillary_mm": [p.eye_centres_mm[1, 0] - p.eye_centres_mm[0, 0] for p in people],
        "fissure_width_mm": [p.outer_half_mm - p.inner_half_mm for p in people],
        "kappa_up_deg": up.mean(axis=1),
        "kappa_up_between_eyes_deg": up[:, 1] - up[:, 0],
        "kappa_nasal_between_eyes_deg": nasal[:, 1] - nasal[:, 0],
        "lower_lid_below_mm": lower.mean(axis=1),
        "upper_lid_mm": upper.mean(axis=1) - above,
        "lower_lid_mm": lower.mean(axis=1) + above,
        "fissure_between_eyes_mm": (upper + lower)[:, 1] - (upper + lower)[:, 0],
        "upper_lid_follow": [p.upper_lid_follow for p in people],
        "lower_lid_follow": [p.lower_lid_follow for p in people],
        "head_bias_deg": np.degrees([p.head_bias_rad for p in people]).ravel(),
        "head_below_mm": [p.head_below_mm for p in people],
        "screen_shift_mm": np.concatenate([p.screen_shift_mm for p in people]),
        "lens_width_mm": [2 * p.spectacles.half_mm[0] for p in wearing],
        "lens_height_mm": [2 * p.spectacles.half_mm[1] for p in wearing],
        "refraction_between_eyes_dioptres": powers[:, 1] - powers[:, 0],
    }
    found |= {
        name: [getattr(p, name) for p in people] for name in ("eyeball_mm", "iris_mm", "pupil_mm", "fixation_deg")
    }
    for name, values in found.items():
        spread = PEOPLE[name]
        assert np.mean(values) == pytest.approx(spread.mean, abs=4.5 * spread.deviation / len(values) ** 0.5), name
        assert np.std(values) == pytest.approx(spread.deviation, rel=0.1), name
    of_refraction = 0.16 * PEOPLE["refraction_dioptres"].mean
    assert nasal.mean() == pytest.approx(PEOPLE["kappa_nasal_deg"].mean + of_refraction, abs=0.2)
    assert len(wearing) / len(people) == pytest.approx(0.41, abs=0.04)
    assert np.abs(powers.mean(axis=1)).min() == pytest.approx(0.5)  # weaker lenses are not worn
    turned = np.degrees([p.kappa_rad[:, 1] * [-1, 1] for p in wearing]).mean(axis=1)
    assert np.polyfit(powers.mean(axis=1), turned, 1)[0] == pytest.approx(0.16, abs=0.08)


def test_the_page_has_every_number_and_its_source() -> None:
    page = (ROOT / "docs/explanation/people.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `(\w+)` \| ([−\d.]+) \| ([\d.]+) \| .+ \|$", page, re.MULTILINE)
    told = {name: (float(mean.replace("−", "-")), float(deviation)) for name, mean, deviation in rows}
    distances = {name: getattr(setting, name) for name in ("PHONE_MM", "TABLET_MM", "LAPTOP_MM")}
    assert told == {name: (spread.mean, spread.deviation) for name, spread in (PEOPLE | distances).items()}


@pytest.mark.parametrize(
    "role", [Role("mpiifacegaze", "test", 1), Role("gazecapture", "train", 0)], ids=lambda r: r.layout
)
def test_eyes_rest_near_the_dot_on_a_screen_that_is_a_little_elsewhere(role: Role) -> None:
    frames = sample_frames(role, DEFAULT.model_copy(update={"frames_per_person": 4000}))
    scene, person = frames.scene, frames.person
    axes = np.stack([frames.setting.screens[index].rotation for index in scene.screen])
    off = np.einsum("nij,ni->nj", axes, scene.true_target_mm - scene.target_mm)
    assert np.abs(off[:, 2]).max() < 1e-9  # in the screen's plane
    reach = np.linalg.norm(scene.target_mm - scene.origin_mm, axis=1)
    around = np.degrees(np.arctan((off[:, :2] - person.screen_shift_mm) / reach[:, None]))
    for part in (reach < np.median(reach), reach > np.median(reach)):  # an angle, whatever the distance
        assert around[part].std() == pytest.approx(person.fixation_deg, rel=0.03)
    assert np.abs(around.mean(axis=0)).max() < 4 * person.fixation_deg / 20
    known = truth(frames)
    assert np.array_equal(known["gaze_target_mm"], scene.true_target_mm)
