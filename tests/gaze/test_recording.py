"""Calibration on a person's own frames: labels, held-out targets, samples, errors, and what is refused."""

import contextlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import cv2
import manifests
import numpy as np
import pytest
import torch
from fake_mediapipe import with_open_eyes
from faze.data.readers.manifest_lines import ManifestLines
from numpy.typing import NDArray
from raw_data import CAMERA_MATRIX
from small_model import MODEL as SMALL
from stage_runs import call_faze

from faze.base.errors import UserError
from faze.base.geometry import angular_error, vector_from_pitchyaw
from faze.config.validation import read_config
from faze.data.landmarks.pose import FACE_MODEL_MM
from faze.data.readers.manifest import Manifest
from faze.fewshot.person_codes import PersonCodes
from faze.fewshot.personal_estimator import load_personal_estimator
from faze.gaze import estimator
from faze.gaze.estimator import GazeEstimator
from faze.gaze.recording import Recording, read_recording
from faze.model.dted import DTED
from faze.model.weights import network_hash, save_weights
from faze.weights import FOLDER, SHIPPED, network_path

CAMERA = read_config().preprocess.camera()
MODEL = SMALL.model_copy(update={"image_height_px": 64, "image_width_px": 256})
POSE = np.array([0.1, -0.2, 0.05, 5.0, -10.0, 400.0])
TARGETS = [(-60, 40), (60, 40), (0, 90), (-60, 140), (60, 140), (20, 100)]


@pytest.fixture(scope="module")
def dted() -> DTED:
    torch.manual_seed(0)
    return DTED(MODEL).eval()


@pytest.fixture
def run(dted: DTED, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., int]:
    """Run the command with a detector that knows every frame except dark ones."""

    @contextlib.contextmanager
    def open_faces(model: Path, most: int) -> Iterator:
        def detect(image: NDArray[np.uint8]) -> list[NDArray]:
            points = cv2.projectPoints(FACE_MODEL_MM, POSE[:3], POSE[3:], CAMERA_MATRIX, np.zeros(5))[0]
            return [with_open_eyes(points.reshape(-1, 2))] if image.max() > 20 else []

        yield detect

    monkeypatch.setattr(estimator, "open_faces", open_faces)
    save_weights(tmp_path / "dted.pt", dted)

    def call(*words: object) -> int:
        return call_faze("calibrate", *words, "--model", tmp_path / "dted.pt", "--out", tmp_path / "me.pt")

    return call


def write_manifest(folder: Path, targets: Sequence[tuple[float, float]], *, posed: bool, dark: int = -1) -> Path:
    """Write a frame of each target; the frame `dark` has no face."""
    rows = manifests.lines(len(targets), cx_px=160, cy_px=118, k3=None)
    for number, (row, (x, y)) in enumerate(zip(rows, targets, strict=True)):
        row |= {"target_x_mm": x, "target_y_mm": y, "target_z_mm": 0}
        if not posed:
            for name in manifests.HEAD:
                del row[name]
        path = folder / row["image"]
        path.parent.mkdir(parents=True, exist_ok=True)
        coarse = np.random.default_rng(number).integers(0, 256, (12, 16, 3), np.uint8)
        image = cv2.resize(coarse, (320, 240), interpolation=cv2.INTER_CUBIC)
        cv2.imwrite(str(path), np.zeros_like(image) if number == dark else image)
    return manifests.write_table(folder / "frames.csv", rows)


def recording(target: Sequence[int]) -> Recording:
    count = len(target)
    person = PersonCodes(
        "me", "x", "test", np.zeros((count, 6), np.float32), *np.zeros((2, count, 3)), np.zeros((count, 2))
    )
    return Recording(person, [str(i) for i in range(count)], np.array(target), np.full(count, np.nan), [])


def test_labels_are_those_of_preprocessing(dted: DTED, tmp_path: Path) -> None:
    path = write_manifest(tmp_path, TARGETS, posed=True)
    found = read_recording(GazeEstimator(dted, "", CAMERA, lambda _: []), ManifestLines(path), "anna")
    _, labels = Manifest(path, None).labels("anna")
    np.testing.assert_allclose(found.person.gaze, vector_from_pitchyaw(labels[:, :2]), atol=1e-9)
    np.testing.assert_allclose(found.person.head, labels[:, 2:], atol=1e-9)
    assert found.target.tolist() == list(range(6)) and found.distance_mm.min() > 350


@pytest.mark.parametrize(
    ("target", "shots", "support", "held_out"),
    [
        ([0, 0, 1, 1, 2, 2, 3, 4], None, [0, 2, 7], [4, 5, 6]),
        ([0, 0, 1, 1, 2, 2, 3, 4], 5, [0, 2, 7, 1, 3], [4, 5, 6]),
        ([0, 1, 2, 0, 1, 2], 1, [0], [2, 5]),
        (list(range(9)), None, [0, 1, 4, 5, 6, 8], [2, 3, 7]),
    ],
)
def test_samples_are_spread_over_targets_that_are_not_held_out(target, shots, support, held_out) -> None:
    found = recording(target)
    assert found.support(shots) == support and found.held_out().tolist() == held_out


