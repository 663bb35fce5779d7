"""Few-shot learning compared with finite differences, closed forms, autograd, torch's optimiser, and each k alone.

Checked by breaking the code: the sign of the Hessian product, the rate left out of its direction, the second derivative
of the activation left out, SELU's slope used as ReLU's, padded samples counted (in C and in torch), the query of the
first task instead of the last, a sum over tasks instead of the mean, NaN for a network that makes no error.
"""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from faze.fewshot import kernel as kernels
from faze.fewshot.kernel import CompiledKernel, Kernel, TorchKernel, adapt
from faze.fewshot.meta_training import Tasks, outer_gradient, reference_gradient
from faze.fewshot.mlp import SampleSets, Weights, gaze_vector, map_weights, random_weights
from faze.model.losses import angle_deg
from faze.native.compiled import library

INPUTS, HIDDEN, RATE = 6, 5, 1e-3
EXACT = TorchKernel(INPUTS, HIDDEN, "selu")


@pytest.fixture
def rng() -> torch.Generator:
    return torch.Generator().manual_seed(0)


def batch(rng: torch.Generator, sets: int, count: int, inputs: int = INPUTS) -> SampleSets:
    code = torch.randn(sets, count, inputs, generator=rng, dtype=torch.float64)
    gaze = F.normalize(torch.randn(sets, count, 3, generator=rng, dtype=torch.float64), dim=-1)
    return SampleSets(code, gaze)


def networks(rng: torch.Generator, models: int, hidden: int = HIDDEN, inputs: int = INPUTS) -> Weights:
    shapes = [(inputs, hidden), (1, hidden), (hidden, 3), (1, 3)]
    return Weights(*(0.5 * torch.randn(models, *shape, generator=rng, dtype=torch.float64) for shape in shapes))


def tasks_of(shots: list[int], support: SampleSets, query: SampleSets) -> Tasks:
    """Return the support and query sets of K * T models."""
    tasks = len(query.code)
    row, count = torch.arange(tasks).repeat(len(shots)), torch.tensor(shots).repeat_interleave(tasks)
    return Tasks(support.for_models(row, count), query.for_models(row, query.code.shape[1]))


def loss(parameters: list[Tensor], code: Tensor, gaze: Tensor) -> Tensor:
    """Compute the loss of a single network directly from the model's functions."""
    return angle_deg(gaze_vector([p[None] for p in parameters], code[None], "selu")[0], gaze).mean()


def taken(weights: Weights, model: int) -> list[Tensor]:
    return [parameter[model].clone().requires_grad_() for parameter in weights]


def stepped(parameters: list[Tensor], code: Tensor, gaze: Tensor) -> list[Tensor]:
    gradients = torch.autograd.grad(loss(parameters, code, gaze), parameters)
    return [(p - RATE * g).detach().requires_grad_() for p, g in zip(parameters, gradients, strict=True)]


def outer_loss(weights: Weights, shots: list[int], support: SampleSets, query: SampleSets) -> float:
    """Compute the outer loss for all k and tasks, one after the other, without second derivatives."""
    total = 0.0
    for model, k in enumerate(shots):
        for task in range(len(query.code)):
            parameters = stepped(taken(weights, model), support.code[task, :k], support.gaze[task, :k])
            total += loss(parameters, query.code[task], query.gaze[task]).item() / len(query.code)
    return total


def along(gradients, direction) -> float:
    return sum((g * d).sum().item() for g, d in zip(gradients, direction, strict=True))


def test_mamls_gradient_is_that_of_finite_differences(rng):
    shots, weights, support, query = [2, 4], networks(rng, 2), batch(rng, 3, 4), batch(rng, 3, 7)
    tasks = tasks_of(shots, support, query)
    by_weights, losses = outer_gradient(EXACT, weights, RATE, tasks)
    first_order, _ = outer_gradient(EXACT, weights, RATE, tasks, second_order=False)
    direction = map_weights(lambda p: torch.randn(p.shape, generator=rng, dtype=p.dtype), weights)

    def at(distance: float) -> float:
        return outer_loss(map_weights(lambda p, d: p + distance * d, weights, direction), shots, support, query)

    exact = along(by_weights, direction)
    assert exact == pytest.approx((at(1e-6) - at(-1e-6)) / 2e-6, rel=1e-6)
    assert losses.sum().item() == pytest.approx(outer_loss(weights, shots, support, query), rel=1e-9)
    # The first-order gradient is another: the test can tell them apart.
    assert abs(along(first_order, direction) - exact) > 1e-3 * abs(exact)


def test_fomamls_gradient_is_the_querys_at_the_adapted_weights(rng):
    shots, weights, support, query = [2, 4], networks(rng, 2), batch(rng, 3, 4), batch(rng, 3, 7)
    found, _ = outer_gradient(EXACT, weights, RATE, tasks_of(shots, support, query), second_order=False)
    for model, k in enumerate(shots):
        expected = [torch.zeros_like(p[model]) for p in weights]
        for task in range(3):
            parameters = stepped(taken(weights, model), support.code[task, :k], support.gaze[task, :k])
            gradients = torch.autograd.grad(loss(parameters, query.code[task], query.gaze[task]), parameters)
            expected = [e + g / 3 for e, g in zip(expected, gradients, strict=True)]
        for mine, oracle in zip(found, expected, strict=True):
            torch.testing.assert_close(mine[model], oracle, rtol=1e-9, atol=1e-10)


