"""Networks of other projects: their input is what their own code computes, and everything else follows from it."""

import re
from collections.abc import Callable
from pathlib import Path

import cv2
import exact_faces
import numpy as np
import pytest
import torch
import yaml
from fake_mediapipe import project
from graphs import SMALL, write_graph
from scipy.spatial.transform import Rotation
from stage_runs import call_faze
from torch import nn

from faze.base.errors import UserError
from faze.base.geometry import angular_error
from faze.data.network_input import to_network
from faze.data.normalization.pose import INNER_EYE_CORNERS_14_MM, normalize_poses
from faze.data.normalization.warp import make_strip
from faze.data.readers.camera import assumed_camera
from faze.gaze.estimator import GazeEstimator
from faze.gaze.network import Interface, OtherNetwork, load_network

ROOT = Path(__file__).parents[2]
LENS = assumed_camera(60.0, 640, 480)
POSE = np.array([0.15, -0.25, 0.1, 20.0, -30.0, 500.0])
NOTHING = np.zeros((2, 24, 32, 3), np.uint8)


@pytest.fixture
def loaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], OtherNetwork]:
    """Load a package's network with random weights, which are smaller for unigaze."""
    monkeypatch.syspath_prepend(ROOT / ".networks")  # make .networks
    for name in ("nms", "qnms"):  # PyPI's torchvision looks for CUDA's operators
        if not hasattr(torch.ops.torchvision, name):
            torch.library.define(f"torchvision::{name}", "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    import omegaconf
    import ptgaze.models
    import ptgaze.utils
    import unigaze.loader
    from safetensors.torch import save_file
    from unigaze.models import mae, mae_gaze

    torch.manual_seed(0)
    weights = tmp_path / "model.safetensors"
    tiny = {"patch_size": 16, "embed_dim": 16, "depth": 1, "num_heads": 2}
    monkeypatch.setattr(mae_gaze, "vit_base_patch16", lambda **kind: mae.VisionTransformer(**tiny, **kind))
    monkeypatch.setattr(unigaze.loader, "hf_hub_download", lambda **where: str(weights))
    for each in ("ethxgaze", "mpiifacegaze"):
        monkeypatch.setattr(ptgaze.utils, f"download_{each}_model", lambda: weights)

    def load(name: str) -> OtherNetwork:
        package, _, of = name.partition(":")
        if package == "unigaze":
            model = unigaze.loader.build_unigaze_model(of)
        else:
            config = omegaconf.OmegaConf.load(Path(ptgaze.utils.__file__).parent / f"data/configs/{of}.yaml")
            omegaconf.OmegaConf.update(config, "model.backbone.pretrained", None, force_add=True)
            model = ptgaze.models.create_model(config)
        save_file(model.state_dict(), weights)
        return load_network(name)

    return load


CENTERS = {
    "unigaze:unigaze_b16_joint": "eth-xgaze",
    "ptgaze:eth-xgaze": "eth-xgaze",
    "ptgaze:mpiifacegaze": "mpiifacegaze",
}


@pytest.mark.parametrize("name", CENTERS)
def test_patches_and_gaze_are_those_of_the_package(name: str, loaded: Callable[[str], OtherNetwork]) -> None:
    """Their normaliser and transform, on the same frame and head pose, up to 0.1 px and 0.01 degrees."""
    network = loaded(name)
    import ptgaze.transforms
    from omegaconf import OmegaConf
    from ptgaze.common import Camera
    from ptgaze.common.gaze import denormalize_gaze_vector, gaze_angles_to_vector
    from ptgaze.head_pose_estimation.head_pose_normalizer import HeadPoseNormalizer

    data = Path(ptgaze.transforms.__file__).parent / "data"
    camera = Camera(640, 480, LENS[0], LENS[1])
    virtual = Camera.from_file(str(data / f"normalized_camera_params/{CENTERS[name]}.yaml"))
    theirs = HeadPoseNormalizer(camera, virtual, network.camera.distance_mm / 1000)
    turn = Rotation.from_rotvec(POSE[:3])
    points_mm = INNER_EYE_CORNERS_14_MM + network.camera.center_mm
    center_mm = turn.apply(points_mm.mean(axis=0)) + POSE[3:]

    x, y = np.meshgrid(np.arange(640.0), np.arange(480.0))
    places = np.stack([x, y, 0 * x], axis=2).astype(np.float32)
    ours = normalize_poses(POSE[None, :3], POSE[None, 3:], points_mm, np.array([[0.0, 0.0, -1.0]]))[0][0]
    found = make_strip(places, LENS, ours, network.camera)[:, :, ::-1]
    patch = theirs.normalize(places, turn, center_mm / 1000)
    inside = (found > 1).all(axis=2, where=[True, True, False]) & (patch.image > 1).all(
        axis=2, where=[True, True, False]
    )
    assert inside.mean() > 0.9 and np.abs(found - patch.image)[inside].max() < 0.1
    assert Rotation.from_matrix(ours.rotation @ patch.normalizing_rot.as_matrix().T).magnitude() < np.radians(0.01)

    image = exact_faces.picture(1)
    patch = theirs.normalize(image, turn, center_mm / 1000)
    config = OmegaConf.load(data / f"configs/{CENTERS[name]}.yaml")
    given = ptgaze.transforms.create_transform(config)(patch.image)[None]
    with torch.inference_mode():
        [angles] = network.run(given).numpy()
    direction = denormalize_gaze_vector(gaze_angles_to_vector(angles), patch.normalizing_rot)
    face = GazeEstimator(network, lambda _: []).at_pose(image, LENS, POSE)
    assert np.degrees(angular_error(face.direction, direction)) < 0.01
    np.testing.assert_allclose(face.origin_mm, center_mm, atol=1e-9)


class Mean(nn.Module):
    """The mean of each color as x, y and z of the gaze."""

    interface = {"camera": SMALL, "output": ["x", "y", "-z"]}

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(3))

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Return the gaze."""
        return images.mean(dim=(2, 3)) * self.scale


def test_a_user_s_class_states_its_input_and_output(tmp_path: Path) -> None:
    network = load_network(f"{__name__}:Mean")
    patches = np.zeros((2, 24, 32, 3), np.uint8)
    patches[:] = [51, 102, 255]
    codes, gaze = network(patches)
    assert codes.shape == (2, 0)
    np.testing.assert_allclose(gaze, np.array([[-0.2, -0.4, 1.0]] * 2) / np.sqrt(1.2), atol=1e-6)


def test_colors_levels_and_angles(tmp_path: Path) -> None:
    patches = np.random.default_rng(0).integers(0, 256, (2, 24, 32, 3), np.uint8)
    rgb = torch.from_numpy(patches).permute(0, 3, 1, 2) / 255
    stated = Interface.model_validate({"camera": SMALL, "color": "bgr", "mean": [0.1, 0.2, 0.3], "std": [1, 2, 4]})
    torch.testing.assert_close(stated.images(patches)[:, 2], (rgb[:, 0] - 0.3) / 4)
    equal = Interface.model_validate({"camera": SMALL, "equalize": True}).images(patches)
    torch.testing.assert_close(2 * equal - 1, to_network(torch.from_numpy(patches)))
    turned = {"camera": SMALL, "output": ["-yaw", "pitch"], "degrees": True}
    [vector] = Interface.model_validate(turned).vectors(np.array([[-90.0, 0.0]]))
    np.testing.assert_allclose(vector, [1, 0, 0], atol=1e-9)


def test_a_graph_estimates_calibrates_and_is_recognised(tmp_path, monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    monkeypatch.chdir(tmp_path)
    exact_faces.install(monkeypatch, lambda image: [project(POSE, *assumed_camera(60, 640, 480))])
    write_graph(Path("mine.onnx"))
    lines = ["image,person,hfov_deg,gaze_pitch_deg,gaze_yaw_deg"]
    with GazeEstimator.load("mine.onnx") as estimator:
        for number in range(6):
            image = cv2.convertScaleAbs(exact_faces.picture(number), alpha=0.5 + 0.1 * number)
            cv2.imwrite(f"{number}.png", image)
            [face] = estimator.faces(cv2.imread(f"{number}.png"), LENS)
            pitch, yaw = np.degrees(face.pitchyaw) + [4.0, -6.0]
            lines.append(f"{number}.png,me,60,{pitch},{yaw}")
    Path("me.csv").write_text("\n".join(lines))
    own = ("--model", "mine.onnx", "--manifest", "me.csv", "--out", "me.pt")
    assert call_faze("calibrate", *own) == 0
    out = capsys.readouterr().out
    before_deg, after_deg = (float(re.search(f" {name}: ([\\d.]+)", out)[1]) for name in ("unadapted", "calibrated"))
    assert after_deg < 0.2 * before_deg
    assert call_faze("gaze", "me.csv", "--model", "mine.onnx", "--person", "me.pt", "--table", "gaze.csv") == 0
    assert "6 frames, 6 with a gaze" in capsys.readouterr().out
    Path("mine.yaml").write_text(yaml.safe_dump({"camera": SMALL, "degrees": True}))
    for model in ("shipped", "mine.onnx"):  # the latter's description has changed
        assert call_faze("gaze", "me.csv", "--model", model, "--person", "me.pt", "--table", "gaze.csv") == 1
        assert "was made with another network" in capsys.readouterr().err


def test_what_cannot_be_loaded_is_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, loaded) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    Path("own.py").write_text("class Bare:\n    pass\n")
    for name in ("none", "broken", "wide"):
        write_graph(Path(f"{name}.onnx"), columns=1 + (name != "wide"))
    Path("none.yaml").unlink()
    Path("broken.onnx").write_text("text")
    cases = {
        "unigaze:large": "unigaze:large: unigaze has no such network",
        "ptgaze:mpiigaze": "ptgaze has no such network",
        "ptgaze:eth-xgaze": r"ptgaze:eth-xgaze: no weights \(.*\): connect to the internet",
        "none.onnx": "none.yaml: cannot be read",
        "broken.onnx": "broken.onnx: not an ONNX graph",
        "own:Bare": "own:Bare: interface: camera: Field required",
        "own:None": "own:None: AttributeError",
        "absent:Class": "absent:Class: ModuleNotFoundError",
        "absent.pt": "absent.pt",
    }
    for name, sentence in cases.items():
        with pytest.raises(UserError, match=sentence):
            load_network(name)
    Path("odd.yaml").write_text(yaml.safe_dump({"camera": SMALL, "output": ["pitch", "x"], "mean": [0.5]}))
    Path("odd.onnx").write_bytes(Path("wide.onnx").read_bytes())
    with pytest.raises(UserError, match=r"odd.yaml: mean.*output: .*must be pitch and yaw, or x, y and z"):
        load_network("odd.onnx")
    with pytest.raises(UserError, match=r"^wide.onnx: InvalidArgument"):
        load_network("wide.onnx")(NOTHING[:, :20])
    with pytest.raises(UserError, match=r"wide.onnx: returned values of shape \(2, 1\), not \(2, 2\)"):
        load_network("wide.onnx")(NOTHING)
    monkeypatch.setitem(__import__("sys").modules, "unigaze", None)
    with pytest.raises(UserError, match="unigaze is missing: run make networks, or pip install unigaze"):
        load_network("unigaze:unigaze_b16_joint")
