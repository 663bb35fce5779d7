"""Loss terms of DT-ED (paper section 3.1.2) and the selectable ones of the released training.

Shapes: ... groups within which samples are compared; N codes of a group; F 3-D vectors of a code (rows).
A *code distance* is the mean over rows of the angle (degrees) or of the euclidean distance between corresponding rows.
"""

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor
from torch.nn import functional as F

# (..., F, 3), (..., F, 3) -> (...)
CodeDistance = Callable[[Tensor, Tensor], Tensor]


def vector_from_pitchyaw(pitchyaw: Tensor) -> Tensor:
    """Unit vectors of (pitch, yaw), as faze.geometry's, in torch.

    Args:
        pitchyaw: (..., 2) radians.

    Returns:
        (..., 3).
    """
    (sin_p, sin_y), (cos_p, cos_y) = pitchyaw.sin().unbind(-1), pitchyaw.cos().unbind(-1)
    return torch.stack([cos_p * sin_y, sin_p, cos_p * cos_y], dim=-1)


def angle_deg(a: Tensor, b: Tensor, clip: float | None = None) -> Tensor:
    """Angle between vectors, with finite first and second derivatives everywhere (zero where they coincide).

    Args:
        a: (..., 3) of any length.
        b: (..., 3) of any length; broadcasts with a.
        clip: None for the exact angle; a number bounds |cosine| by 1 - clip as the released code does with 1e-6, which
            makes 0.081 degrees the smallest angle.

    Returns:
        (...) degrees.
    """
    dot = (a * b).sum(-1)
    if clip is not None:
        cosine = dot / (torch.linalg.vector_norm(a, dim=-1) * torch.linalg.vector_norm(b, dim=-1)).clamp(min=1e-8)
        return cosine.clamp(clip - 1, 1 - clip).acos().rad2deg()
    perpendicular = torch.linalg.cross(*torch.broadcast_tensors(a, b))
    # Fused multiply-adds leave a rounding error in v x v, and its direction would become a gradient of full size.
    perpendicular = perpendicular.masked_fill((a == b).all(-1, keepdim=True), 0)
    squared = perpendicular.square().sum(-1)
    apart = squared > 0
    # The root's derivatives at 0 are infinite: where the two coincide it is kept out of the graph, and the angle is 0.
    sine = torch.where(apart, squared, 1.0).sqrt() * apart
    return torch.atan2(sine, torch.where(apart | (dot != 0), dot, 1.0)).rad2deg()


def code_angle_deg(a: Tensor, b: Tensor, clip: float | None = None) -> Tensor:
    """(..., F, 3) codes -> (...) mean angle between rows, degrees."""
    return angle_deg(a, b, clip).mean(-1)


def code_euclidean(a: Tensor, b: Tensor) -> Tensor:
    """(..., F, 3) codes -> (...) mean distance between rows."""
    return torch.linalg.vector_norm(a - b, dim=-1).mean(-1)


def exact_or_clipped(clip: float | None) -> CodeDistance:
    """The angular code distance, exact (None) or under the released code's clip."""
    return partial(code_angle_deg, clip=clip)


def gaze_angle_deg(vector: Tensor, gaze: Tensor, clip: float | None = None) -> Tensor:
    """Mean angle of predicted (B, 3) vectors to (B, 2) gaze labels in radians; degrees."""
    return angle_deg(vector, vector_from_pitchyaw(gaze), clip).mean()


def gaze_mse(vector: Tensor, gaze: Tensor) -> Tensor:
    """Mean over B x 3 of the squared difference to the label's unit vector."""
    return F.mse_loss(vector, vector_from_pitchyaw(gaze))


def hard_distances(codes: Tensor, person: Tensor, distance: CodeDistance) -> tuple[Tensor, Tensor, Tensor]:
    """Distances to the farthest code of the same person and to the nearest code of another.

    Args:
        codes: (..., N, F, 3).
        person: (..., N) numbers.
        distance: between codes.

    Returns:
        (..., N) farthest of the same person, (..., N) nearest of another, (..., N) bool: there is another.
    """
    same = person.unsqueeze(-1) == person.unsqueeze(-2)  # (..., N, N)
    with torch.no_grad():  # the search over all pairs keeps nothing for the backward pass
        all_pairs = distance(codes.unsqueeze(-3), codes.unsqueeze(-4))
        farthest = all_pairs.masked_fill(~same, -torch.inf).argmax(-1)
        nearest = all_pairs.masked_fill(same, torch.inf).argmin(-1)
    return distance(codes, _take(codes, farthest)), distance(codes, _take(codes, nearest)), ~same.all(-1)


def embedding_consistency(codes: Tensor, person: Tensor, distance: CodeDistance) -> Tensor:
    """Mean distance of each frontalised code to the farthest one of the same person (paper equation 4)."""
    farthest, _, _ = hard_distances(codes, person, distance)
    return farthest.mean()


def triplet(codes: Tensor, person: Tensor, distance: CodeDistance, margin: float) -> Tensor:
    """Batch-hard triplet: mean softplus(farthest of the same person - nearest of another + margin).

    A group of one person counts as 0.
    """
    farthest, nearest, has_other = hard_distances(codes, person, distance)
    terms = torch.where(has_other, F.softplus(farthest - nearest + margin), 0.0)
    # Mean within a group first: the value must not depend on which groups share a process.
    return (terms.sum(-1) / has_other.sum(-1).clamp(min=1)).mean()


def all_equal(codes: Tensor, distance: CodeDistance) -> Tensor:
    """Sample standard deviation, over a group, of the distance of its codes to their mean code; mean over groups."""
    return distance(codes, codes.mean(-3, keepdim=True)).std(-1).mean()


def _take(codes: Tensor, index: Tensor) -> Tensor:
    """(..., N, F, 3) codes and (..., N) places in N -> (..., N, F, 3)."""
    return codes.gather(-3, index[..., None, None].expand(*index.shape, *codes.shape[-2:]))
