"""Measured people follow published distributions, wear realistic spectacles, and differ by more than an offset.

Regression: spectacles bent rays the wrong way, a lens was in front of the other eye, eyes fixated the dot exactly.
"""

import dataclasses
import re
from pathlib import Path

import numpy as np
import pytest

from faze.base.geometry import pitchyaw_from_vector, vector_from_pitchyaw
from faze.config.parameters import Synthetic
from faze.config.yaml_files import read_yaml
from faze.data.synthetic import person, setting
from faze.data.synthetic.layouts import truth
from faze.data.synthetic.people import Role, render_frames, sample_frames
from faze.data.synthetic.person import PEOPLE, Spectacles, SyntheticPerson, sample_measured_person

ROOT = Path(__file__).parents[2]
VALUES = read_yaml(ROOT / "config" / "config.yaml")["synthetic"]
MEASURED = Synthetic(**VALUES | {"people": "measured", "gazecapture_train_frames": None})
SIMPLE = dataclasses.replace(MEASURED, people="simple")
TINY = dataclasses.replace(MEASURED, frames_per_person=8)


@pytest.fixture(scope="module")
def people() -> list[SyntheticPerson]:
    return [sample_measured_person(np.random.default_rng(k)) for k in range(1500)]


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


def test_a_myopes_eyes_turn_less_by_the_textbooks_ratio() -> None:
    """For a distant target, the ratio is 1 / (1 - c F); the centre of rotation is c behind the lens, whose power is
    F."""
    far = np.array([[0.0, 0.0, -1e7], [2e6, 0.0, -1e7]])
    centred = dataclasses.replace(spectacles(-4.0), power_dioptres=np.full(2, -4.0), centre_mm=CENTRES[:, :2])
    turned = pitchyaw_from_vector(CENTRES - centred.apparent_target(CENTRES, far))[:, :, 1]
    ratio = np.tan(turned[1] - turned[0]) / 0.2
    assert np.abs(ratio) == pytest.approx(1 / (1 + 0.026 * 4.0), rel=1e-3)


@pytest.mark.parametrize(("power", "smaller"), [(-5.0, True), (5.0, False)])
def test_the_camera_sees_a_myopes_eyes_smaller(power: float, smaller: bool) -> None:
    """Compare the point where a camera ray meets the iris plane with that of a thin lens, computed by hand."""
    worn, camera = spectacles(power), np.array([0.0, 0.0, -300.0])
    point = np.array([-31.0 + 6.0, 2.0, worn.plane_mm])  # on the left lens, 6 mm off its centre
    ray = (point - camera).astype(np.float32)[None, None]
    bent = worn.bend(worn.meet(camera, ray), camera, ray)[0, 0]
    depth = worn.plane_mm + worn.behind_mm
    landed = camera[:2] + bent[:2] * (depth - camera[2]) / bent[2]
    slope = (point - camera)[:2] / (point - camera)[2] - power / 1000 * np.array([6.0, 0.0])
    assert landed == pytest.approx(point[:2] + slope * worn.behind_mm, abs=1e-3)
    straight = camera[:2] + ray[0, 0, :2] * (depth - camera[2]) / ray[0, 0, 2]
    assert (abs(landed[0] + 31) > abs(straight[0] + 31)) == smaller  # a wider part of the face in the same pixels


def test_beside_the_lenses_nothing_is_bent() -> None:
    worn, camera = spectacles(-8.0), np.array([0.0, 0.0, -300.0])
    points = np.array([[0.0, 2.0, -18.0], [-31.0, 30.0, -18.0], [75.0, 0.0, -18.0]])
    rays = (points - camera).astype(np.float32)[None]
    bent = worn.bend(worn.meet(camera, rays), camera, rays)
    np.testing.assert_allclose(bent / bent[..., 2:], rays / rays[..., 2:], atol=1e-6)


