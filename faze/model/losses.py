"""The loss terms of DT-ED (paper section 3.1.2), and additional terms from the released training code.

Shapes: `...` groups whose samples are compared with each other; N codes in a group; F 3-D vectors (rows) in a code.
A *code distance* is the mean, over rows, of the angle (degrees) or the euclidean distance between corresponding rows.

Losses that compare samples first find the hardest partner of each code among all N x N pairs, without gradients. They
use a grid of distances (..., N, N) and never build a tensor of all pairs (..., N, N, F, 3). Then they compute the
distance to that partner exactly.
"""

import torch
from torch import Tensor
from torch.nn import functional as F


def angle_deg(a: Tensor, b: Tensor) -> Tensor:
    """Compute the angle, in degrees, between vectors (..., 3) of any length, which are broadcast: (...).

    The first and second derivatives are finite everywhere, and 0 at angle 0. The released code caps the cosine at
    1 - 1e-6 instead, which makes 0.081 degrees the smallest angle.
    """
    dot = (a * b).sum(-1)
    perpendicular = torch.linalg.cross(*torch.broadcast_tensors(a, b))
    # With fused multiply-adds, v x v is a rounding error instead of 0; its direction would cause a full-size gradient.
    perpendicular = perpendicular.masked_fill((a == b).all(-1, keepdim=True), 0)
    squared = perpendicular.square().sum(-1)
    apart = squared > 0
    # The derivatives of the square root are infinite at 0, so it is kept out of the graph where a and b are parallel.
    sine = torch.where(apart, squared, 1.0).sqrt() * apart
    return torch.atan2(sine, torch.where(apart | (dot != 0), dot, 1.0)).rad2deg()


class CodeAngle:
    """The mean angle between corresponding rows, in degrees."""

    def __call__(self, a: Tensor, b: Tensor) -> Tensor:
        """Compute differentiable distances: (..., F, 3), (..., F, 3) -> (...)."""
        return angle_deg(a, b).mean(-1)

    @torch.no_grad()
    def grid(self, codes: Tensor) -> Tensor:
        """Compute each pair's mean angle in radians: (..., N, F, 3) -> (..., N, N). No row may have length 0.

        The Gram matrices are float64. An angle from a float32 cosine is off by up to 0.03 degrees near 0 and 180
        degrees, where the nearest and the farthest codes are, and TF32 would round the products to 11 bits.
        """
        rows = F.normalize(codes.double(), dim=-1).movedim(-2, -3)  # (..., N, F, 3) -> (..., F, N, 3)
        return (rows @ rows.mT).clamp_(-1, 1).acos_().mean(-3)  # (..., F, N, N) -> (..., N, N)


class CodeEuclidean:
    """The mean euclidean distance between corresponding rows."""

    def __call__(self, a: Tensor, b: Tensor) -> Tensor:
        """Compute differentiable distances: (..., F, 3), (..., F, 3) -> (...)."""
        return torch.linalg.vector_norm(a - b, dim=-1).mean(-1)

    @torch.no_grad()
    def grid(self, codes: Tensor) -> Tensor:
        """Compute all pairwise distances from differences, which avoids cancellation: (..., N, F, 3) -> (..., N, N)."""
        rows = codes.movedim(-2, -3)  # (..., N, F, 3) -> (..., F, N, 3)
        return torch.cdist(rows, rows, compute_mode="donot_use_mm_for_euclid_dist").mean(-3)


CodeDistance = CodeAngle | CodeEuclidean


def farthest_same(codes: Tensor, person: Tensor, distance: CodeDistance) -> Tensor:
    """Find, for each code (..., N, F, 3), the same person's farthest code; `person` (..., N) identifies people."""
    return _take(codes, distance.grid(codes).masked_fill(~_same_person(person), -torch.inf).argmax(-1))


def nearest_other(codes: Tensor, person: Tensor, distance: CodeDistance) -> Tensor:
    """Find, for each code (..., N, F, 3), another person's nearest code, or any code if there is only one person."""
    return _take(codes, distance.grid(codes).masked_fill(_same_person(person), torch.inf).argmin(-1))


def embedding_consistency(codes: Tensor, person: Tensor, distance: CodeDistance) -> Tensor:
    """Compute the mean distance from each frontalised code to the same person's farthest code (paper equation 4)."""
    return distance(codes, farthest_same(codes, person, distance)).mean()


def triplet(codes: Tensor, person: Tensor, distance: CodeDistance, margin: float) -> Tensor:
    """Compute the batch-hard triplet loss: mean softplus(farthest of the same person - nearest of another + margin).

    The loss of a group with only one person is 0.
    """
    has_other = ~_same_person(person).all(-1)
    farthest, nearest = farthest_same(codes, person, distance), nearest_other(codes, person, distance)
    terms = torch.where(has_other, F.softplus(distance(codes, farthest) - distance(codes, nearest) + margin), 0.0)
    # Average within each group first, so that the value does not depend on which groups share a process.
    return (terms.sum(-1) / has_other.sum(-1).clamp(min=1)).mean()


def all_equal(codes: Tensor, distance: CodeDistance) -> Tensor:
    """Compute the sample standard deviation of the distances to a group's mean code, averaged over groups."""
    return distance(codes, codes.mean(-3, keepdim=True)).std(-1).mean()


def _same_person(person: Tensor) -> Tensor:
    """Return, for each pair of codes, whether both belong to the same person: (..., N) integers -> (..., N, N) bool."""
    return person.unsqueeze(-1) == person.unsqueeze(-2)


def _take(codes: Tensor, index: Tensor) -> Tensor:
    """Select the codes (..., N, F, 3) at the given indices (..., N); the result is (..., N, F, 3)."""
    return codes.gather(-3, index[..., None, None].expand(*index.shape, *codes.shape[-2:]))
