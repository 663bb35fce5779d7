"""The released embedding-consistency procedure, rewritten from its mathematical description.

Every code is paired with every other, with both operands stored as (2B)^2 x F x 3. The angle of every pair is an arc
cosine clipped 1e-6 from its ends. The farthest code of the same person is found by the mean angle over rows, with
gradient. The released training does this for the gaze codes (F = 2) and, without using the result, for the head codes
(F = 16).

Shapes: N = 2B codes; F 3-D vectors of a code (rows).
"""

from torch import Tensor
from torch.nn import functional as F

CLIP = 1e-6


def embedding_consistency(codes: Tensor, person: Tensor) -> Tensor:
    """Return the mean angle, degrees, of each (N, F, 3) code to the farthest one of the same person (N,)."""
    n = len(codes)
    left, right = codes.unsqueeze(1).repeat(1, n, 1, 1), codes.unsqueeze(0).repeat(n, 1, 1, 1)  # (N, N, F, 3)
    cosine = F.cosine_similarity(left, right, dim=-1)
    angle = F.hardtanh(cosine, CLIP - 1, 1 - CLIP).acos().rad2deg().mean(-1)  # (N, N)
    other = person.unsqueeze(1) != person
    return angle.masked_fill(other, 0).max(dim=1).values.mean()
