"""The weights in the package: their size, identity and model card, whose errors are estimated again for some people."""

import re
from pathlib import Path

import cv2
import numpy as np
import pandas as pd
import pytest

from faze.base.geometry import angular_error, vector_from_pitchyaw
from faze.config.validation import read_config
from faze.data.normalization.pose import INNER_EYE_CORNERS_14_MM, normalize_poses
from faze.data.synthetic.layouts import supplementary
from faze.data.synthetic.people import Role, jpeg, render_frames, sample_frames
from faze.fewshot.learners import load_learned
from faze.gaze.estimator import GazeEstimator
from faze.model.dted import DTED
from faze.model.weights import load_model, network_hash
from faze.weights import FOLDER, SHIPPED, network_path

ROOT = Path(__file__).resolve().parents[2]
CONFIG = ROOT / "config/people/person.yaml"  # of the training


@pytest.fixture(scope="module")
def dted() -> DTED:
    return load_model(network_path(SHIPPED))


@pytest.fixture(scope="module")
def errors() -> pd.DataFrame:
    return pd.read_csv(FOLDER / "errors.csv", dtype={"person": str})


def test_the_folder_is_small_and_its_learners_belong_to_the_network(dted: DTED) -> None:
    files = {path.name for path in FOLDER.iterdir()}
    learners = read_config([CONFIG]).fewshot.learners
    assert files - {"__pycache__"} == {
        "__init__.py",
        "dted.pt",
        "errors.csv",
        "model_card.md",
        *(f"{learner}.pt" for learner in learners),
    }
    assert sum(path.stat().st_size for path in FOLDER.iterdir()) < 2 * 2**20
    known = {learner: load_learned(FOLDER / f"{learner}.pt").checkpoint for learner in learners}
    assert {name: hashed for name, hashed in known.items() if hashed} == dict.fromkeys(
        [name for name, hashed in known.items() if hashed], network_hash(dted)
    )
    assert known["bayes"] == network_hash(dted)


def test_the_card_states_the_recipe(dted: DTED) -> None:
    recipe = dict(re.findall(r"^    (\S+): (.*)$", (FOLDER / "model_card.md").read_text(), re.MULTILINE))
    assert int(recipe["train.pairs"]) == read_config([CONFIG]).train.pairs
    assert {key: int(recipe[f"model.{key}"]) for key in ("growth", "blocks", "z_gaze")} == {
        key: getattr(dted.model, key) for key in ("growth", "blocks", "z_gaze")
    }


@pytest.mark.parametrize("number", [3, 7])
def test_errors_of_a_test_person_are_found_again(dted: DTED, errors: pd.DataFrame, number: int) -> None:
    """The person is rendered again, and the gaze in their last entries is estimated."""
    config = read_config([CONFIG])
    synthetic = config.synthetic
    frames = sample_frames(role := Role("gazecapture", "test", number), synthetic)
    known, query = supplementary(frames), config.fewshot.query_entries
    angles = []
    for row, image in enumerate(render_frames(frames, synthetic.seed)):
        if row >= synthetic.frames_per_person - query:
            fx, fy, cx, cy = known["camera_parameters"][row]
            camera = np.array([[fx, 0, cx], [0, fy, cy], [0, 0, 1]]), known["distortion_parameters"][row]
            decoded = cv2.imdecode(np.frombuffer(jpeg(frames, image), np.uint8), cv2.IMREAD_COLOR)
            pose, target = known["head_pose"][row], known["3d_gaze_target"][row]
            with GazeEstimator.load(faces=0) as estimator:
                face = estimator.at_pose(decoded, camera, pose)
            poses, _ = normalize_poses(pose[None, :3], pose[None, 3:], INNER_EYE_CORNERS_14_MM[None], target[None])
            angles.append(angular_error(face.seen.gaze_hat, vector_from_pitchyaw(poses.labels[:, :2]))[0])
    of_person = errors[(errors["dataset"] == "phone") & (errors["person"] == role.person_id) & (errors["k"] == 0)]
    assert np.degrees(np.mean(angles)) == pytest.approx(of_person["error_deg"].iloc[0], abs=0.02)
