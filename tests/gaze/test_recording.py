"""Calibration on a person's own frames: held-out targets, samples, errors, and what is refused."""

from collections.abc import Callable, Sequence
from pathlib import Path

import cv2
import exact_faces
import numpy as np
import pandas as pd
import pytest
from fake_mediapipe import project
from stage_runs import call_faze

from faze.base.errors import UserError
from faze.base.geometry import angular_error, vector_from_pitchyaw
from faze.data.normalization.pose import INNER_EYE_CORNERS_14_MM, normalize_poses
from faze.data.readers.camera import assumed_camera
from faze.data.readers.manifest import POSE, TARGETS, read_manifest
from faze.fewshot.learners import load_personal_estimator
from faze.fewshot.person_codes import PersonCodes
from faze.gaze.estimator import GazeEstimator
from faze.gaze.recording import Recording, read_recording
from faze.model.weights import network_hash, save_weights
from faze.weights import FOLDER

POSE_OF_HEAD = np.array([0.1, -0.2, 0.05, 5.0, -10.0, 400.0])
TARGETS_MM = [(-60, 40, 0), (60, 40, 0), (0, 90, 0), (-60, 140, 0), (60, 140, 0), (20, 100, 0)]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., int]:
    """Write posed.csv and plain.csv, the latter without head poses, and run the command; frame 3 has no face."""
    monkeypatch.chdir(tmp_path)
    save_weights(Path("dted.pt"), exact_faces.small_network())
    exact_faces.install(monkeypatch, lambda image: [project(POSE_OF_HEAD, *assumed_camera(60, 640, 480))])
    plain = pd.DataFrame(TARGETS_MM, columns=TARGETS["mm"])
    plain = plain.assign(image=[f"{i}.png" for i in range(6)], person="anna", hfov_deg=60)
    plain.to_csv("plain.csv", index=False)
    plain.assign(**dict(zip(POSE, POSE_OF_HEAD, strict=True))).to_csv("posed.csv", index=False)
    for i in range(6):
        cv2.imwrite(f"{i}.png", exact_faces.picture(i) * (i != 3))
    return lambda *words: call_faze("calibrate", "--out", "me.pt", *words)


def recording(target: Sequence[int]) -> Recording:
    return Recording(PersonCodes("me", "x", "test", *[None] * 4), [], np.array(target), None, [])


def test_samples_are_spread_over_targets_that_are_not_held_out() -> None:
    few = recording([0, 0, 1, 1, 2, 2, 3, 4])
    assert few.held_out.tolist() == [4, 5, 6] and few.support(None) == [0, 2, 7] and few.support(5) == [0, 2, 7, 1, 3]
    assert recording(range(9)).held_out.tolist() == [2, 3, 7]
    with pytest.raises(UserError, match="usable frames of at least 3 targets are needed"):
        recording([0, 1, 0, 1]).support(None)
    with pytest.raises(UserError, match="--shots 5 exceeds the 2 frames that are not held out"):
        recording([0, 1, 2]).support(5)


@pytest.mark.parametrize(("name", "used", "count"), [("posed", (0, 1, 4, 5), 6), ("plain", (0, 1, 5), 5)])
def test_a_calibration_is_measured_on_held_out_targets_and_saved(name: str, used, count: int, run, capsys) -> None:
    path = Path(f"{name}.csv")
    assert run("--manifest", path, "--model", "dted.pt") == 0
    told = capsys.readouterr().out
    assert f"offset on {len(used)} samples: {', '.join(f'{number}.png' for number in used)}\n" in told
    assert f"{count} of 6 frames" in told and ("rejected: 3.png: no face" in told) == (name == "plain")
    with GazeEstimator.load("dted.pt", faces=int(name == "plain")) as plain:
        [anna] = read_manifest(path, posed=name == "posed")
        own = read_recording(plain, anna, path)
        found = load_personal_estimator(Path("me.pt"), network_hash(plain.dted))
    query, person = own.held_out, own.person
    if name == "posed":
        poses, _ = normalize_poses(anna.poses[:, :3], anna.poses[:, 3:], INNER_EYE_CORNERS_14_MM, anna.targets_mm)
        np.testing.assert_allclose(person.gaze, vector_from_pitchyaw(poses.labels[:, :2]), atol=1e-9)
        np.testing.assert_allclose(person.head, poses.labels[:, 2:], atol=1e-9)
    after = np.degrees(angular_error(found.gaze(person.seen(query)), person.gaze[query]))
    mm = (2 * own.distance_mm[query] * np.sin(np.radians(after) / 2)).mean()
    assert f"  after: {after.mean():.2f} degrees" in told and f", {mm:.0f} mm at the target" in told
    assert found.query_entries == len(query) and found.error_deg == pytest.approx(after.mean())


def test_the_network_of_the_package_is_used_with_its_learner(run, capsys) -> None:
    """The frames are noise, so the gaze at held-out targets may not improve, and then nothing is written."""
    improves = run("--manifest", "posed.csv") == 0
    told = capsys.readouterr()
    assert "\nbayes on 4 samples: " in told.out and ("  change: −" in told.out) == improves
    assert Path("me.pt").exists() == improves and ("does not reduce the error on held-out" in told.err) != improves


def test_what_cannot_be_calibrated_is_one_sentence(run, capsys) -> None:
    own = ("--manifest", "posed.csv", "--model", "dted.pt")
    Path("dark.csv").write_text("image,person,hfov_deg,target_x_mm,target_y_mm,target_z_mm\n3.png,anna,60,0,90,0\n")
    cases = {
        (): "pass either --manifest, or --codes and --shots",
        (*own, "--person", "ben"): "posed.csv: choose one of its people with --person: anna",
        (*own, "--learner-file", FOLDER / "bayes.pt"): "bayes.pt: bayes was trained for another network",
        ("--manifest", "dark.csv"): "no frame of anna can be used; the first rejected frame is 3.png: no face found",
    }
    for words, sentence in cases.items():
        assert run(*words) == 1
        assert sentence in capsys.readouterr().err.splitlines()[-1]