def test_the_references_gradient_is_what_piles_up_in_the_released_loop(rng):
    """As in the released loop, support gradients add up, and only the last query is backpropagated."""
    shots, weights, support, query = [2, 4], networks(rng, 2), batch(rng, 3, 4), batch(rng, 3, 7)
    found, _ = reference_gradient(EXACT, weights, 2e-3, tasks_of(shots, support, query))
    for model, k in enumerate(shots):
        parameters = taken(weights, model)
        piled = [torch.zeros_like(p) for p in parameters]
        for task in range(3):
            inner = loss(parameters, support.code[task, :k], support.gaze[task, :k])
            gradients = torch.autograd.grad(inner, parameters, create_graph=True)
            piled = [p + g for p, g in zip(piled, gradients, strict=True)]
            adapted = [p - 2e-3 * g for p, g in zip(parameters, piled, strict=True)]
        last = torch.autograd.grad(loss(adapted, query.code[2], query.gaze[2]), parameters, retain_graph=True)
        for mine, support_part, query_part in zip(found, piled, last, strict=True):
            torch.testing.assert_close(mine[model], support_part.detach() + query_part, rtol=1e-9, atol=1e-10)


class LinearRegression:
    """The methods that outer_gradient requires, for the mean squared error of code @ weight."""

    def gradient(self, weights, samples):
        x, y = samples.code[samples.row], samples.gaze[samples.row]
        off = x @ weights.hidden_weight - y
        by = 2 / x.shape[1] * x.mT @ off
        return Weights(by, *map(torch.zeros_like, weights[1:])), off.square().sum(-1).mean(-1)

    def hessian_product(self, weights, samples, direction):
        x = samples.code[samples.row]
        return Weights(2 / x.shape[1] * x.mT @ x @ direction.hidden_weight, *map(torch.zeros_like, weights[1:]))


def test_mamls_gradient_of_linear_regression_is_its_closed_form(rng):
    """Expected: the mean over tasks of (I - inner_lr H_support) times the adapted query gradient."""
    weight = torch.randn(1, INPUTS, 3, generator=rng, dtype=torch.float64)
    weights = Weights(weight, *(torch.zeros(1, 1, 1, dtype=torch.float64) for _ in range(3)))
    support, query, rate = batch(rng, 4, 5), batch(rng, 4, 8), 0.05
    found, _ = outer_gradient(LinearRegression(), weights, rate, tasks_of([5], support, query))
    expected = torch.zeros_like(weight)
    for x, y, x_query, y_query in zip(support.code, support.gaze, query.code, query.gaze, strict=True):
        hessian = 2 / len(x) * x.T @ x
        adapted = weight[0] - rate * 2 / len(x) * x.T @ (x @ weight[0] - y)
        by_query = 2 / len(x_query) * x_query.T @ (x_query @ adapted - y_query)
        expected += (torch.eye(INPUTS) - rate * hessian) @ by_query / len(query.code)
    torch.testing.assert_close(found.hidden_weight, expected, rtol=1e-12, atol=1e-12)


