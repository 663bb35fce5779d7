"""The released embedding-consistency procedure, rewritten from its mathematical description.

Every code is paired with every other one, and both operands are stored as arrays of (2B)^2 x F x 3. The angle of every
pair is the arc cosine of a cosine that is clipped to [-1 + 1e-6, 1 - 1e-6]. The farthest code of the same person is the
one with the largest mean angle over rows; gradients flow through this maximum. The released training does this for the
gaze codes (F = 2) and, without using the result, for the head codes (F = 16).

Shapes: N = 2B codes, each with F 3-D vectors (rows).
"""

from torch import Tensor
from torch.nn import functional as F

CLIP = 1e-6


def embedding_consistency(codes: Tensor, person: Tensor) -> Tensor:
    """Return the mean angle, in degrees, between each code (N, F, 3) and the farthest one with the same person (N,)."""
    n = len(codes)
    left, right = codes.unsqueeze(1).repeat(1, n, 1, 1), codes.unsqueeze(0).repeat(n, 1, 1, 1)  # (N, N, F, 3)
    cosine = F.cosine_similarity(left, right, dim=-1)
    angle = F.hardtanh(cosine, CLIP - 1, 1 - CLIP).acos().rad2deg().mean(-1)  # (N, N)
    other = person.unsqueeze(1) != person
    return angle.masked_fill(other, 0).max(dim=1).values.mean()