def test_too_few_targets_or_frames_are_one_sentence() -> None:
    with pytest.raises(UserError, match="person me of x: has 4 usable frames with 2 targets, but 3 are needed"):
        recording([0, 1, 0, 1]).support(None)
    with pytest.raises(UserError, match="--shots 5 is more than the 2 frames not held out"):
        recording([0, 1, 2]).support(5)


@contextlib.contextmanager
def open_detector_without_mediapipe(*_: object) -> Iterator:
    raise UserError("MediaPipe is not installed")
    yield


@pytest.mark.parametrize("posed", [True, False], ids=["head poses given", "landmarks"])
def test_a_calibration_is_measured_on_held_out_targets_and_saved(
    run, dted, posed: bool, monkeypatch: pytest.MonkeyPatch, tmp_path, capsys
) -> None:
    if posed:  # MediaPipe is not needed
        monkeypatch.setattr(estimator, "open_faces", open_detector_without_mediapipe)
    path = write_manifest(tmp_path, TARGETS, posed=posed, dark=-1 if posed else 3)
    assert run("--manifest", path) == 0
    said = capsys.readouterr().out
    used = (0, 1, 4, 5) if posed else (0, 1, 5)  # of the targets with a usable frame, the third and fourth are held out
    assert f"offset on {len(used)} samples: {', '.join(f'img/{number:04d}.jpg' for number in used)}\n" in said
    assert ("6 of 6 frames" if posed else "5 of 6 frames can be used\n  rejected: img/0003.jpg: no face found") in said
    found = load_personal_estimator(tmp_path / "me.pt", network_hash(dted), 3 * MODEL.z_gaze)
    with GazeEstimator.load(tmp_path / "dted.pt", faces=int(not posed)) as plain:
        own = read_recording(plain, ManifestLines(path), "anna")
    query = own.held_out()
    person = own.person
    after = np.degrees(angular_error(found.gaze(person.seen(query)), person.gaze[query]))
    mm = (2 * own.distance_mm[query] * np.sin(np.radians(after) / 2)).mean()
    assert f"  after: {after.mean():.2f} degrees" in said and f", {mm:.0f} mm at the target" in said
    assert found.query_entries == len(query) and found.error_deg == pytest.approx(after.mean())


@pytest.mark.parametrize(
    ("words", "learner"),
    [
        ((), "bayes on 4"),
        (("--learner", "affine"), "affine on 4"),
        (("--learner", "maml"), "maml on 3"),  # it was trained for 1, 3, 5 and 9
        (("--model", network_path(SHIPPED)), "bayes on 4"),
    ],
)
def test_the_network_of_the_package_is_used_with_its_learners(
    words: tuple, learner: str, tmp_path: Path, capsys
) -> None:
    path = write_manifest(tmp_path, TARGETS, posed=True)
    arguments = ["--manifest", path, "--out", tmp_path / "me.pt", *words]
    call_faze("calibrate", *arguments)  # the frames are noise, so it may not improve the gaze
    assert f"\n{learner} samples: " in capsys.readouterr().out


def test_a_calibration_that_does_not_help_is_not_saved(run, monkeypatch: pytest.MonkeyPatch, tmp_path, capsys) -> None:
    """The network is right about held-out targets, and off by 20 degrees about the others."""
    see = GazeEstimator._see
    targets = iter([False, False, True, True, False, False])

    def right_or_wrong(self, strip, head):
        pitchyaw = labels[next(numbers)] + (0 if next(targets) else np.radians([0, 20]))
        return see(self, strip, head)._replace(gaze_hat=vector_from_pitchyaw(pitchyaw)[None])

    path = write_manifest(tmp_path, TARGETS, posed=True)
    labels, numbers = Manifest(path, None).labels("anna")[1][:, :2], iter(range(6))
    monkeypatch.setattr(GazeEstimator, "_see", right_or_wrong)
    assert run("--manifest", path) == 1
    told = capsys.readouterr()
    assert "me.pt was not written, because the calibration does not improve the gaze at held-out targets" in told.err
    assert "  before: 0.00 degrees" in told.out and "  change: +" in told.out and not (tmp_path / "me.pt").exists()


def test_what_cannot_be_calibrated_is_one_sentence(run, tmp_path: Path, capsys) -> None:
    path = write_manifest(tmp_path, TARGETS, posed=True)
    cases = {
        (): "pass either --codes or --manifest",
        ("--manifest", path, "--codes", "a.h5"): "pass either --codes or --manifest",
        ("--codes", "a.h5"): "--codes needs --shots",
        ("--manifest", path, "--person", "ben"): "frames.csv: contains no person ben, only anna",
        ("--manifest", path, "--learner", "bayes"): "--learner bayes needs --learner-file",
    }
    for words, sentence in cases.items():
        assert run(*words) == 1
        assert sentence in capsys.readouterr().err.splitlines()[-1]
    # The learner of another network is refused before any frame is read.
    assert run("--manifest", path, "--learner-file", FOLDER / "bayes.pt") == 1
    assert "does not belong to the network" in capsys.readouterr().err.splitlines()[0]
    dark = write_manifest(tmp_path / "dark", TARGETS[:1], posed=False, dark=0)
    assert run("--manifest", dark) == 1
    assert "no frame of anna can be used; the first: img/0000.jpg: no face found" in capsys.readouterr().err
