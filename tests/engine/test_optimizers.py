"""Optimisers besides SGD compared with their published formulas, and their state in a checkpoint."""

import pytest
import torch

from faze.engine.optim import build_optimizer

LR, DECAY = 0.1, 0.02
WEIGHT = torch.tensor([[3.0, 0.0], [0.0, 4.0]], dtype=torch.float64)  # length 5
GRADIENT = torch.tensor([[0.0, 6.0], [8.0, 0.0]], dtype=torch.float64)  # length 10


def make(name: str, weight: torch.nn.Parameter, momentum: float = 0.9, decay: float = DECAY):
    settings = {"momentum": momentum, "weight_decay": decay, "device": torch.device("cpu")}
    return build_optimizer(name, [{"params": [weight], "lr": LR}], **settings)


def moved(name: str, **settings) -> torch.Tensor:
    """Run the first step, and return the change of the weight."""
    weight = torch.nn.Parameter(WEIGHT.clone())
    weight.grad = GRADIENT.clone()
    optimizer, switch = make(name, weight, **settings)
    assert switch.active and switch.wanted == name
    optimizer.step()
    return (weight - WEIGHT).detach()


@pytest.mark.parametrize(("name", "fused"), [("adamw", False), ("fused_adamw", True)])
def test_adamw_decays_apart_from_the_gradient(name, fused):
    """Loshchilov and Hutter 2019: the first step has the sign of the gradient; the weights shrink by lr x decay."""
    torch.testing.assert_close(moved(name), -LR * GRADIENT.sign() - LR * DECAY * WEIGHT, rtol=1e-5, atol=1e-7)
    optimizer, switch = make(name, torch.nn.Parameter(WEIGHT.clone()))
    assert optimizer.param_groups[0]["fused"] == fused and ("fused" in switch.acted) == fused


def test_lars_scales_the_step_of_each_kernel():
    """You, Gitman and Ginsburg 2017: 0.001 |w| / (|g| + decay |w|), times g + decay w; Nesterov adds 0.8 of it."""
    pytest.importorskip("pytorch_optimizer")
    local = 1e-3 * 5 / (10 + DECAY * 5)
    expected = -LR * 1.8 * local * (GRADIENT + DECAY * WEIGHT)
    torch.testing.assert_close(moved("lars", momentum=0.8), expected, rtol=1e-5, atol=1e-9)


def test_lamb_steps_as_far_as_the_kernel_is_long():
    """You et al. 2020, version 3: Adam's direction without correction, plus decay w, scaled to the length lr x |w|."""
    pytest.importorskip("pytorch_optimizer")
    direction = 0.1 / 0.001**0.5 * GRADIENT.sign() + DECAY * WEIGHT
    torch.testing.assert_close(moved("lamb"), -LR * 5 * direction / direction.norm(), rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize(("name", "same"), [("nvlamb", True), ("lamb", False)])
def test_nvlamb_divides_each_gradient_by_its_length(name, same):
    """The length of a single gradient does not matter to the steps of nvlamb, but does to those of lamb."""
    pytest.importorskip("pytorch_optimizer")
    ends = []
    for factor in (1.0, 20.0):
        weight = torch.nn.Parameter(WEIGHT.clone())
        optimizer, switch = make(name, weight)
        assert switch.active
        for gradient in (GRADIENT, factor * (GRADIENT + 1.0)):
            weight.grad = gradient.clone()
            optimizer.step()
        ends.append(weight.detach())
    assert torch.allclose(*ends, rtol=1e-9) == same


@pytest.mark.parametrize("name", ["adamw", "fused_adamw", "lamb", "nvlamb", "lars", "novograd"])
def test_continues_from_a_file_as_if_it_had_not_stopped(name, tmp_path):
    if "adamw" not in name:
        pytest.importorskip("pytorch_optimizer")
    gradients = torch.randn(6, 2, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(0))

    def descend(weight: torch.nn.Parameter, optimizer: torch.optim.Optimizer, some: torch.Tensor) -> None:
        for gradient in some:
            weight.grad = gradient.clone()
            optimizer.step()
            optimizer.zero_grad(set_to_none=False)

    whole = torch.nn.Parameter(WEIGHT.clone())
    descend(whole, make(name, whole)[0], gradients)
    first = torch.nn.Parameter(WEIGHT.clone())
    optimizer = make(name, first)[0]
    descend(first, optimizer, gradients[:3])
    torch.save({"weight": first.detach(), "optimizer": optimizer.state_dict()}, tmp_path / "state.pt")
    state = torch.load(tmp_path / "state.pt", weights_only=True)
    second = torch.nn.Parameter(state["weight"])
    optimizer = make(name, second)[0]
    optimizer.load_state_dict(state["optimizer"])
    descend(second, optimizer, gradients[3:])
    assert torch.equal(second, whole)


def test_without_its_package_it_is_sgd_and_says_so(monkeypatch):
    monkeypatch.setattr("faze.engine.optim.find_spec", lambda name: None)
    optimizer, switch = make("novograd", torch.nn.Parameter(WEIGHT.clone()))
    [group] = optimizer.param_groups
    assert isinstance(optimizer, torch.optim.SGD) and group["nesterov"]
    assert (group["lr"], group["momentum"], group["weight_decay"]) == (LR, 0.9, DECAY)
    assert not switch.active and "pytorch-optimizer" in switch.reason and "SGD" in switch.acted
