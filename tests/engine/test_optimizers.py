"""Optimisers besides SGD: the arguments that they get, their state in a checkpoint, and classes that cannot train."""

import sys

import pytest
import torch

from faze.base.errors import UserError
from faze.engine.optim import build_optimizer

LR, DECAY = 0.1, 0.02
WEIGHT = torch.tensor([[3.0, 0.0], [0.0, 4.0]], dtype=torch.float64)  # length 5
GRADIENT = torch.tensor([[0.0, 6.0], [8.0, 0.0]], dtype=torch.float64)  # length 10
LAMB = {"weight_decouple": False, "adam_debias": True}  # version 3 of the paper


def make(name: str, weight: torch.nn.Parameter, options: dict):
    groups = [{"params": [weight], "lr": LR}]
    return build_optimizer(name, options, groups, torch.device("cpu"), momentum=0.9, weight_decay=DECAY)


@pytest.mark.parametrize("fused", [False, True])
def test_adamw_decays_apart_from_the_gradient(fused):
    """Loshchilov and Hutter 2019: the first step has the sign of the gradient; the weights shrink by lr x decay."""
    weight = torch.nn.Parameter(WEIGHT.clone())
    weight.grad = GRADIENT.clone()
    optimizer, switch = make("AdamW", weight, {"fused": fused})
    optimizer.step()
    torch.testing.assert_close(weight - WEIGHT, -LR * GRADIENT.sign() - LR * DECAY * WEIGHT, rtol=1e-5, atol=1e-7)
    assert optimizer.param_groups[0]["fused"] == fused and switch.acted == f"torch.optim AdamW, fused {fused}"


@pytest.mark.parametrize(
    ("name", "options"), [("AdamW", {"fused": True}), ("RAdam", {}), ("Lamb", LAMB), ("LARS", {}), ("NovoGrad", {})]
)
def test_continues_from_a_file_as_if_it_had_not_stopped(name, options, tmp_path):
    if not hasattr(torch.optim, name):
        pytest.importorskip("pytorch_optimizer")
    gradients = torch.randn(6, 2, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(0))

    def descend(weight: torch.nn.Parameter, optimizer: torch.optim.Optimizer, some: torch.Tensor) -> None:
        for gradient in some:
            weight.grad = gradient.clone()
            optimizer.step()
            optimizer.zero_grad(set_to_none=False)

    whole = torch.nn.Parameter(WEIGHT.clone())
    descend(whole, make(name, whole, options)[0], gradients)
    first = torch.nn.Parameter(WEIGHT.clone())
    optimizer = make(name, first, options)[0]
    descend(first, optimizer, gradients[:3])
    torch.save({"weight": first.detach(), "optimizer": optimizer.state_dict()}, tmp_path / "state.pt")
    state = torch.load(tmp_path / "state.pt", weights_only=True)
    second = torch.nn.Parameter(state["weight"])
    optimizer = make(name, second, options)[0]
    optimizer.load_state_dict(state["optimizer"])
    descend(second, optimizer, gradients[3:])
    assert torch.equal(second, whole)


def test_momentum_and_decay_are_passed_unless_the_options_set_them():
    [group] = make("SGD", torch.nn.Parameter(WEIGHT.clone()), {"momentum": 0.0})[0].param_groups
    assert (group["lr"], group["momentum"], group["nesterov"], group["weight_decay"]) == (LR, 0.0, False, DECAY)
    [group] = make("RMSprop", torch.nn.Parameter(WEIGHT.clone()), {"weight_decay": 0.5})[0].param_groups
    assert (group["momentum"], group["weight_decay"]) == (0.9, 0.5)


@pytest.mark.parametrize(
    ("name", "options", "words"),
    [
        ("Adm", {}, "no attribute 'Adm'"),
        ("lr_scheduler", {}, "lr_scheduler"),
        ("AdamW", {"beta": [0.9, 0.99]}, "beta is not an argument of AdamW"),
        ("AdamW", {"betas": [0.9, 2.0]}, "Invalid beta parameter"),
        ("AdamW", {"lr": 0.1}, "learning rates are set by the training"),
        ("Lamb", {"prenorm": True}, "prenorm is not an argument of Lamb"),
        ("Muon", {}, "only supports 2D"),
        ("LBFGS", {}, "missing .* 'closure'"),
        ("SAM", {}, "'base_optimizer'"),
        ("AdaHessian", {}, "grad_fn"),
        ("ScheduleFreeAdamW", {}, "when the network is evaluated"),
        ("sgd", {"dampning": 0.1}, "dampning"),
        ("sgd", {"lr": 0.1}, "learning rates are set by the training"),
        ("fused_sgd", {"momentum": "high"}, "not supported"),
    ],
)
def test_what_cannot_train_is_one_sentence(name, options, words):
    pytest.importorskip("pytorch_optimizer")
    with pytest.raises(
        UserError, match=f"^optimizer {name}, optimizer_options .*{words}.*; use a class of torch.optim"
    ):
        make(name, torch.nn.Parameter(torch.ones(3)), options)


def test_a_missing_package_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "pytorch_optimizer", None)
    with pytest.raises(UserError, match="pytorch_optimizer.*; use a class of torch.optim or pytorch-optimizer"):
        make("Lamb", torch.nn.Parameter(WEIGHT.clone()), {})
