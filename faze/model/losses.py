"""Loss terms of DT-ED (paper section 3.1.2) and the selectable ones of the released training.

Shapes: ... groups within which samples are compared; N codes of a group; F 3-D vectors of a code (rows).
A *code distance* is the mean over rows of the angle (degrees) or of the euclidean distance between corresponding rows.

Losses that compare samples first search the hardest partner of each code among all N x N pairs, without gradient, in a
grid that never holds the pairs' vectors, (..., N, N, F, 3); then they compute the distance to that one partner exactly.
"""

from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor
from torch.nn import functional as F

from faze.base.geometry import vector_from_pitchyaw


class CodeDistance(Protocol):
    """How far codes are apart."""

    def __call__(self, a: Tensor, b: Tensor) -> Tensor:
        """(..., F, 3), (..., F, 3) -> (...), with gradient."""

    def grid(self, codes: Tensor) -> Tensor:
        """(..., N, F, 3) -> (..., N, N), every code to every code, up to a factor: to search in, without gradient."""


def angle_deg(a: Tensor, b: Tensor, clip: float | None = None) -> Tensor:
    """Measure the angle between vectors; first and second derivatives are finite everywhere (zero at angle 0).

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


@dataclass(frozen=True)
class CodeAngle:
    """Mean angle between rows, degrees; clip as angle_deg's."""

    clip: float | None = None

    def __call__(self, a: Tensor, b: Tensor) -> Tensor:
        """(..., F, 3), (..., F, 3) -> (...)."""
        return angle_deg(a, b, self.clip).mean(-1)

    @torch.no_grad()
    def grid(self, codes: Tensor) -> Tensor:
        """(..., N, F, 3), no row of length 0, -> (..., N, N) radians.

        By Gram matrices, in float64 whatever the codes are: the angle of a float32 cosine is wrong by up to 0.03
        degrees near 0 and 180, where the nearest and the farthest lie, and TF32 would round the products to 11 bits.
        """
        rows = F.normalize(codes.double(), dim=-1).movedim(-2, -3)  # (..., N, F, 3) -> (..., F, N, 3)
        bound = 1 - (self.clip or 0.0)
        return (rows @ rows.mT).clamp_(-bound, bound).acos_().mean(-3)  # (..., F, N, N) -> (..., N, N)


@dataclass(frozen=True)
class CodeEuclidean:
    """Mean euclidean distance between rows."""

    def __call__(self, a: Tensor, b: Tensor) -> Tensor:
        """(..., F, 3), (..., F, 3) -> (...)."""
        return torch.linalg.vector_norm(a - b, dim=-1).mean(-1)

    @torch.no_grad()
    def grid(self, codes: Tensor) -> Tensor:
        """(..., N, F, 3) -> (..., N, N), by differences: the squares of a Gram matrix would cancel for near codes."""
        rows = codes.movedim(-2, -3)  # (..., N, F, 3) -> (..., F, N, 3)
        return torch.cdist(rows, rows, compute_mode="donot_use_mm_for_euclid_dist").mean(-3)


def gaze_angle_deg(vector: Tensor, gaze: Tensor, clip: float | None = None) -> Tensor:
    """Average the angle of predicted (B, 3) vectors to (B, 2) gaze labels in radians; degrees."""
    return angle_deg(vector, vector_from_pitchyaw(gaze, torch), clip).mean()


def gaze_mse(vector: Tensor, gaze: Tensor) -> Tensor:
    """Average the squared difference to the label's unit vector over B x 3."""
    return F.mse_loss(vector, vector_from_pitchyaw(gaze, torch))


def hard_distances(codes: Tensor, person: Tensor, distance: CodeDistance) -> tuple[Tensor, Tensor, Tensor]:
    """Find the distances to the farthest code of the same person and to the nearest code of another.

    Args:
        codes: (..., N, F, 3).
        person: (..., N) numbers.
        distance: between codes.

    Returns:
        (..., N) farthest of the same person, (..., N) nearest of another, (..., N) bool: there is another.
    """
    same, grid = _same_person(person), distance.grid(codes)
    farthest, nearest = _take(codes, farthest_same(grid, same)), _take(codes, nearest_other(grid, same))
    return distance(codes, farthest), distance(codes, nearest), ~same.all(-1)


def farthest_same(grid: Tensor, same: Tensor) -> Tensor:
    """(..., N, N) distances and whether both are of one person -> (..., N) place of the farthest of the same person."""
    return grid.masked_fill(~same, -torch.inf).argmax(-1)


def nearest_other(grid: Tensor, same: Tensor) -> Tensor:
    """(..., N, N) distances and whether both are of one person -> (..., N) place of the nearest of another person."""
    return grid.masked_fill(same, torch.inf).argmin(-1)


def embedding_consistency(codes: Tensor, person: Tensor, distance: CodeDistance) -> Tensor:
    """Average the distance of each frontalised code to the farthest one of the same person (paper equation 4)."""
    farthest = farthest_same(distance.grid(codes), _same_person(person))
    return distance(codes, _take(codes, farthest)).mean()


def triplet(codes: Tensor, person: Tensor, distance: CodeDistance, margin: float) -> Tensor:
    """Compute the batch-hard triplet loss: mean softplus(farthest of the same person - nearest of another + margin).

    A group of one person counts as 0.
    """
    farthest, nearest, has_other = hard_distances(codes, person, distance)
    terms = torch.where(has_other, F.softplus(farthest - nearest + margin), 0.0)
    # Mean within a group first: the value must not depend on which groups share a process.
    return (terms.sum(-1) / has_other.sum(-1).clamp(min=1)).mean()


def all_equal(codes: Tensor, distance: CodeDistance) -> Tensor:
    """Compute the sample standard deviation of a group's distances to its mean code; average over groups."""
    return distance(codes, codes.mean(-3, keepdim=True)).std(-1).mean()


def _same_person(person: Tensor) -> Tensor:
    """(..., N) numbers -> (..., N, N) bool."""
    return person.unsqueeze(-1) == person.unsqueeze(-2)


def _take(codes: Tensor, index: Tensor) -> Tensor:
    """(..., N, F, 3) codes and (..., N) places in N -> (..., N, F, 3)."""
    return codes.gather(-3, index[..., None, None].expand(*index.shape, *codes.shape[-2:]))
