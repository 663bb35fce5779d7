"""The server of the calibration page, with images whose grey level tells the network at which dot the person looks."""

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import cv2
import numpy as np
import pandas as pd
import pytest
from fake_mediapipe import project
from flask.testing import FlaskClient
from numpy.typing import NDArray

from faze.base.geometry import vector_from_pitchyaw
from faze.config.parameters import NormalizedCamera
from faze.data.normalization.pose import normalize_poses
from faze.data.readers.camera import assumed_camera
from faze.data.readers.screen import Screen, read_screen
from faze.fewshot.interface import Learned
from faze.fewshot.learners import load_personal_estimator, save_fields
from faze.gaze import screen_fit
from faze.gaze.calibration_page import DOTS, Sitting, create_app
from faze.gaze.estimator import GazeEstimator
from faze.gaze.screen_fit import DEVIATION, MEAN, NOISE_DEG, fit_screen, place

POSE = np.array([0.05, 0.0, 0.0, 5.0, 30.0, 550.0])
SIZE_PX, PIXEL_MM = np.array([1280, 800]), 0.25
SETUP = {"width_px": 1280, "height_px": 800, "pixel_mm": PIXEL_MM, "hfov_deg": 65, "camera": "webcam", "tab": "a"}


def labels_deg(unknowns: NDArray, pose: NDArray = POSE) -> NDArray:
    """Return the labels (13, 2) of all dots in degrees, for a screen with the given unknowns."""
    dots_mm = Screen.of(place(unknowns, SIZE_PX, PIXEL_MM)).to_mm(DOTS * SIZE_PX)
    turns, places_mm = np.tile(pose[:3], (len(DOTS), 1)), np.tile(pose[3:], (len(DOTS), 1))
    poses, _ = normalize_poses(turns, places_mm, np.zeros((2, 3)), dots_mm)
    return np.degrees(poses.labels[:, :2])


class DotNetwork:
    """A network with an offset and noise, for images of `picture`."""

    camera = NormalizedCamera(focal_length_px=1300, distance_mm=600, width_px=256, height_px=64)
    hash = "dots"
    estimates_deg = 0.8 * labels_deg(MEAN) + [3, -2] + np.random.default_rng(0).normal(0, 0.7, DOTS.shape)

    def __call__(self, patches: NDArray[np.uint8]) -> tuple[NDArray, NDArray]:
        dots = ((patches.mean(axis=(1, 2, 3)) - 60) / 10).round().clip(0, 12).astype(int)
        return np.zeros((len(dots), 6), np.float32), vector_from_pitchyaw(np.radians(self.estimates_deg[dots]))


def picture(dot: int, level: int = 60) -> bytes:
    return cv2.imencode(".jpg", np.full((720, 1280, 3), level + 10 * dot, np.uint8))[1].tobytes()


def faces(image: NDArray[np.uint8], most: int = 2) -> list[NDArray]:
    """Find no face in white images, and two in nearly white ones."""
    count = 0 if image.mean() > 250 else 2 if image.mean() > 230 else 1
    return ([project(POSE, *assumed_camera(65, 1280, 720))] * count)[:most]


@pytest.fixture
def sitting(tmp_path: Path) -> Sitting:
    estimator = GazeEstimator(DotNetwork(), lambda image: faces(image, most=1))
    learned = Learned("offset", [], {})
    return Sitting(estimator, faces, learned, "dots.pt", tmp_path, tmp_path / "me.pt", save_fields)


@pytest.fixture
def client(sitting: Sitting) -> FlaskClient:
    found = create_app(sitting, "once").test_client()
    assert found.get("/?token=once").status_code == 200
    return found


def calibrate(client: FlaskClient, look_at: Callable[[int], int] = lambda dot: dot) -> dict:
    client.post("/start", json=SETUP)
    for dot in range(len(DOTS)):
        assert client.post(f"/add?dot={dot}&tab=a", data=picture(look_at(dot))).json == {}
    return client.post("/finish", json=None).json


def test_the_link_works_once(sitting: Sitting) -> None:
    app = create_app(sitting, "once")
    for query in ("", "?token=twice"):
        assert app.test_client().get(f"/{query}").status_code == 403
    first = app.test_client()
    assert b"faze calibrate" in first.get("/?token=once").data and b"getUserMedia" in first.get("/page.js").data
    assert app.test_client().get("/?token=once").status_code == app.test_client().post("/finish").status_code == 403
    assert first.get("/").status_code == 200  # reloaded


