"""Workloads: faults of a class are one sentence before anything is trained; a training follows its class."""

from collections.abc import Callable

import pytest
import torch
from tiny_workload import Tiny
from torch import nn
from trajectory import tier

from faze.base.errors import UserError
from faze.engine.parallel import World
from faze.training.check import check, load_class, named
from faze.training.train import Batches, Training, build, fit
from faze.training.workload import call_directly, detached

CPU = World(0, 1, torch.device("cpu"))


def training(workload: Tiny, world: World = CPU, **switches) -> Training:
    return build(workload, tier("baseline", **switches), world, 0)


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("tiny_workload:Absent", "AttributeError: .* 'Absent'"),
        ("no-such-module:Tiny", "ModuleNotFoundError: .* 'no-such-module'"),
        ("collections:OrderedDict", "not a subclass of faze.training.workload.Workload"),
        ("faze.training.workload:Workload", "TypeError: .* abstract methods .*batch.*validate"),
        ("tiny_workload:WithArguments", "TypeError: WithArguments.__init__.. missing 1 required .* argument: 'width'"),
    ],
)
def test_a_class_that_cannot_be_used_is_one_sentence(name, sentence):
    with pytest.raises(UserError, match=rf"^{name}\W.*{sentence}"):
        load_class(name)


@pytest.mark.parametrize("attribute", ["batch_size", "steps", "score", "higher_is_better"])
def test_a_missing_attribute_is_named(attribute, monkeypatch):
    monkeypatch.setattr(Tiny, attribute, None)
    with pytest.raises(UserError, match=f"the attribute {attribute} must be of type"):
        load_class("tiny_workload:Tiny")


def global_noise(self: Tiny, number: int, seed: int) -> dict:
    return self.draw(self.batch_size, number) | {"image": torch.randn(self.batch_size, 1, 8, 8)}


def split(self: Tiny, model: nn.Module) -> dict:
    ends = {"first": model[0].parameters(), "last": model[5].parameters()}
    return {name: [{"params": list(part), "lr": 0.1}] for name, part in ends.items()}


def for_both(self: Tiny, model: nn.Module, batch: dict) -> dict:
    loss = nn.functional.cross_entropy(model(batch["image"]), batch["quarter"])
    return {"first": {"loss": loss}, "last": {"loss": loss}}


def of_network(loss: Callable) -> Callable:
    """Return a method `losses` with one loss of the only optimiser."""
    return lambda self, model, batch: {"network": {"l": loss(model, batch)}}


STORED = torch.zeros(8, 1, 8, 8)


def in_place(self: Tiny, number: int, seed: int) -> dict:
    return self.draw(8, 0) | {"image": STORED.add_(1)}


def frozen(self: Tiny) -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 4)).requires_grad_(False)


