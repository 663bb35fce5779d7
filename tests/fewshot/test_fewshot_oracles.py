"""Few-shot learning compared with finite differences, autograd and torch's optimisers.

Checked by breaking the code: the sign of the Hessian product, the rate left out of its direction, the second derivative
of the activation left out, SELU's slope used as ReLU's, padded samples counted (in C and in torch), the query of the
first task instead of the last, a sum over tasks instead of the mean, NaN for a network that makes no error.
"""

import dataclasses

import numpy as np
import pytest
import torch
from test_fewshot import people, settings
from torch import Tensor
from torch.nn import functional as F

from faze.fewshot import mlp
from faze.fewshot.fine_tuning import draw_tasks, outer_gradient
from faze.fewshot.interface import Learned, MetaTraining
from faze.fewshot.learners import LEARNERS
from faze.fewshot.mlp import Samples, gaze_vector, pack, random_network, unpack
from faze.fewshot.person_codes import PersonCodes, draw_calibrations
from faze.model.losses import angle_deg

INPUTS, HIDDEN, RATE, TASKS = 6, 5, 1e-3, 3
SHOTS = [2, 4]


@pytest.fixture
def rng() -> torch.Generator:
    return torch.Generator().manual_seed(0)


def batch(rng: torch.Generator, count: Tensor, n: int, inputs: int = INPUTS) -> Samples:
    """Draw n samples for each network; those beyond count[m] must not matter."""
    code = torch.randn(len(count), n, inputs, generator=rng, dtype=torch.float64)
    gaze = F.normalize(torch.randn(len(count), n, 3, generator=rng, dtype=torch.float64), dim=-1)
    return Samples(code, gaze, count)


def small_codes() -> list[PersonCodes]:
    return [dataclasses.replace(person, code=person.code / 3000) for person in people()]


def networks(rng: torch.Generator, models: int, hidden: int = HIDDEN, inputs: int = INPUTS) -> Tensor:
    size = hidden * (inputs + 4) + 3
    return 0.5 * torch.randn(models, size, generator=rng, dtype=torch.float64)


def loss(network: Tensor, code: Tensor, gaze: Tensor, activation: str = "selu") -> Tensor:
    """Compute the loss of a single network (S,) directly from the model's functions."""
    vector = gaze_vector(network[None], code[None], activation)[0]
    return angle_deg(vector, gaze).mean()


def outer_loss(rule: str, weights: Tensor, shots: list[int], support: Samples, query: Samples) -> Tensor:
    """Compute the outer loss for all k and tasks, one after the other, differentiable by autograd."""
    total = torch.zeros((), dtype=weights.dtype)
    for model, k in enumerate(shots):
        piled = 0
        for task in range(TASKS):
            row = model * TASKS + task
            inner = loss(weights[model], support.code[row, :k], support.gaze[row, :k])
            [gradient] = torch.autograd.grad(inner, weights, create_graph=True)
            gradient = gradient[model].detach() if rule == "fomaml" else gradient[model]
            piled = piled + gradient if rule == "reference" else gradient
            after = loss(weights[model] - RATE * piled, query.code[row], query.gaze[row])
            # As in the released loop, support gradients add up, and only the last query is backpropagated.
            total = total + (inner + after * (task == TASKS - 1) if rule == "reference" else after / TASKS)
    return total


@pytest.mark.parametrize("rule", ["maml", "fomaml", "reference"])
def test_outer_gradients_are_those_of_autograd_and_finite_differences(rng, rule):
    weights = networks(rng, 2).requires_grad_()
    support = batch(rng, torch.tensor(SHOTS).repeat_interleave(TASKS), 4)
    query = batch(rng, torch.full((2 * TASKS,), 7), 7)
    found, losses = outer_gradient(rule, weights.detach(), "selu", RATE, support, query)
    total = outer_loss(rule, weights, SHOTS, support, query)
    [expected] = torch.autograd.grad(total, weights)
    torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-10)
    if rule == "maml":
        assert losses.sum().item() == pytest.approx(total.item(), rel=1e-9)
        along, direction = [], torch.randn(weights.shape, generator=rng, dtype=weights.dtype)
        for distance in (1e-6, -1e-6):
            along.append(outer_loss(rule, weights + distance * direction, SHOTS, support, query).item())
        assert (found * direction).sum().item() == pytest.approx((along[0] - along[1]) / 2e-6, rel=1e-6)
        first_order, _ = outer_gradient("fomaml", weights.detach(), "selu", RATE, support, query)
        assert (first_order - found).abs().max() > 1e-4 * found.abs().max()  # the test can tell them apart


