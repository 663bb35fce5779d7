"""A person's calibration in torch, as a part of the ONNX graph `gaze` (faze.model.onnx_graphs).

Each function computes in float32 what the learner's own `estimate` computes in float64.

Shapes: B strips, F numbers in a gaze code, k calibration samples, d features.
"""

import functools
from collections.abc import Callable, Mapping

import torch
from torch import Tensor

from faze.base.errors import UserError
from faze.base.geometry import rotation_from_pitchyaw, vector_from_pitchyaw
from faze.fewshot.mlp import Activation, Weights, gaze_vector
from faze.fewshot.personal_estimator import PersonalEstimator

State = Mapping[str, Tensor]
# From code (B, F), estimated gaze (B, 3) and head pitch and yaw (B, 2), in radians, to the calibrated gaze (B, 3).
Calibrate = Callable[[Tensor, Tensor, Tensor | None], Tensor]
NEED_HEAD = ("bayes", "kappa")  # learners that use the head pose


def calibration_in_torch(person: PersonalEstimator) -> Calibrate:
    """Return a calibration as a function that torch can export.

    Raises:
        UserError: the learner has no such function.
    """
    state = {name: value.float() for name, value in person.state.items()}
    if person.activation:
        return functools.partial(adapted, state, person.activation)
    if person.learner not in CLOSED_FORMS:
        raise UserError(
            f"a calibration by {person.learner} cannot be exported, only one by {', '.join(CLOSED_FORMS)} or by a "
            "learner that adapts the gaze head"
        )
    return functools.partial(CLOSED_FORMS[person.learner], state)


def adapted(state: State, activation: Activation, code: Tensor, gaze: Tensor, head: Tensor | None) -> Tensor:
    """Apply the adapted gaze head."""
    weights = [state[name].reshape(1, -1, state[name].shape[-1]) for name in Weights._fields]
    return torch.nn.functional.normalize(gaze_vector(weights, code[None], activation)[0], dim=1)


def offset(state: State, code: Tensor, gaze: Tensor, head: Tensor | None) -> Tensor:
    """Subtract the offset."""
    return vector_from_pitchyaw(_pitchyaw(gaze) - state["offset_rad"], torch)


def kappa(state: State, code: Tensor, gaze: Tensor, head: Tensor | None) -> Tensor:
    """Turn the gaze in the head's frame by a rotation vector w, using Rodrigues' formula."""
    axes = rotation_from_pitchyaw(head * head.new_tensor([-1.0, 1.0]), torch)  # = head_axes(head)
    in_head = (gaze[:, None] @ axes)[:, 0]
    w = state["rotation_rad"].expand_as(in_head)
    half = torch.linalg.vector_norm(state["rotation_rad"]) / 2
    across = torch.linalg.cross(w, in_head)
    # sinc(x) = sin(pi x) / (pi x), so these factors are sin(|w|) / |w| and (1 - cos(|w|)) / |w|^2, also at w = 0.
    turned = in_head + torch.sinc(2 * half / torch.pi) * across
    turned = turned + torch.sinc(half / torch.pi).square() / 2 * torch.linalg.cross(w, across)
    return (axes @ turned[..., None])[..., 0]


def affine(state: State, code: Tensor, gaze: Tensor, head: Tensor | None) -> Tensor:
    """Add a linear function of each angle."""
    angles = torch.rad2deg(_pitchyaw(gaze)).T  # (2, B)
    return _linear(state, gaze, torch.stack([torch.ones_like(angles), angles], dim=-1))


def bayes(state: State, code: Tensor, gaze: Tensor, head: Tensor | None) -> Tensor:
    """Add a linear function of gaze, head pose, their squares and products, and the code."""
    angles = torch.cat([_pitchyaw(gaze), head], dim=1)  # (B, 4)
    first, second = torch.triu_indices(4, 4)
    products = angles[:, first] * angles[:, second]
    return _linear(state, gaze, torch.cat([torch.ones_like(angles[:, :1]), angles, products, code], dim=1)[None])


def gp(state: State, code: Tensor, gaze: Tensor, head: Tensor | None) -> Tensor:
    """Add the mean of the Gaussian process."""
    standard = (code - state["center"]) / state["scale"]
    square = (standard[:, None] - state["samples"]).square().sum(dim=-1)  # (B, k)
    constant, varying, length = state["kernel"].T[..., None, None]
    across = constant + varying * torch.exp(-square / (2 * length))  # (2, B, k)
    return _corrected(gaze, across @ state["weights"][..., None])


def _pitchyaw(gaze: Tensor) -> Tensor:
    """Compute geometry.pitchyaw_from_vector without hypot, which torch cannot export."""
    x, y, z = gaze.T
    return torch.stack([torch.atan2(y, (x * x + z * z).sqrt()), torch.atan2(x, z)], dim=-1)


def _linear(state: State, gaze: Tensor, features: Tensor) -> Tensor:
    """Add a residual that is linear in features (1 or 2, B, d)."""
    design = (features - state["center"][:, None]) / state["scale"][:, None]
    return _corrected(gaze, design @ state["mean"][..., None])


def _corrected(gaze: Tensor, residual_deg: Tensor) -> Tensor:
    """Add residuals (2, B, 1) to pitch and yaw."""
    angles = _pitchyaw(gaze) + torch.deg2rad(residual_deg[..., 0].T)
    return vector_from_pitchyaw(angles, torch)


CLOSED_FORMS = {"offset": offset, "affine": affine, "bayes": bayes, "kappa": kappa, "gp": gp}