CASES = [
    ("batch", global_noise, r"two calls of batch\(0, 0\) differ in image"),
    ("batch", lambda self, number, seed: [torch.ones(8)], "'list' object has no attribute 'items'"),
    ("batch", lambda self, number, seed: self.draw(3, 0), "image in batch.0, 0. is not a tensor of batch_size 8 rows"),
    ("batch", lambda self, number, seed: self.draw(8 - number // 39, 0), "image in batch.39, 0. .* incomplete batches"),
    ("batch", lambda self, number, seed: {"name": "a"}, "name in batch.0, 0. is not a tensor"),
    ("build", lambda self: nn.Linear(8, 4).double(), "weight is torch.float64: build.. must use torch's default dtype"),
    ("build", frozen, "no parameter requires a gradient"),
    ("batch", in_place, "change no batch in place"),
    (
        "losses",
        lambda self, model, batch: batch["label"],
        r"KeyError: 'label' \(.*test_workload_training.py, line \d+\)",
    ),
    ("losses", lambda self, model, batch: model(batch["image"]).sum(), "losses.. must be like"),
    ("losses", lambda self, model, batch: {"other": {}}, "losses.. must be like .* optimisers: network"),
    ("losses", of_network(lambda model, batch: torch.ones(())), "the loss l of network is not a finite"),
    ("losses", of_network(lambda model, batch: model(batch["image"])), "the loss l of network is not a"),
    ("losses", of_network(lambda model, batch: model[0].weight.sum() * torch.nan), "is not a finite scalar"),
    ("losses", of_network(lambda model, batch: model[0].weight.sum()), "no loss of network reaches 1.weight"),
    ("parameter_groups", lambda self, model: {"network": [{"params": model.parameters()}]}, "`params` and `lr`"),
    ("validate", lambda self, model: float("nan"), "validate.. returned nan"),
    ("validate", lambda self, model: {"accuracy": 1.0}, "not one finite number"),
    ("validate", lambda self, model: None, "validate.. returned None"),
]


@pytest.mark.parametrize(("method", "broken", "sentence"), CASES)
def test_a_fault_of_a_method_is_one_sentence(method, broken, sentence, monkeypatch):
    monkeypatch.setattr(Tiny, method, broken)
    with pytest.raises(UserError, match=f"^tiny: .*{sentence}"), named("tiny"):
        check(Tiny())


def test_a_loss_that_reaches_the_parameters_of_another_optimiser_is_named(monkeypatch):
    monkeypatch.setattr(Tiny, "parameter_groups", split)
    monkeypatch.setattr(Tiny, "losses", for_both)
    with pytest.raises(UserError, match="the losses of first reach 5.weight of last: use .*detached"):
        check(Tiny())


class InParts(nn.Sequential):
    def __init__(self, *layers: nn.Module) -> None:
        super().__init__(*layers)
        self.call = call_directly

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self:
            x = self.call(layer, x)
        return x


@pytest.fixture
def in_parts(monkeypatch) -> None:
    """Let the network call its layers so that they can be recomputed."""
    build = Tiny.build
    monkeypatch.setattr(Tiny, "build", lambda self: InParts(*build(self)))


def test_checkpoints_update_running_statistics_once(in_parts):
    """Regression: the second computation updated them too, so that scores differed although weights were equal."""
    states = []
    for checkpointing in (False, True):
        made = training(Tiny(), checkpointing=checkpointing)
        for batch in made.feed(range(3)):
            made.take(batch, 0)
        assert made.model[1].momentum == 0.1
        states.append(made.model.state_dict())
    assert all(torch.equal(states[0][name], states[1][name]) for name in states[0])
    assert states[0]["1.num_batches_tracked"] == 3 and states[0]["1.running_mean"].any()


def test_checkpoints_repeat_the_draws_of_dropout(in_parts, monkeypatch):
    """Regression: the second computation drew other numbers, so gradients were wrong."""
    build = Tiny.build
    monkeypatch.setattr(Tiny, "build", lambda self: InParts(*build(self)[:4], nn.Dropout(0.5), *build(self)[4:]))
    runs = [training(Tiny(), checkpointing=checkpointing) for checkpointing in (False, True)]
    for made in runs:
        torch.manual_seed(1)
        made.take(next(made.feed([0])), 0)
    assert all(map(torch.equal, runs[0].model.parameters(), runs[1].model.parameters()))


def test_a_step_draws_the_same_numbers_whatever_was_drawn_before(monkeypatch):
    """Otherwise, a resumed run would differ."""
    monkeypatch.setattr(Tiny, "steps", 2)
    build = Tiny.build
    monkeypatch.setattr(Tiny, "build", lambda self: build(self).append(nn.Dropout(0.5)))
    runs = [training(Tiny()) for _ in range(2)]
    for number, made in enumerate(runs):
        torch.rand(number)
        fit(made, None, 0, lambda step: None)
    assert all(map(torch.equal, runs[0].model.parameters(), runs[1].model.parameters()))


def test_frozen_parameters_and_scores_of_numpy_are_accepted(monkeypatch):
    build = Tiny.build
    monkeypatch.setattr(
        Tiny, "build", lambda self: nn.Sequential(build(self)[0].requires_grad_(False), *build(self)[1:])
    )
    monkeypatch.setattr(Tiny, "validate", lambda self, model: torch.tensor(1.0).numpy())
    check(Tiny())


def test_detached_passes_gradients_to_inputs_only():
    layer, inputs = nn.Linear(2, 1), torch.ones(1, 2, requires_grad=True)
    detached(layer, inputs).sum().backward()
    assert torch.equal(inputs.grad, layer.weight.detach()) and layer.weight.grad is None


EXAMPLES = ["cgan:CGAN", "conv_lstm:ConvLSTM", "ssd:SSD", "transformer:Transformer", "unet3d:UNet3D"]


@pytest.mark.parametrize("name", EXAMPLES)
def test_every_example_passes_the_checks(name):
    workload = load_class(f"examples.{name}")
    check(workload)
    paper = load_class(f"examples.{name.replace(':', ':Paper')}")
    with torch.device("meta"):
        model = paper.build()
    assert 1e5 < sum(parameter.numel() for parameter in model.parameters()) < 1e9


def test_a_process_gets_its_slice_of_the_batch():
    whole = Batches(Tiny(), 3)[5]
    parts = [Batches(Tiny(), 3, rank, 2)[5] for rank in range(2)]
    assert all(torch.equal(torch.cat([part[key] for part in parts]), whole[key]) for key in whole)
    assert not torch.equal(Batches(Tiny(), 4)[5]["image"], whole["image"])
    with pytest.raises(UserError, match=r"\(or the batch_size of a class\) 8 is not a multiple of 3 processes"):
        training(Tiny(), World(0, 3, CPU.device))


def test_a_training_learns_and_follows_its_rates(monkeypatch):
    monkeypatch.setattr(Tiny, "rate", lambda self, number: 0.0 if number >= 20 else 1.0)
    made = training(Tiny())
    before, saved = made.validate()["val/score"], []
    fit(made, None, 0, saved.append)
    assert made.validate()["val/score"] > before + 20 and made.model.training
    assert not any(p.grad.any() for p in made.model.parameters())
    weights = [p.clone() for p in made.model.parameters()]
    made.take(next(made.feed(range(20, 21))), 8 * 20)
    assert all(map(torch.equal, weights, made.model.parameters()))
    made.take(next(made.feed(range(19, 20))), 8 * 19)
    assert not all(map(torch.equal, weights, made.model.parameters()))


def test_parameters_may_come_from_a_generator(monkeypatch):
    """Regression: model.parameters() was read twice, and reported as a parameter that is there twice."""
    monkeypatch.setattr(
        Tiny, "parameter_groups", lambda self, model: {"network": [{"params": model.parameters(), "lr": 0.1}]}
    )
    check(Tiny())
    assert len(training(Tiny(), optimizer="fused_sgd").step.groups[0]["params"]) == 5


def test_the_same_seed_gives_the_same_weights_in_every_tier_and_another_gives_others():
    one, other = training(Tiny()), training(Tiny(), channels_last=True)
    assert all(map(torch.equal, one.model.parameters(), other.model.parameters()))
    third = build(Tiny(), tier("baseline"), CPU, 1)
    assert not torch.equal(one.model[0].weight, third.model[0].weight)


def test_switches_without_a_part_to_act_on_are_inactive():
    made = training(Tiny(), recompute=True, fused_norm=True, checkpointing=True, resident=True, sync_batchnorm=True)
    reasons = {switch.switch: switch.reason for switch in made.switches}
    assert reasons["fused_norm"] == "no part of the model supports fused normalisation"
    assert reasons["recompute"] == "no part of the model has a low-memory implementation"
    assert reasons["resident"] == "the workload generates its batches"
    assert reasons["sync_batchnorm"] == "there is only one process"
    assert reasons["checkpointing"] == "no part of the model can be recomputed"