def test_thirteen_dots_become_a_calibration(client: FlaskClient, sitting: Sitting, tmp_path: Path) -> None:
    assert client.get("/calibration").json == {}
    found = calibrate(client)
    saved = load_personal_estimator(tmp_path / "me.pt", "dots")
    assert saved.shots == 9 and saved.query_entries == 4 and saved.person == "me"
    assert saved.error_deg < 2.5 < saved.unadapted_deg and f"{saved.error_deg:.1f}° (" in found["report"]
    held_out = pd.DataFrame(found["dots"][9:]).mean()
    assert held_out["calibrated_error_deg"] == pytest.approx(saved.error_deg, abs=0.01)
    assert held_out["raw_error_deg"] == pytest.approx(saved.unadapted_deg, abs=0.01)
    assert saved.setup["network"] == "dots.pt" and saved.setup["camera"] == "webcam" and saved.setup["date"]
    assert client.get("/calibration").json["error_deg"] == saved.error_deg
    # The folder can be used by `faze calibrate --manifest` too.
    table, screen = pd.read_csv(tmp_path / "frames.csv"), read_screen(tmp_path / "screen.yaml")
    assert len(table) == 13 and (tmp_path / table["image"][12]).exists()
    np.testing.assert_allclose(screen.axes, Screen.of(saved.setup["screen"]).axes)

    face = client.post("/look?x=320&y=200", data=picture(9)).json
    assert face["calibrated_error_deg"] < 3 < face["raw_error_deg"] and face["distance_mm"] == pytest.approx(
        550, rel=0.05
    )
    off_px = np.hypot(face["calibrated_x_px"] - 320, face["calibrated_y_px"] - 200)
    assert off_px * PIXEL_MM / 10 == pytest.approx(face["calibrated_error_cm"], abs=0.02)
    later = Sitting(*list(vars(sitting).values())[:7])  # on another day
    later.use(saved)
    assert later.look(picture(9), x=320, y=200) == face

    client.post("/start", json=SETUP)  # an abandoned calibration does not change the one in use
    assert client.get("/calibration").json["error_deg"] == saved.error_deg
    assert client.post("/look?x=320&y=200", data=picture(9)).json == face
    rows = [{"time_s": 2 * dot + 1, "target_x_px": dot, "target_y_px": 0, **face} for dot in range(10)]
    report = client.post("/validate", json=rows).json["report"]
    assert "Error on 10 points" in report and len(pd.read_csv(tmp_path / "me.validation.csv")) == 10
    unseen = [{"time_s": 1, "target_x_px": 10, "target_y_px": 0, "problem": "no face found"}]
    assert "Error on 10 points" in client.post("/validate", json=rows + unseen).json["report"]
    assert "never seen well: no face found" in client.post("/validate", json=unseen).json["problem"]


def test_what_cannot_be_used_is_one_sentence(client: FlaskClient) -> None:
    client.post("/start", json=SETUP)
    images = {(0, 20): "the picture is dark", (0, 255): "no face found", (0, 240): "there are two faces"}
    for image, sentence in images.items():
        assert sentence in client.post("/add?dot=0&tab=a", data=picture(*image)).json["problem"]
    assert "distance_mm" in client.post("/look", data=picture(0, 240)).json  # the largest face
    assert "in another tab" in client.post("/add?dot=0&tab=b", data=picture(0)).json["problem"]


WRONG = {
    "better than always guessing the mean gaze": lambda dot: 4,
    "the images or x of the targets are mirrored": [2, 1, 0, 5, 4, 3, 8, 7, 6, 10, 9, 12, 11].__getitem__,
}


@pytest.mark.parametrize("fault", WRONG)
def test_a_useless_calibration_is_not_saved(fault: str, client: FlaskClient, tmp_path: Path) -> None:
    assert fault in calibrate(client, WRONG[fault])["problem"] and not (tmp_path / "me.pt").exists()


def fit(truth: NDArray, person: NDArray, noise_deg: NDArray | float) -> NDArray:
    """Fit faces that look at all dots; return the values and deviations (6, 2)."""
    label_deg = labels_deg(truth, POSE * [1, 1, 1, 1, 1, np.exp(truth[5])])
    seen = vector_from_pitchyaw(np.radians(person[:2] + person[2:] * label_deg + noise_deg))
    looks = [SimpleNamespace(gaze_hat=one[None]) for one in seen]
    looking = [SimpleNamespace(origin_mm=POSE[3:], head_pose=POSE, seen=look) for look in looks]
    return np.array([*fit_screen(looking, DOTS * SIZE_PX, SIZE_PX, PIXEL_MM).values()])


def test_the_fit_states_its_uncertainty() -> None:
    """Screens, cameras and people are drawn from the priors."""
    rng, off = np.random.default_rng(0), []
    for _ in range(40):
        truth, person = np.split(rng.normal(MEAN, DEVIATION), [6])
        values, deviations = fit(truth, person, rng.normal(0, NOISE_DEG, DOTS.shape)).T
        off.append((values - truth) / deviations)
    assert 0.9 < np.std(off) < 1.1


def test_exact_looks_determine_the_screen_and_the_focal_length(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(screen_fit, "DEVIATION", np.array([30.0, 30, 30, 9, 9, 0.3, 1e-6, 1e-6, 1e-6, 1e-6]))
    monkeypatch.setattr(screen_fit, "NOISE_DEG", 1e-4)
    truth = np.array([12.0, 4, -6, 5, -3, 0.12])
    np.testing.assert_allclose(fit(truth, MEAN[6:], 0)[:, 0], truth, rtol=0.02)
    # Seen by the person, the camera is to the right of the upper edge's middle, which therefore is at positive x.
    middle_mm = Screen.of(place([12, 4, 0, 0, 0, 0], SIZE_PX, PIXEL_MM)).to_mm(np.array([[640, 0]]))
    np.testing.assert_allclose(middle_mm, [[12, 4, 0]])
