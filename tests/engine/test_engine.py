"""Switches that have an effect on a CPU, and the reasons given for those that do not."""

import pytest
import torch
from trajectory import CONFIG, TRAIN, tier

from faze import engine
from faze.config.parameters import Engine
from faze.config.stage_config import resolve_tier
from faze.engine.optim import build_optimizer
from faze.engine.parallel import World, count_processes, pick_device
from faze.engine.step import Step
from faze.engine.switches import Switch
from faze.native import allocator_retention

CPU = World(0, 1, torch.device("cpu"))


class Plane(torch.nn.Module):
    """A module with two weights: the squared distance of one to the target, and the other, whose gradient is 1."""

    def __init__(self) -> None:
        super().__init__()
        self.weight, self.other = (torch.nn.Parameter(torch.tensor(1.0)) for _ in range(2))

    def forward(self, batch):
        return {"near": (self.weight - batch["target"]).square().mean(), "small": self.weight.abs(), "far": self.other}


def make(name: str, *, clip_norm: float = 0.0, **switches) -> Step:
    return engine.build(
        lambda precision: Plane(),
        lambda module: {"all": [{"params": [parameter], "lr": 0.1} for parameter in module.parameters()]},
        dict,
        engine=tier(name, **switches),
        train=TRAIN.model_copy(update={"momentum": 0.0, "weight_decay": 0.0, "clip_norm": clip_norm}),
        world=CPU,
    )


def switch_of(name: str, **switches) -> Switch:
    [switch] = [s for s in make("baseline", **switches).switches if s.switch == name]
    return switch


def test_step_descends_the_weighted_sum():
    step = make("baseline")
    losses = step({"target": torch.tensor([3.0])}, {"near": 2.0, "small": 0.5, "far": 0.0})
    assert losses == {"near": 4.0, "small": 1.0, "far": 1.0, "loss": pytest.approx(2.0 * 4.0 + 0.5)}
    assert step.model.weight.item() == pytest.approx(1.0 - 0.1 * (2.0 * -4.0 + 0.5))


@pytest.mark.parametrize(("clip_norm", "length"), [(0.0, 5.0), (1.0, 1.0), (4.5, 4.5), (5.5, 5.0)])
@pytest.mark.parametrize("switches", [{}, {"precision": "fp16", "force": True}], ids=["fp32", "fp16"])
def test_clipping_shortens_only_longer_gradients_whatever_the_loss_scale(clip_norm, length, switches):
    """The length is that of the gradient of all weights, which keeps its direction."""
    step = make("baseline", clip_norm=clip_norm, **switches)
    if switches:
        step.scalers[0].load_state_dict(step.scalers[0].state_dict() | {"scale": 1024.0})
    step({"target": torch.tensor([3.0])}, {"near": 1.0, "small": 0.0, "far": 3.0})  # a gradient of -4 and 3
    assert step.model.weight.item() == pytest.approx(1.0 + 0.1 * 0.8 * length, rel=1e-4)
    assert step.model.other.item() == pytest.approx(1.0 - 0.1 * 0.6 * length, rel=1e-4)