def test_padding_has_no_effect(rng):
    """A k computed together with others, its support padded to the largest, has the same gradients as by itself."""
    shots = [1, 3, 6]
    weights, support, query = networks(rng, len(shots)), batch(rng, 2, max(shots)), batch(rng, 2, 5)
    together, _ = outer_gradient(EXACT, weights, RATE, tasks_of(shots, support, query))
    for position, k in enumerate(shots):
        own, only = SampleSets(support.code[:, :k], support.gaze[:, :k]), torch.tensor([position])
        alone, _ = outer_gradient(EXACT, weights.take(only), RATE, tasks_of([k], own, query))
        for a, b in zip(together, alone, strict=True):
            torch.testing.assert_close(a[only], b, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("activation", ["selu", "relu"])
def test_adaptation_equals_torch_sgd_model_after_model(rng, activation):
    """Compare the kernel, which uses chunks and threads, with torch.optim.SGD and autograd on one model at a time."""
    count, shots, steps, rate = 7, 4, 100, 1e-4
    initial, support = networks(rng, 1), batch(rng, 7, shots)
    chunks = list(adapt(initial, activation, support, support.one_per_model(), steps=steps, rate=rate, threads=2))
    found = [torch.cat([weights[i] for _, weights, _ in chunks]) for i in range(4)]
    for model in range(count):
        parameters = [p.clone().requires_grad_() for p in initial]
        optimizer = torch.optim.SGD(parameters, lr=rate)
        for _ in range(steps):
            optimizer.zero_grad()
            vector = gaze_vector(parameters, support.code[[model]], activation)
            angle_deg(vector, support.gaze[[model]]).mean().backward()
            optimizer.step()
        for mine, oracle in zip(found, parameters, strict=True):
            torch.testing.assert_close(mine[[model]], oracle.detach(), rtol=0, atol=1e-9)


def compiled_kernel(*sizes: object) -> CompiledKernel:
    code = library("fewshot/kernel.c")
    if code is None:
        pytest.skip("kernel.c is not compiled")
    return CompiledKernel(code, *sizes)


@pytest.mark.parametrize(("inputs", "hidden"), [(6, 64), (6, 13), (9, 48), (3, 1)])
@pytest.mark.parametrize("activation", ["selu", "relu"])
def test_the_compiled_kernel_equals_torchs_in_double_precision(rng, activation, inputs, hidden):
    native, exact = compiled_kernel(inputs, hidden, activation), TorchKernel(inputs, hidden, activation)
    weights, direction = networks(rng, 6, hidden, inputs), networks(rng, 6, hidden, inputs)
    data = batch(rng, 3, 9, inputs)
    samples = data.for_models(torch.tensor([0, 2, 1, 1, 0, 2]), torch.tensor([9, 1, 4, 9, 2, 7]))

    def single(given):
        return type(given)(*(x.float() if x.is_floating_point() else x for x in given))

    def assert_close(found, expected):
        for mine, oracle in zip(found, expected, strict=True):
            torch.testing.assert_close(mine.double(), oracle, rtol=1e-4, atol=2e-5 * oracle.abs().max().item())

    few = (single(weights), single(samples))
    assert_close(*(k.gradient(w, s)[0] for k, w, s in ((native, *few), (exact, weights, samples))))
    torch.testing.assert_close(
        native.gradient(*few)[1].double(), exact.mean_angle_deg(weights, samples), rtol=1e-5, atol=0
    )
    torch.testing.assert_close(native.mean_angle_deg(*few), exact.mean_angle_deg(weights, samples), rtol=1e-5, atol=0)
    assert_close(native.hessian_product(*few, single(direction)), exact.hessian_product(weights, samples, direction))
    adapted, expected = few[0].take(torch.arange(6)), weights.take(torch.arange(6))
    native.sgd_(adapted, few[1], steps=30, rate=3e-5)
    exact.sgd_(expected, samples, steps=30, rate=3e-5)
    for mine, oracle in zip(adapted, expected, strict=True):
        torch.testing.assert_close(mine.double(), oracle, rtol=0, atol=2e-5)
    assert not torch.equal(adapted.hidden_weight, few[0].hidden_weight)


def test_chunks_and_threads_do_not_change_adaptation(rng, monkeypatch):
    initial = random_weights(1, INPUTS, HIDDEN, seed=0)
    double = batch(rng, 9, 3)
    support = SampleSets(double.code.float(), double.gaze.float())
    for kernel in (compiled_kernel, TorchKernel):
        results = []
        for models, threads in [(2**20, 1), (2, 1), (2, 2)]:
            monkeypatch.setattr(kernels, "kernel_for", lambda *_, of=kernel, m=models: chunked(of, m))
            how = {"steps": 50, "rate": 1e-4, "threads": threads}
            chunks = list(adapt(initial, "selu", support, support.one_per_model(), **how))
            assert torch.cat([models for models, *_ in chunks]).tolist() == list(range(9))
            results.append([torch.cat([weights[i] for _, weights, _ in chunks]) for i in range(4)])
        assert len(chunks) == 5
        for one, in_chunks, threaded in zip(*results, strict=True):
            torch.testing.assert_close(one, in_chunks, rtol=1e-5, atol=1e-6)
            assert torch.equal(in_chunks, threaded)


def chunked(make: Callable[..., Kernel], models: int) -> Kernel:
    kernel = make(INPUTS, HIDDEN, "selu")
    kernel.models_per_chunk = models
    return kernel


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=["compiled where it can be", "torch"])
def test_a_network_that_is_right_stays(rng, dtype):
    """At angle 0, the gradient and the Hessian product are 0, not NaN."""
    zeros = [torch.zeros(1, *p.shape[1:], dtype=dtype) for p in random_weights(1, INPUTS, HIDDEN, seed=1)[:3]]
    weights = Weights(*zeros, torch.tensor([[[0.0, 0.0, 2.0]]], dtype=dtype))
    code = torch.randn(1, 3, INPUTS, generator=rng, dtype=dtype)
    given = SampleSets(code, torch.tensor([0.0, 0.0, 1.0], dtype=dtype).expand(1, 3, 3))
    kernel, adapted = kernels.kernel_for(weights, "selu"), weights.take(torch.tensor([0]))
    kernel.sgd_(adapted, given.one_per_model(), steps=5, rate=1e-2)
    assert all(torch.equal(a, b) for a, b in zip(adapted, weights, strict=True))
    gradients, _ = outer_gradient(kernel, weights, RATE, Tasks(*[given.one_per_model()] * 2))
    assert all((gradient == 0).all() for gradient in gradients)
