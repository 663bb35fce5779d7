"""Few-shot learning against oracles: finite differences, a closed form, torch's own optimiser, one k at a time."""

import pytest
import torch
from torch.nn import functional as F

from faze.fewshot.kernel import adapt, sgd_
from faze.fewshot.meta import maml_loss, support_shares
from faze.fewshot.mlp import Batch, Weights, angle_deg, gaze_vector, mean_angle_deg, random_weights

INPUTS, HIDDEN = 6, 5


@pytest.fixture
def rng() -> torch.Generator:
    return torch.Generator().manual_seed(0)


def samples(rng: torch.Generator, models: int, count: int) -> Batch:
    code = torch.randn(models, count, INPUTS, generator=rng, dtype=torch.float64)
    gaze = F.normalize(torch.randn(models, count, 3, generator=rng, dtype=torch.float64), dim=-1)
    return Batch(code, gaze)


def networks(rng: torch.Generator, models: int) -> Weights:
    shapes = [(INPUTS, HIDDEN), (1, HIDDEN), (HIDDEN, 3), (1, 3)]
    return Weights(*(0.5 * torch.randn(models, *shape, generator=rng, dtype=torch.float64) for shape in shapes))


def outer_gradient(weights, support, query, shares, **inner):
    parameters = [parameter.clone().requires_grad_() for parameter in weights]
    return torch.autograd.grad(maml_loss(parameters, support, query, shares, **inner).sum(), parameters)


@pytest.mark.parametrize("inner_steps", [1, 3])
def test_maml_gradient_is_that_of_finite_differences(rng, inner_steps):
    weights, support, query = networks(rng, 2), samples(rng, 3, 4), samples(rng, 3, 7)
    shares = support_shares([2, 4], torch.float64)
    inner = {"inner_lr": 1e-3, "inner_steps": inner_steps}
    direction = [torch.randn(p.shape, generator=rng, dtype=torch.float64) for p in weights]

    def loss_at(distance):
        moved = [(p + distance * d).requires_grad_() for p, d in zip(weights, direction, strict=True)]
        return maml_loss(moved, support, query, shares, **inner).sum().item()

    def along(gradients):
        return sum((g * d).sum().item() for g, d in zip(gradients, direction, strict=True))

    numeric = (loss_at(1e-6) - loss_at(-1e-6)) / 2e-6
    exact = along(outer_gradient(weights, support, query, shares, **inner))
    assert exact == pytest.approx(numeric, rel=1e-6)
    # The first-order gradient, at the adapted weights, is another: the test can tell them apart.
    assert abs(along(first_order_gradient(weights, support, query, shares, **inner)) - numeric) > 1e-3 * abs(numeric)


def first_order_gradient(weights, support, query, shares, *, inner_lr, inner_steps):
    total = [torch.zeros_like(p) for p in weights]
    for task in range(len(query.code)):
        adapted = [p.clone().requires_grad_() for p in weights]
        for _ in range(inner_steps):
            pair = (x[task].expand(2, *x[task].shape) for x in (support.code, support.gaze))
            gradients = torch.autograd.grad(mean_angle_deg(adapted, *pair, shares).sum(), adapted)
            adapted = [(p - inner_lr * g).detach().requires_grad_() for p, g in zip(adapted, gradients, strict=True)]
        code, gaze = (x[task].expand(2, *x[task].shape) for x in (query.code, query.gaze))
        loss = angle_deg(gaze_vector(adapted, code), gaze).mean(-1).sum()
        total = [t + g / len(query.code) for t, g in zip(total, torch.autograd.grad(loss, adapted), strict=True)]
    return total


def test_maml_gradient_of_linear_regression_is_its_closed_form(rng):
    """Mean over tasks of (I - inner_lr H_support) times the query gradient at the adapted weights."""
    weight = torch.randn(1, INPUTS, 3, generator=rng, dtype=torch.float64)
    support, query, rate = samples(rng, 4, 5), samples(rng, 4, 8), 0.05

    def squared_error(parameters, code, target, share):
        return ((code @ parameters[0] - target).square().sum(-1) * share).sum(-1)

    found = outer_gradient(
        [weight], support, query, support_shares([5], torch.float64), inner_lr=rate, inner_steps=1, loss=squared_error
    )[0]
    expected = torch.zeros_like(weight)
    for x, y, x_query, y_query in zip(support.code, support.gaze, query.code, query.gaze, strict=True):
        hessian = 2 / len(x) * x.T @ x
        adapted = weight[0] - rate * 2 / len(x) * x.T @ (x @ weight[0] - y)
        by_query = 2 / len(x_query) * x_query.T @ (x_query @ adapted - y_query)
        expected += (torch.eye(INPUTS) - rate * hessian) @ by_query / len(query.code)
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-12)