class Game(torch.nn.Module):
    """Two modules with an optimiser each; every term reaches one of them."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.two = torch.nn.Linear(1, 1, bias=False), torch.nn.Linear(1, 1, bias=False)
        for part in (self.one, self.two):
            torch.nn.init.ones_(part.weight)

    def forward(self, batch):
        first = self.one(batch["target"])
        return {
            "one/square": ((first * self.two.weight.detach()) ** 2).mean(),
            "two/square": ((self.two(batch["target"]) - 3.0 * first.detach()) ** 2).mean(),
            "two/large": batch["large"].mean() * self.two.weight.sum(),
        }


def play(**switches) -> tuple[Step, list[float]]:
    """Build a step with two optimisers, and run it on a batch; return the step and both weights."""
    step = engine.build(
        lambda precision: Game(),
        lambda game: {name: [{"params": [getattr(game, name).weight], "lr": lr}] for name, lr in RATES.items()},
        lambda: GAME_BATCH,
        engine=tier("baseline", **switches),
        train=TRAIN.model_copy(update={"momentum": 0.0, "weight_decay": 0.0, "clip_norm": 0.0}),
        world=CPU,
    )
    terms = step(GAME_BATCH, GAME_WEIGHTS)
    assert terms["loss"] == pytest.approx(sum(float(terms[n]) for n in terms if n != "loss"))
    return step, [step.model.one.weight.item(), step.model.two.weight.item()]


RATES = {"one": 0.25, "two": 0.125}
GAME_BATCH = {"target": torch.tensor([[1.0], [1.0]]), "large": torch.tensor([[0.5], [0.5]])}
GAME_WEIGHTS = dict.fromkeys(("one/square", "two/square", "two/large"), 1.0)
LOW = {"precision": "fp16", "force": True}


@pytest.mark.parametrize("switches", [{}, {"accumulate": 2}, LOW, LOW | {"loss_scalers": "shared"}])
def test_each_optimiser_descends_its_own_terms(switches):
    step, weights = play(**switches)
    assert not any(p.grad.any() for p in step.model.parameters())
    assert weights == [pytest.approx(1.0 - 0.25 * 2.0), pytest.approx(1.0 - 0.125 * (2.0 * -2.0 + 0.5))]


@pytest.mark.parametrize(("scalers", "skipped"), [("each", [0.0, 1.0]), ("shared", [1.0])])
def test_an_overflow_skips_the_updates_that_share_its_scale(scalers, skipped):
    """As num_losses of apex.amp: with a scale for each loss, only one optimiser skips the step."""
    step, _ = play(**LOW, loss_scalers=scalers)
    before = step.model.one.weight.item()
    step(GAME_BATCH | {"large": torch.full((2, 1), torch.inf)}, GAME_WEIGHTS)
    assert [scaler.skipped for scaler in step.scalers] == skipped
    assert step.counts() == {"train/skipped_steps": 1.0}
    assert step.model.two.weight.item() == pytest.approx(1.4375, abs=1e-3)
    assert (step.model.one.weight.item() != before) or scalers == "shared"


def test_every_switch_is_reported_once():
    names = [switch.switch for switch in make("baseline").switches]
    of_the_feed = {"device", "set_to_none", "pin", "resident"}  # set_to_none and device always act
    of_the_feed |= {"optimizer_options"}  # part of the report on `optimizer`
    assert sorted(names) == sorted(Engine.model_fields.keys() - of_the_feed)


@pytest.mark.parametrize(
    ("switches", "wanted", "acted", "reason"),
    [
        ({"checkpointing": True}, "true", "false", "no part of the model can be recomputed"),
        ({"checkpointing": True, "recompute": True}, "true", "false", "no part of the model can be recomputed"),
        ({"recompute": True}, "true", "false", "no part of the model has a low-memory implementation"),
        ({"tf32": True}, "true", "false", "only CUDA devices have TF32"),
        ({"cudnn_benchmark": True}, "true", "false", "cuDNN runs on CUDA devices only"),
        ({"graphs": True}, "true", "false", "CUDA graphs need a CUDA device"),
        ({"processes": 2}, "2", "0", "DistributedDataParallel"),
    ],
)
def test_switch_that_cannot_act_here_gives_the_reason(switches, wanted, acted, reason):
    name = next(iter(switches))
    switch = switch_of(name, parallel="single", **switches)
    assert not switch.active and reason in switch.reason and (switch.wanted, switch.acted) == (wanted, acted)
    off = switch_of(name, parallel="single")
    assert off.active and off.wanted == off.acted == acted


def test_cudnn_search_is_set_for_its_tier_alone(monkeypatch):
    """Regression: the flag was never set, or still set for the next tier."""
    monkeypatch.setattr(torch.backends.cudnn, "benchmark", False)
    make("baseline", cudnn_benchmark=True)
    assert torch.backends.cudnn.benchmark
    make("baseline")
    assert not torch.backends.cudnn.benchmark
    assert tier("autotune").cudnn_benchmark and not tier("fused_sgd").cudnn_benchmark


def test_fused_sgd_skips_an_overflow_in_its_first_step(monkeypatch):
    """Torch's fused kernel does not initialise new momentum buffers, which are nan here."""
    monkeypatch.setattr(torch, "empty_like", lambda like: torch.full_like(like, float("nan")))
    weight = torch.nn.Parameter(torch.ones(3))
    settings = {"momentum": 0.9, "weight_decay": 0.0}
    optimizer, switch = build_optimizer(
        "fused_sgd", {}, [{"params": [weight], "lr": 0.1}], torch.device("cpu"), **settings
    )
    assert optimizer.param_groups[0]["fused"] and switch.acted == "torch SGD, fused"  # without apex
    scaler = torch.amp.GradScaler("cpu", init_scale=4.0)
    for gradient in (float("inf"), 1.0):
        scaler.scale((weight * gradient).sum()).backward()
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
    assert weight.tolist() == pytest.approx([1.0 - 0.1 * 1.9] * 3)


@pytest.mark.parametrize(("acted", "reason"), [("keep", "retains memory"), ("default", "without glibc's settings")])
def test_allocator_is_settled_when_the_process_starts(acted, reason, monkeypatch):
    settings = allocator_retention.with_allocator_retention("")
    monkeypatch.setattr("platform.libc_ver", lambda: ("glibc", "2.36"))
    monkeypatch.setenv(allocator_retention.VARIABLE, settings if acted == "keep" else "")
    for wanted in ("keep", "default"):
        switch = switch_of("allocator", allocator=wanted)
        assert switch.acted == acted and (switch.active if wanted == acted else reason in switch.reason)


def test_accumulated_parts_are_the_big_step():
    batch = {"target": torch.tensor([3.0, 5.0, -1.0, 2.0])}
    whole, parts = make("baseline"), make("baseline", accumulate=2)
    assert (whole.shares, parts.shares) == (1, 2)
    once, twice = (step(batch, {"near": 2.0, "small": 0.5, "far": 1.0}) for step in (whole, parts))
    assert twice == {name: pytest.approx(float(term)) for name, term in once.items()}
    assert parts.model.weight.item() == pytest.approx(whole.model.weight.item())


def test_cuda_that_is_missing_is_an_error(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(ValueError, match=r"engine\.device is cuda, but"):
        pick_device("cuda")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setenv("LOCAL_RANK", "2")
    assert [str(pick_device(name)) for name in ("auto", "cuda", "cpu")] == ["cuda:2", "cuda:2", "cpu"]


def test_more_processes_than_gpus_are_refused(monkeypatch):
    """Regression: torch's error about an invalid device index was reported as a bug in faze."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 3)
    ddp = resolve_tier(CONFIG, "ddp")
    assert [count_processes(ddp.model_copy(update={"processes": number})) for number in (0, 1, 3)] == [3, 1, 3]
    with pytest.raises(ValueError, match=r"engine\.processes 4: .* has 3 GPUs;"):
        count_processes(ddp.model_copy(update={"processes": 4}))