def test_people_are_spread_as_the_table_says(people: list[SyntheticPerson]) -> None:
    def check(name: str, found: list[float] | np.ndarray) -> None:
        spread, found = PEOPLE[name], np.asarray(found)
        assert found.mean() == pytest.approx(spread.mean, abs=4.5 * spread.deviation / len(found) ** 0.5), name
        assert found.std() == pytest.approx(spread.deviation, rel=0.1), name

    check("interpupillary_mm", [p.eye_centres_mm[1, 0] - p.eye_centres_mm[0, 0] for p in people])
    check("fissure_width_mm", [p.outer_half_mm - p.inner_half_mm for p in people])
    check("eyeball_mm", [p.eyeball_mm for p in people])
    check("iris_mm", [p.iris_mm for p in people])
    up, yaw = np.degrees([p.kappa_rad for p in people]).transpose(2, 0, 1)
    nasal = yaw * [-1, 1]
    check("kappa_up_deg", up.mean(axis=1))
    check("kappa_up_between_eyes_deg", up[:, 1] - up[:, 0])
    check("kappa_nasal_between_eyes_deg", nasal[:, 1] - nasal[:, 0])
    check("pupil_mm", [p.pupil_mm for p in people])
    check("lower_lid_mm", [np.mean([lids.lower_mm for lids in p.lids]) for p in people])
    check("upper_lid_follow", [p.lids[0].follow[0] for p in people])
    check("lower_lid_follow", [p.lids[0].follow[1] for p in people])
    check("fixation_deg", [p.fixation.spread_deg for p in people])
    check("head_bias_deg", np.degrees([p.head_bias_rad for p in people]).ravel())
    of_refraction = 0.16 * PEOPLE["refraction_dioptres"].mean
    assert nasal.mean() == pytest.approx(PEOPLE["kappa_nasal_deg"].mean + of_refraction, abs=0.2)
    heights = np.array([[lids.upper_mm + lids.lower_mm for lids in p.lids] for p in people])
    check("fissure_between_eyes_mm", heights[:, 1] - heights[:, 0])
    check("upper_lid_mm", [np.mean([lids.upper_mm for lids in p.lids]) for p in people])
    check("screen_shift_mm", np.concatenate([p.fixation.screen_shift_mm for p in people]))
    wearing = [p for p in people if p.spectacles]
    assert len(wearing) / len(people) == pytest.approx(0.41, abs=0.04)
    check("lens_width_mm", [2 * p.spectacles.half_mm[0] for p in wearing])
    check("lens_height_mm", [2 * p.spectacles.half_mm[1] for p in wearing])
    powers = np.array([p.spectacles.power_dioptres for p in wearing])
    check("refraction_between_eyes_dioptres", powers[:, 1] - powers[:, 0])
    assert np.abs(powers.mean(axis=1)).min() == pytest.approx(0.5)  # weaker lenses are not worn
    turned = np.degrees([p.kappa_rad[:, 1] * [-1, 1] for p in wearing]).mean(axis=1)
    assert np.polyfit(powers.mean(axis=1), turned, 1)[0] == pytest.approx(0.16, abs=0.08)


def test_the_page_has_every_number_and_its_source() -> None:
    page = (ROOT / "docs/explanation/people.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `(\w+)` \| ([−\d.]+) \| ([\d.]+) \| .+ \|$", page, re.MULTILINE)
    told = {name: (float(mean.replace("−", "-")), float(deviation)) for name, mean, deviation in rows}
    distances = {name: getattr(setting, name) for name in ("PHONE_MM", "TABLET_MM", "LAPTOP_MM")}
    assert told == {name: (spread.mean, spread.deviation) for name, spread in (PEOPLE | distances).items()}


def test_who_wears_spectacles_differs_by_them_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    def drawn(share: float) -> dict[str, object]:
        monkeypatch.setattr(person, "WEARERS", share)
        return vars(sample_measured_person(np.random.default_rng(3)))

    bare, wearing = drawn(0.0), drawn(1.0)
    assert bare["spectacles"] is None and wearing["spectacles"] is not None
    for name in bare.keys() - {"spectacles", "lids", "fixation"}:
        np.testing.assert_array_equal(bare[name], wearing[name], err_msg=name)
    assert list(map(vars, bare["lids"])) == list(map(vars, wearing["lids"]))
    np.testing.assert_array_equal(bare["fixation"].screen_shift_mm, wearing["fixation"].screen_shift_mm)
    assert bare["fixation"].spread_deg == wearing["fixation"].spread_deg