def test_meta_training_is_torchs_adam_on_these_gradients():
    """Also: each k keeps the network of its lowest val error, or without val people the last one."""
    fewshot = settings(shots=(1, 3), tasks=TASKS, hidden=8, outer_lr=0.01, inner_lr=RATE, validate_every_steps=10)
    persons, learner, generator = small_codes(), LEARNERS["maml"], np.random.default_rng(7)

    def train(steps: int, val: list[PersonCodes]) -> Learned:
        return learner.meta_train(MetaTraining(persons, val, fewshot.model_copy(update={"outer_steps": steps}), 7))

    own, losses = pack(random_network(INPUTS, 8, seed=7)).repeat(2, 1), []
    optimizer = torch.optim.Adam([own], lr=0.01)
    for _ in range(40):
        own.grad, loss_deg = outer_gradient("maml", own, "selu", RATE, *draw_tasks(persons, fewshot, generator))
        losses.append(loss_deg)
        optimizer.step()
    last = train(40, [])
    torch.testing.assert_close(pack(last.state), own, rtol=0, atol=1e-4)
    torch.testing.assert_close(torch.tensor(last.history[-1]["train_deg"]), torch.stack(losses[30:]).mean(0))
    assert last.outer_steps == [40, 40]
    best = train(40, persons)
    for k, step in enumerate(best.outer_steps):
        assert step == min(best.history, key=lambda record: record["val_deg"][k])["step"]
        assert torch.equal(pack(best.state)[k], pack(train(step, []).state)[k])


@pytest.mark.parametrize(("inputs", "hidden"), [(6, 64), (6, 13), (9, 48), (3, 1)])
@pytest.mark.parametrize("activation", ["selu", "relu"])
def test_the_compiled_kernel_equals_autograd_in_double_precision(rng, activation, inputs, hidden):
    weights, direction = networks(rng, 6, hidden, inputs), networks(rng, 6, hidden, inputs)
    if not mlp.is_compiled(weights.float()):
        pytest.skip("kernel.c is not compiled")
    samples = batch(rng, torch.tensor([9, 1, 4, 9, 2, 7]), 9, inputs)
    single = Samples(samples.code.float(), samples.gaze.float(), samples.count)

    def assert_close(mine: Tensor, oracle: Tensor) -> None:
        torch.testing.assert_close(mine.double(), oracle, rtol=1e-4, atol=2e-5 * oracle.abs().max().item())

    for along in (None, direction):
        of_kernel = mlp.gradient(weights.float(), single, activation, None if along is None else along.float())
        for mine, oracle in zip(of_kernel, mlp.gradient(weights, samples, activation, along), strict=True):
            assert_close(mine, oracle)
    mine = mlp.sgd(weights.float(), single, activation, 30, 3e-5)
    torch.testing.assert_close(mine.double(), mlp.sgd(weights, samples, activation, 30, 3e-5), rtol=0, atol=2e-5)
    assert not torch.equal(mine, weights.float())


@pytest.mark.parametrize("activation", ["selu", "relu"])
def test_adaptation_equals_torch_sgd_model_after_model_whatever_the_chunks(activation, monkeypatch):
    """Each k starts from its own network; padding and the samples of other calibrations have no effect."""
    fewshot = settings(shots=(4, 2), repeats=2, adapt_steps=50, adapt_lr=1e-5)
    calibrations = draw_calibrations(small_codes(), fewshot, repeats=2)
    initial = networks(torch.Generator().manual_seed(1), 2).float()
    learned = Learned("maml", [4, 2], {}, unpack(initial, INPUTS), activation=activation)
    found = LEARNERS["maml"].errors(learned, calibrations, fewshot, threads=2)
    monkeypatch.setattr(mlp, "KERNEL", None)
    monkeypatch.setattr(mlp, "NETWORKS_PER_CALL", 3)
    again = LEARNERS["maml"].errors(learned, calibrations, fewshot, threads=2)
    np.testing.assert_allclose(again.adapted_deg, found.adapted_deg, atol=1e-4)
    for m, calibration in enumerate(calibrations):
        code, gaze = (torch.from_numpy(x).float() for x in (calibration.person.code, calibration.person.gaze))
        network = initial[[4, 2].index(len(calibration.support))].clone().requires_grad_()
        before = loss(network, code[-6:], gaze[-6:], activation).item()
        optimizer = torch.optim.SGD([network], lr=1e-5)
        for _ in range(50):
            optimizer.zero_grad()
            loss(network, code[calibration.support], gaze[calibration.support], activation).backward()
            optimizer.step()
        after = loss(network, code[-6:], gaze[-6:], activation).item()
        np.testing.assert_allclose([found.start_deg[m], found.adapted_deg[m]], [before, after], atol=1e-3)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=["compiled where it can be", "torch"])
def test_a_network_that_is_right_stays(rng, dtype):
    """At angle 0, the gradient and the Hessian product are 0, not NaN."""
    right = torch.zeros(1, HIDDEN * (INPUTS + 4) + 3).to(dtype)
    right[0, -1] = 2.0
    given = batch(rng, torch.tensor([3]), 3)
    given = Samples(given.code.to(dtype), torch.tensor([0.0, 0.0, 1.0]).to(dtype).repeat(1, 3, 1), given.count)
    assert torch.equal(mlp.sgd(right, given, "selu", 5, 1e-2), right)
    assert not outer_gradient("maml", right, "selu", RATE, given, given)[0].any()