def test_padding_has_no_effect(rng):
    """Each k among others, its support padded to the largest, equals that k alone."""
    shots = [1, 3, 6]
    weights, support, query = networks(rng, len(shots)), samples(rng, 2, max(shots)), samples(rng, 2, 5)
    inner = {"inner_lr": 1e-3, "inner_steps": 2}
    together = outer_gradient(weights, support, query, support_shares(shots, torch.float64), **inner)
    for position, k in enumerate(shots):
        own = Batch(support.code[:, :k], support.gaze[:, :k])
        alone = outer_gradient(
            weights.take(torch.tensor([position])), own, query, support_shares([k], torch.float64), **inner
        )
        for a, b in zip(together, alone, strict=True):
            torch.testing.assert_close(a[[position]], b, rtol=1e-10, atol=1e-12)


def test_adaptation_equals_torch_sgd_model_after_model(rng):
    """The kernel, in chunks and on threads, against torch.optim.SGD with autograd on one model at a time."""
    count, shots, steps, rate = 7, 4, 200, 1e-4
    initial, support = networks(rng, 1), samples(rng, 7, shots)
    chunks = list(adapt(initial, support, steps=steps, lr=rate, threads=2))
    found = [torch.cat([weights[i] for _, weights in chunks]) for i in range(4)]
    alike = torch.full((1, shots), 1 / shots, dtype=torch.float64)
    for model in range(count):
        parameters = [p.clone().requires_grad_() for p in initial]
        optimizer = torch.optim.SGD(parameters, lr=rate)
        for _ in range(steps):
            optimizer.zero_grad()
            mean_angle_deg(parameters, support.code[[model]], support.gaze[[model]], alike).sum().backward()
            optimizer.step()
        for mine, oracle in zip(found, parameters, strict=True):
            torch.testing.assert_close(mine[[model]], oracle.detach(), rtol=0, atol=1e-9)


def test_chunks_and_threads_do_not_change_adaptation(rng, monkeypatch):
    initial = random_weights(1, INPUTS, HIDDEN, seed=0)
    double = samples(rng, 9, 3)
    support = Batch(double.code.float(), double.gaze.float())
    results = []
    for cache_bytes, threads in [(2**20, 1), (1024, 1), (1024, 2)]:
        monkeypatch.setattr("faze.fewshot.kernel.CACHE_BYTES", cache_bytes)
        chunks = list(adapt(initial, support, steps=50, lr=1e-4, threads=threads))
        assert torch.cat([models for models, _ in chunks]).tolist() == list(range(9))
        results.append([torch.cat([weights[i] for _, weights in chunks]) for i in range(4)])
    assert len(chunks) > 1
    for one, chunked, threaded in zip(*results, strict=True):
        torch.testing.assert_close(one, chunked, rtol=1e-5, atol=1e-6)
        assert torch.equal(chunked, threaded)


def test_a_network_that_is_right_stays(rng):
    """At angle 0 the gradient is 0, not NaN; the loss's first and second derivatives are finite there too."""
    weights = random_weights(1, INPUTS, HIDDEN, seed=1)
    weights = Weights(*(torch.zeros_like(p) for p in weights[:3]), torch.tensor([[[0.0, 0.0, 2.0]]]))
    code, gaze = torch.randn(1, 3, INPUTS, generator=rng), torch.tensor([0.0, 0.0, 1.0]).expand(1, 3, 3)
    adapted = weights.take(torch.tensor([0]))
    sgd_(adapted, code, gaze, steps=5, lr=1e-2)
    assert all(torch.equal(a, b) for a, b in zip(adapted, weights, strict=True))
    support = Batch(code, gaze)
    gradients = outer_gradient(weights, support, support, support_shares([3]), inner_lr=1e-3, inner_steps=1)
    assert all(gradient.isfinite().all() for gradient in gradients)