@pytest.mark.parametrize(
    "role", [Role("mpiifacegaze", "test", 1), Role("gazecapture", "train", 0)], ids=lambda r: r.domain
)
def test_eyes_rest_near_the_dot_on_a_screen_that_is_a_little_elsewhere(role: Role) -> None:
    frames = sample_frames(role, dataclasses.replace(MEASURED, frames_per_person=4000))
    scene, fixation = frames.scene, frames.person.fixation
    axes = np.stack([frames.setting.screens[index].rotation for index in scene.screen])
    off = np.einsum("nij,ni->nj", axes, scene.true_target_mm - scene.target_mm)
    assert np.abs(off[:, 2]).max() < 1e-9  # in the screen's plane
    reach = np.linalg.norm(scene.target_mm - scene.origin_mm, axis=1)
    around = np.degrees(np.arctan((off[:, :2] - fixation.screen_shift_mm) / reach[:, None]))
    for part in (reach < np.median(reach), reach > np.median(reach)):  # an angle, whatever the distance
        assert around[part].std() == pytest.approx(fixation.spread_deg, rel=0.03)
    assert np.abs(around.mean(axis=0)).max() < 4 * fixation.spread_deg / 20
    known = truth(frames)
    assert np.array_equal(known["gaze_target_mm"], scene.true_target_mm)


def test_annotated_heads_of_measured_people_are_lower_and_farther() -> None:
    frames = sample_frames(Role("gazecapture", "train", 0), dataclasses.replace(MEASURED, frames_per_person=40))
    scene = frames.scene
    scale = 1.04 * 45.6 / frames.person.outer_half_mm
    in_head = np.einsum("nji,nj->ni", scene.rotation, scene.annotated_origin_mm / scale - scene.origin_mm)
    np.testing.assert_allclose(in_head, np.tile([0.0, 2.0, 0.0], (40, 1)), atol=1e-9)


def slopes(synthetic: Synthetic, count: int = 24) -> np.ndarray:
    """Return the rotation of each person's irises, as the user sees it, per degree of labelled yaw."""
    found = []
    for index in range(count):
        frames = sample_frames(Role("gazecapture", "train", index), synthetic)
        person, scene = frames.person, frames.scene
        in_head = np.einsum("nji,nj->ni", scene.rotation, scene.target_mm - scene.annotated_origin_mm)
        wanted = pitchyaw_from_vector(-in_head)[:, 1]
        shown = person.eyeball_mm / 12.0 * np.sin(pitchyaw_from_vector(-scene.optical_in_head.mean(axis=1))[:, 1])
        found.append(np.polyfit(np.sin(wanted), shown, 1)[0])
    return np.array(found)


def test_measured_people_differ_by_slope_and_simple_ones_hardly() -> None:
    few = {"frames_per_person": 60}
    measured = slopes(dataclasses.replace(MEASURED, **few))
    simple = slopes(dataclasses.replace(SIMPLE, **few))
    assert measured.std() > 0.06 > 0.02 > simple.std()


def test_simple_people_are_those_of_before() -> None:
    """Scenes and averaged frames are the same as before measured people were added."""
    with np.load(ROOT / "tests/golden/simple_people.npz") as before:
        for role in (Role("mpiifacegaze", "test", 1), Role("gazecapture", "train", 2), Role("gazecapture", "test", 3)):
            key = role.domain.replace("mpiifacegaze", "mpiigaze")  # as the data set was called before
            frames = sample_frames(role, dataclasses.replace(SIMPLE, frames_per_person=4))
            np.testing.assert_allclose(frames.scene.true_target_mm, before[f"{key}/target_mm"], atol=1e-9)
            np.testing.assert_allclose(frames.scene.optical_in_head, before[f"{key}/optical"], atol=1e-12)
            image = next(render_frames(role, frames, SIMPLE.seed)).astype(np.float64)
            blocks = [part.mean() for row in np.array_split(image, 8) for part in np.array_split(row, 8, axis=1)]
            np.testing.assert_allclose(blocks, before[f"{key}/blocks"], atol=0.05)


def test_kappa_of_a_pupil_that_looks_straight_on_is_the_optical_axis() -> None:
    """With spectacles, the visual axis points at the apparent target, and kappa is its angle to the iris."""
    frames = next(f for k in range(40) if (f := sample_frames(Role("gazecapture", "train", k), TINY)).person.spectacles)
    person, scene = frames.person, frames.scene
    in_head = np.einsum("nji,nj->ni", scene.rotation, scene.true_target_mm - scene.origin_mm)
    visual = -vector_from_pitchyaw(pitchyaw_from_vector(-scene.optical_in_head) + person.kappa_rad)
    aimed = person.spectacles.apparent_target(person.eye_centres_mm, in_head) - person.eye_centres_mm
    np.testing.assert_allclose(visual, aimed / np.linalg.norm(aimed, axis=-1, keepdims=True), atol=1e-9)
