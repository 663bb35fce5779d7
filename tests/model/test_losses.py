import math
from functools import partial

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


def test_gaze_terms_by_hand():
    gaze = torch.tensor([[0.0, 0.0], [0.0, math.pi / 6]], dtype=torch.float64)  # (0, 0, 1) and (1/2, 0, sqrt(3)/2)
    vector = torch.tensor([[0.0, 1.0, 0.0], [0.0, 0.0, 1.0]], dtype=torch.float64)
    assert float(losses.gaze_angle_deg(vector, gaze)) == pytest.approx((90 + 30) / 2)
    squares = (1 + 1) + (0.25 + (1 - math.sqrt(3) / 2) ** 2)
    assert float(losses.gaze_mse(vector, gaze)) == pytest.approx(squares / 6)


@pytest.mark.parametrize("distance", DISTANCES)
def test_hard_distances_are_those_of_a_loop_over_pairs(distance):
    codes = random_codes(7, 4)
    person = torch.tensor([0, 1, 1, 0, 2, 1, 0])
    farthest, nearest, has_other = losses.hard_distances(codes, person, distance)
    for i in range(7):
        to = [distance(codes[i], codes[j]) for j in range(7)]
        assert farthest[i] == max(to[j] for j in range(7) if person[j] == person[i])
        assert nearest[i] == min(to[j] for j in range(7) if person[j] != person[i])
    assert has_other.all()
    margin = 0.3
    terms = [math.log1p(math.exp(f - n + margin)) for f, n in zip(farthest.tolist(), nearest.tolist(), strict=True)]
    assert float(losses.triplet(codes, person, distance, margin)) == pytest.approx(sum(terms) / 7)
    assert float(losses.embedding_consistency(codes, person, distance)) == pytest.approx(float(farthest.mean()))


def search(codes: torch.Tensor, person: torch.Tensor, distance: losses.CodeDistance) -> tuple[torch.Tensor, ...]:
    """Return the indices of the farthest and nearest codes, and the mask of pairs from the same person."""
    same, grid = person.unsqueeze(-1) == person.unsqueeze(-2), distance.grid(codes)
    return losses.farthest_same(grid, same), losses.nearest_other(grid, same), same


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
def test_search_finds_the_index_of_brute_force(codes, distance):
    person = torch.stack([torch.arange(40) % 6, torch.zeros(40, dtype=torch.int64), torch.arange(40)])
    person = person if codes.ndim == 4 else torch.arange(40) // 4
    farthest, nearest, same = search(codes, person, distance)
    pairs = all_pairs(codes, distance)
    assert torch.equal(farthest, pairs.masked_fill(~same, -torch.inf).argmax(-1))
    assert torch.equal(nearest, pairs.masked_fill(same, torch.inf).argmin(-1))


def test_groups_are_independent():
    """In the last group, no code has another person's as a partner."""
    person = torch.tensor([[0, 0, 1, 1, 1, 0], [5, 5, 5, 6, 6, 7], [1, 2, 1, 2, 1, 2], [3] * 6])
    codes = random_codes(*person.shape, 2)
    terms = {
        "consistency": partial(losses.embedding_consistency, distance=ANGLE),
        "triplet": partial(losses.triplet, distance=ANGLE, margin=0.1),
        "all_equal": lambda codes, person: losses.all_equal(codes, ANGLE),
    }
    for name, term in terms.items():
        apart = torch.stack([term(c, p) for c, p in zip(codes, person, strict=True)]).mean()
        assert torch.allclose(term(codes, person), apart, rtol=1e-12), name
        parted = term(torch.stack([codes, codes.flip(0)]), torch.stack([person, person.flip(0)]))  # groups of groups
        assert torch.allclose(parted, apart, rtol=1e-12), name


def test_coinciding_codes_give_zero_without_nan():
    codes = random_codes(1, 2).expand(4, 2, 3).clone().requires_grad_()
    person = torch.tensor([0, 0, 1, 1])
    for distance in (ANGLE, losses.CodeEuclidean()):
        codes.grad = None
        value = losses.embedding_consistency(codes, person, distance) + losses.triplet(codes, person, distance, 0.0)
        value.backward()
        assert float(value.detach()) == pytest.approx(math.log(2))  # softplus(0)
        assert torch.equal(codes.grad, torch.zeros_like(codes))


def test_triplet_of_one_person_is_zero_with_a_gradient():
    codes = random_codes(4, 2).requires_grad_()
    value = losses.triplet(codes, torch.zeros(4, dtype=torch.int64), ANGLE, 0.0)
    value.backward()
    assert float(value.detach()) == 0
    assert torch.equal(codes.grad, torch.zeros_like(codes))


def test_all_equal_by_hand():
    half = math.pi / 6
    rows = [
        [math.sin(a), 0.0, math.cos(a)] for a in (-half, 0.0, half)
    ]  # 30 degrees apart; the mean code is the middle
    codes = torch.tensor(rows, dtype=torch.float64).unsqueeze(1)
    angles = torch.tensor([30.0, 0.0, 30.0], dtype=torch.float64)
    assert float(losses.all_equal(codes, ANGLE)) == pytest.approx(float(angles.std()))
