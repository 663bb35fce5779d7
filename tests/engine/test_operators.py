"""Operators in their own number format: the types that layers return, the reports, and no side effects."""

from collections import defaultdict

import pytest
import torch
from tiny_workload import Tiny
from torch import nn
from torch.nn import functional as F
from trajectory import setup, tier

from faze.base.errors import UserError
from faze.engine.parallel import World
from faze.engine.precision import exact
from faze.training.check import load_class
from faze.training.train import Training, build

CPU, BF16 = World(0, 1, torch.device("cpu")), {"precision": "bf16", "force": True}
LISTS = [("keep_fp32", torch.float32), ("force_low", torch.bfloat16)]


def types_of(training: Training) -> dict[str, set[torch.dtype]]:
    """Run a forward pass; return the types of the results of all layers by class."""
    found = defaultdict(set)
    [batch] = training.feed(range(1))
    for part in training.model.modules():
        part.register_forward_hook(
            lambda part, _, result: found[type(part).__name__].add(getattr(result, "dtype", None))
        )
    training.step.model(batch)
    return found


def made(workload: Tiny, **switches) -> tuple[Training, dict[str, tuple[str, str]]]:
    training = build(workload, tier("baseline", **BF16 | switches), CPU, 0)
    return training, {s.switch: (s.acted, s.reason) for s in training.switches}


@pytest.mark.parametrize(
    ("name", "kernels", "norms"),
    [
        ("ssd:SSD", {"Conv2d": "24 of 24"}, {"BatchNorm2d": "22 of 22"}),
        ("cgan:CGAN", {"Conv2d": "13 of 16", "Linear": "1 of 1"}, {"GroupNorm": "4 of 4"}),  # 3 are used as functions
        ("conv_lstm:ConvLSTM", {"Conv2d": "11 of 11"}, {}),
        ("transformer:Transformer", {"Linear": "9 of 9"}, {"LayerNorm": "5 of 5", "Embedding": "1 of 1"}),
        ("unet3d:UNet3D", {"Conv3d": "11 of 11", "ConvTranspose3d": "2 of 2"}, {"InstanceNorm3d": "10 of 10"}),
    ],
)
def test_listed_layers_of_every_example_return_the_type_of_their_list(name, kernels, norms):
    """Regression: keep_fp32 was reported as acting on 3-D convolutions that returned bfloat16."""
    workload = load_class(f"examples.{name}")
    workload.batch_size = 2
    for keep, low in ((kernels, norms), (norms, kernels)):
        training, switches = made(workload, keep_fp32=list(keep), force_low=list(low))
        found = types_of(training)
        for (switch, dtype), layers in zip(LISTS, (keep, low), strict=True):
            assert switches[switch] == (
                ", ".join(f"{layer} ({count})" for layer, count in layers.items()) or "none",
                "",
            )
            assert all(found[layer] == {dtype} for layer in layers), (switch, found)


class Attention(Tiny):
    def build(self) -> nn.Module:
        return Network()


class Network(nn.Module):
    """A BatchNorm, a dropout, attention as a module, and a softmax as a function."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.attend, self.last = nn.BatchNorm2d(1), nn.MultiheadAttention(8, 2), nn.Linear(8, 4)
        self.types = []

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        x = F.dropout(self.norm(image))[:, 0]
        x = self.attend(x, x, x, need_weights=False)[0]
        weights = F.softmax(self.last(x), -1)
        self.types = [x.dtype, weights.dtype]
        return weights.mean(1)


FUNCTIONS = {"keep_fp32": ["scaled_dot_product_attention", "linear"], "force_low": ["softmax", "batch_norm"]}


def test_functions_act_inside_modules_but_not_in_validation():
    training, switches = made(Attention(), **FUNCTIONS)
    for switch, names in FUNCTIONS.items():
        assert switches[switch] == (", ".join(f"{name} (1 of 1)" for name in names), "")
    network = training.model
    types_of(training)
    assert network.types == [torch.float32, torch.bfloat16] and network.norm.running_mean.any()
    with exact(network):
        assert network(training.workload.batch(0, 0)["image"]).dtype == torch.float32
    assert network.types == [torch.float32] * 2
    made(Attention())
    assert F.softmax.__module__ == "torch.nn.functional"  # the next tier has torch's functions again


@pytest.mark.parametrize(
    ("names", "acted", "reason"),
    [
        (["_BatchNorm", "Linear"], "_BatchNorm (1 of 1), Linear (1 of 2)", ""),  # attention calls its own as a function
        (["Network", "Conv3d"], "Network (1 of 1)", "Conv3d: no such module or function"),
        (["interpolate"], "none", "interpolate: no such module or function"),
        (["softmx"], "none", "softmx: no such module or function"),
    ],
)
@pytest.mark.parametrize("switch", FUNCTIONS)
def test_a_report_counts_what_acted_and_names_the_rest(switch, names, acted, reason):
    found = made(Attention(), **{switch: names})[1][switch]
    assert found[0] == acted and found[1].startswith(reason) and bool(found[1]) == bool(reason)


def test_lists_need_autocast_and_layers_that_follow_it():
    assert made(Attention(), precision="fp32", keep_fp32=["Linear"])[1]["keep_fp32"] == ("none", "precision is fp32")
    recompute = setup(tier("baseline", **BF16, recompute=True, force_low=["instance_norm"]))
    assert ["recompute layers" in s.reason for s in recompute.switches if s.switch == "force_low"] == [True]
    with pytest.raises(UserError, match="keep_fp32, force_low: .* fails with these operators"):
        made(load_class("examples.cgan:CGAN"), force_low=["Discriminator"])  # its spectral norm has a float32 state


def test_finding_the_calls_leaves_no_trace():
    """The first steps, with a dropout and running statistics, equal those of a tier whose list changes nothing."""
    losses, states = [], []
    for switches in ({}, {"force_low": ["linear"]}):
        training, _ = made(Attention(), **switches)
        losses.append([training.take(batch, 0)["loss"] for batch in training.feed(range(3))])
        states.append(training.model.state_dict())
    assert losses[0] == losses[1] and all(torch.equal(states[0][name], states[1][name]) for name in states[0])


def test_one_graph_contains_the_conversions():
    lists = {"keep_fp32": ["MultiheadAttention", "softmax"], "force_low": ["BatchNorm2d", "cross_entropy"]}
    losses = []
    for compiler in (lambda model: model, lambda model: torch.compile(model, fullgraph=True, backend="eager")):
        training, _ = made(Attention(), **lists)
        losses.append(compiler(training.step.model)(training.workload.batch(0, 0))["cross_entropy"])
    assert losses[0] == losses[1] and training.model.types == [torch.float32] * 2


def test_dted_converts_its_layers_and_functions():
    both = {"keep_fp32": ["Conv2d", "ConvTranspose2d", "Linear"], "force_low": ["layer_norm"]}
    training = setup(tier("baseline", **BF16, **both, checkpointing=True))
    assert all(switch.active for switch in training.switches if switch.switch in both)
    assert types_of(training)["Conv2d"] == {torch.float32}
    assert training.take(next(training.feed(range(1))), 0)["loss"].isfinite()
