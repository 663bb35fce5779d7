"""The networks that `--model` accepts: DT-ED, and those of other projects.

| --model | network |
|---|---|
| shipped, FILE.pt | DT-ED: the network in the package, or a checkpoint |
| unigaze:NAME | of the package unigaze, for example unigaze:unigaze_b16_joint |
| ptgaze:NAME | of the package ptgaze: ptgaze:eth-xgaze or ptgaze:mpiifacegaze |
| FILE.onnx | a graph, whose `Interface` is in FILE.yaml |
| MODULE:CLASS | a torch module, whose `Interface` is its attribute `interface` |

The packages download their weights when they are used for the first time.
"""

import contextlib
import hashlib
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field, ValidationError, field_validator
from torch import Tensor, nn

from faze.base.errors import UserError
from faze.base.geometry import vector_from_pitchyaw
from faze.config.parameters import NormalizedCamera, Section, Several
from faze.config.validation import read_config, read_yaml
from faze.data.network_input import shrink, to_network
from faze.model.dted import DTED
from faze.model.weights import load_model, network_hash
from faze.training.check import instantiate, named
from faze.weights import network_path

Number = Literal["pitch", "-pitch", "yaw", "-yaw", "x", "-x", "y", "-y", "z", "-z"]
PerColor = Annotated[tuple[float, float, float], Field(strict=False)]
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)  # of ImageNet


class Interface(Section):
    """The input and output of a network of another project.

    Its input is (n, 3, H, W), float32, and its output a tensor (n, 2) or (n, 3). Pitch is up, and yaw is to the left in
    the image; x, y and z are the direction in the virtual camera's frame (right, down, away).
    """

    camera: NormalizedCamera
    color: Literal["rgb", "bgr"] = "rgb"
    equalize: bool = False  # the histogram of the luma
    mean: PerColor = (0.0, 0.0, 0.0)  # of values between 0 and 1, in the order of `color`
    std: PerColor = (1.0, 1.0, 1.0)
    output: Several[Number] = ("pitch", "yaw")
    degrees: bool = False

    @field_validator("output")
    @classmethod
    def _is_complete(cls, output: tuple[Number, ...]) -> tuple[Number, ...]:
        if sorted(name.strip("-") for name in output) not in (["pitch", "yaw"], ["x", "y", "z"]):
            raise ValueError("must be pitch and yaw, or x, y and z")
        return output

    def images(self, patches: NDArray[np.uint8]) -> Tensor:
        """Convert RGB patches (n, H, W, 3) to the network's input."""
        pixels = torch.from_numpy(patches)
        images = (to_network(pixels) + 1) / 2 if self.equalize else pixels.permute(0, 3, 1, 2) / 255
        images = images.flip(1) if self.color == "bgr" else images
        mean, std = (torch.tensor(values).view(3, 1, 1) for values in (self.mean, self.std))
        return ((images - mean) / std).contiguous()

    def vectors(self, values: NDArray) -> NDArray[np.float64]:
        """Convert the network's output to unit vectors from the target to the eye (n, 3)."""
        signs = [-1.0 if name[0] == "-" else 1.0 for name in self.output]
        of = dict(zip((name.strip("-") for name in self.output), (values * signs).T.astype(float), strict=True))
        if "pitch" in of:
            angles = np.stack([of["pitch"], of["yaw"]], axis=1)
            return vector_from_pitchyaw(np.radians(angles) if self.degrees else angles)
        direction = np.stack([of["x"], of["y"], of["z"]], axis=1)
        return -direction / np.linalg.norm(direction, axis=1, keepdims=True)


@dataclass(frozen=True)
class DTEDNetwork:
    """DT-ED, with its gaze code."""

    dted: DTED
    camera: NormalizedCamera
    hash: str  # networks with equal hashes compute equal codes and estimates

    def __call__(self, patches: NDArray[np.uint8]) -> tuple[NDArray[np.float32], NDArray[np.float64]]:
        """Return codes (n, F) and vectors from the target to the eye (n, 3) for RGB patches (n, H, W, 3)."""
        size = self.dted.model.image_height_px, self.dted.model.image_width_px
        with torch.inference_mode():
            codes = self.dted.encode(to_network(shrink(torch.from_numpy(patches), *size)))
            return codes.gaze.flatten(1).numpy(), self.dted.gaze_vector(codes.gaze).double().numpy()


@dataclass(frozen=True)
class OtherNetwork:
    """A network of another project, without codes."""

    name: str
    interface: Interface
    run: Callable[[Tensor], Any]
    hash: str
    device: str = "cpu"

    @property
    def camera(self) -> NormalizedCamera:
        """Return the virtual camera."""
        return self.interface.camera

    def __call__(self, patches: NDArray[np.uint8]) -> tuple[NDArray[np.float32], NDArray[np.float64]]:
        """Return empty codes (n, 0) and vectors (n, 3), like `DTEDNetwork`."""
        with named(self.name), torch.inference_mode():
            values = torch.as_tensor(self.run(self.interface.images(patches).to(self.device))).cpu().numpy()
        expected = (len(patches), len(self.interface.output))
        if values.shape != expected:
            raise UserError(f"{self.name}: returned values of shape {values.shape}, not {expected}")
        return np.empty((len(patches), 0), np.float32), self.interface.vectors(values)


