import math

import pytest
import torch

from faze.model import losses

ANGLE = losses.CodeAngle()
DISTANCES = [ANGLE, losses.CodeEuclidean()]


def random_codes(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("angle", [0.0, 1e-7, 1e-3, 1.0, math.pi / 2, 3.0, math.pi - 1e-7, math.pi])
def test_angle_is_exact_from_0_to_pi(angle):
    a = torch.tensor([0.0, 0.0, 2.0], dtype=torch.float64)
    b = torch.tensor([math.sin(angle), 0.0, math.cos(angle)], dtype=torch.float64)
    assert float(losses.angle_deg(a, b)) == pytest.approx(math.degrees(angle), rel=1e-8, abs=1e-13)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("b", [[0.0, 0.0, 1.0], [0.0, 0.0, -1.0], [0.0, 0.0, 0.0], [1e-3, 0.0, 1.0]])
def test_both_derivatives_are_finite_for_equal_opposite_and_null_vectors(b, dtype):
    """Regression: the autograd graph contained a square root at 0, where its derivative is infinite."""
    a = torch.tensor([0.0, 0.0, 1.0], dtype=dtype, requires_grad=True)
    b = torch.tensor(b, dtype=dtype, requires_grad=True)
    first = torch.autograd.grad(losses.angle_deg(a, b), (a, b), create_graph=True)
    assert all(gradient.isfinite().all() for gradient in first)
    sum(gradient.sum() for gradient in first).backward()
    assert a.grad.isfinite().all() and b.grad.isfinite().all()


def test_gradient_of_angle():
    a, b = random_codes(4), random_codes(4, seed=1)
    b[0, 2] = a[0, 2]  # vectors that share a coordinate are not equal
    assert torch.autograd.gradcheck(losses.angle_deg, (a.requires_grad_(), b.requires_grad_()))


def all_pairs(codes: torch.Tensor, distance: losses.CodeDistance) -> torch.Tensor:
    return distance(codes.double().unsqueeze(-3), codes.double().unsqueeze(-4))


def close_and_opposite_codes() -> torch.Tensor:
    """Return codes within 0.02 degrees of each other or of the opposite: their cosines are 1 or -1 in float32."""
    codes = (random_codes(1, 2) + 1e-4 * random_codes(40, 2, seed=1)).float()
    codes[::2] *= -1
    return codes


@pytest.mark.parametrize(
    ("codes", "distance"),
    [
        *((random_codes(3, 40, 2).to(dtype), d) for dtype in (torch.float32, torch.float64) for d in DISTANCES),
        (close_and_opposite_codes(), ANGLE),
    ],
)
def test_search_finds_the_codes_of_brute_force(codes, distance):
    person = torch.stack([torch.arange(40) % 6, torch.zeros(40, dtype=torch.int64), torch.arange(40)])
    person = person if codes.ndim == 4 else torch.arange(40) // 4
    same, pairs = person.unsqueeze(-1) == person.unsqueeze(-2), all_pairs(codes, distance)
    farthest = pairs.masked_fill(~same, -torch.inf).argmax(-1)
    nearest = pairs.masked_fill(same, torch.inf).argmin(-1)
    for search, expected in ((losses.farthest_same, farthest), (losses.nearest_other, nearest)):
        partner = codes.gather(-3, expected[..., None, None].expand_as(codes))
        assert torch.equal(search(codes, person, distance), partner)


def test_coinciding_codes_give_zero_without_nan():
    codes = random_codes(1, 2).expand(4, 2, 3).clone().requires_grad_()
    person = torch.tensor([0, 0, 1, 1])
    for distance in (ANGLE, losses.CodeEuclidean()):
        codes.grad = None
        value = losses.embedding_consistency(codes, person, distance) + losses.triplet(codes, person, distance, 0.0)
        value.backward()
        assert float(value.detach()) == pytest.approx(math.log(2))  # softplus(0)
        assert torch.equal(codes.grad, torch.zeros_like(codes))