Network = DTEDNetwork | OtherNetwork
Loaded = tuple[nn.Module, Callable[[Tensor], Any], Interface]


def load_network(name: Path | str) -> Network:
    """Load a network by its name in the table above; raise a UserError with the remedy if this is impossible."""
    text = str(name)
    kind, _, of = text.partition(":")
    if kind in PACKAGES and of:
        return _of_package(text, kind, of)
    if text.endswith(".onnx"):
        return _of_graph(Path(text))
    if of and not Path(text).exists():
        model = instantiate(text)
        return _of_module(text, model, _check(f"{text}: interface", getattr(model, "interface", {})))
    dted = load_model(network_path(name))
    return DTEDNetwork(dted, dted.camera or read_config().preprocess.camera(), network_hash(dted))


def _check(name: str, values: Any) -> Interface:
    try:
        return Interface.model_validate(values)
    except ValidationError as error:
        faults = "; ".join(f"{'.'.join(map(str, fault['loc']))}: {fault['msg']}" for fault in error.errors())
        raise UserError(f"{name}: {faults}") from None


def _hash(interface: Interface, weights: Iterable[bytes]) -> str:
    digest = hashlib.sha256(interface.model_dump_json().encode())
    for part in weights:
        digest.update(part)
    return digest.hexdigest()[:16]


def _of_module(name: str, model: nn.Module, interface: Interface) -> Network:
    weights = (value.cpu().contiguous().numpy().tobytes() for value in model.state_dict().values())
    device = "cuda" if torch.cuda.is_available() else "cpu"
    return OtherNetwork(name, interface, model.to(device).eval(), _hash(interface, weights), device)


def _of_graph(path: Path) -> Network:
    from onnxruntime import InferenceSession

    interface = _check(str(path.with_suffix(".yaml")), read_yaml(path.with_suffix(".yaml")))
    content = path.read_bytes()
    try:
        session = InferenceSession(content, providers=["CPUExecutionProvider"])
    except Exception as error:  # onnxruntime has its own types
        raise UserError(f"{path}: not an ONNX graph: {str(error).splitlines()[0]}") from None
    [given] = session.get_inputs()

    def run(images: Tensor) -> Any:
        return session.run(None, {given.name: images.numpy()})[0]

    return OtherNetwork(str(path), interface, run, _hash(interface, [content]))


def _of_package(text: str, package: str, name: str) -> Network:
    try:
        model, run, interface = PACKAGES[package](name)
    except ModuleNotFoundError as error:
        raise UserError(f"{text}: {error.name} is missing: run make networks, or pip install {package}") from None
    except KeyError:
        raise UserError(f"{text}: {package} has no such network") from None
    except OSError as error:
        fault = str(error).strip().splitlines()[0]
        raise UserError(
            f"{text}: no weights ({fault}): connect to the internet, since the first use downloads them"
        ) from None
    return replace(_of_module(text, model, interface), run=run)


def _unigaze(name: str) -> Loaded:
    import unigaze

    with contextlib.redirect_stdout(sys.stderr):
        model = unigaze.load(name)
    # The middle between the eye corners' and the nostrils' means in its face model.
    return model, lambda images: model(images)["pred_gaze"], _face((0.0, 21.5, -1.8), 960.0, 600.0)


def _ptgaze(name: str) -> Loaded:
    import omegaconf
    import ptgaze.models
    import ptgaze.utils
    from safetensors.torch import load_file

    interface = {  # in its face model, the middle of the eye corners and the nostrils, or the corners of the mouth
        "eth-xgaze": _face((0.0, 13.6, -3.8), 960.0, 600.0),
        "mpiifacegaze": _face((0.0, 22.6, 1.0), 1600.0, 1000.0, "bgr"),
    }[name]
    config = omegaconf.OmegaConf.load(Path(ptgaze.utils.__file__).parent / f"data/configs/{name}.yaml")
    omegaconf.OmegaConf.update(config, "model.backbone.pretrained", None, force_add=True)  # they would be replaced
    model = ptgaze.models.create_model(config)
    model.load_state_dict(load_file(getattr(ptgaze.utils, f"download_{name.replace('-', '')}_model")()))
    return model, model, interface


def _face(center_mm: tuple[float, float, float], focal_px: float, distance_mm: float, color: str = "rgb") -> Interface:
    camera = {"focal_length_px": focal_px, "distance_mm": distance_mm, "width_px": 224, "height_px": 224}
    order = slice(None, None, -1 if color == "bgr" else 1)
    seen = NormalizedCamera(**camera, center_mm=center_mm)
    return Interface(camera=seen, color=color, mean=MEAN[order], std=STD[order])


PACKAGES: dict[str, Callable[[str], Loaded]] = {"unigaze": _unigaze, "ptgaze": _ptgaze}
