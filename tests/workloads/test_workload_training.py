"""Workloads: faults of a class are one sentence before anything is trained; a training follows its class."""

import dataclasses
import resource
from collections.abc import Callable

import pytest
import torch
from tiny_workload import Tiny
from torch import nn
from trajectory import tier
from worlds import Apart

from faze.base.errors import UserError
from faze.engine.parallel import World
from faze.stages import prove_workload
from faze.training.loop import Fit, Training
from faze.training.resume import Resume
from faze.training.workload import call_directly, detached
from faze.training.workload_training import WorkloadBatches, build_workload_training, check_workload, load_workload

CPU = World(0, 1, torch.device("cpu"))


def training(workload: Tiny, world: World = CPU, **switches) -> Training:
    return build_workload_training(workload, tier("baseline", **switches), world, 0)


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("tiny_workload:Absent", "cannot be imported: AttributeError"),
        ("no_such_module:Tiny", "cannot be imported: ModuleNotFoundError"),
        ("tiny_workload:nn", "is not a subclass of faze.training.workload.Workload"),
        ("faze.training.workload:Workload", "lacks the methods batch, build, losses, validate"),
    ],
)
def test_a_class_that_cannot_be_used_is_one_sentence(name, sentence):
    with pytest.raises(UserError, match=f"workload {name} .*{sentence}"):
        load_workload(name)


@pytest.mark.parametrize("attribute", ["batch_size", "steps", "score", "higher_is_better", "lr"])
def test_a_missing_attribute_is_named(attribute, monkeypatch):
    monkeypatch.setattr(Tiny, attribute, None)
    with pytest.raises(UserError, match=f"the attribute {attribute} must be of type"):
        load_workload("tiny_workload:Tiny")


def global_noise(self: Tiny, number: int, seed: int) -> dict:
    return self.draw(self.batch_size, number) | {"image": torch.randn(self.batch_size, 1, 8, 8)}


def twice(self: Tiny, model: nn.Module) -> dict:
    return {"network": [{"params": [*model.parameters(), model[0].weight], "lr": 0.1}]}


def split(self: Tiny, model: nn.Module) -> dict:
    ends = {"first": model[0].parameters(), "last": model[5].parameters()}
    return {name: [{"params": list(part), "lr": 0.1}] for name, part in ends.items()}


def for_both(self: Tiny, model: nn.Module, batch: dict) -> dict:
    loss = nn.functional.cross_entropy(model(batch["image"]), batch["quarter"])
    return {"first": {"loss": loss}, "last": {"loss": loss}}


def of_network(loss: Callable) -> Callable:
    """Return a method `losses` with one loss of the only optimiser."""
    return lambda self, model, batch: {"network": {"l": loss(model, batch)}}


CASES = [
    ("batch", global_noise, r"two calls of batch\(0, 0\) differ in image"),
    ("batch", lambda self, number, seed: [torch.ones(8)], "batch.. returned list, not a mapping"),
    ("batch", lambda self, number, seed: self.draw(3, 0), "image in batch.. is not a tensor whose first dimension"),
    ("losses", lambda self, model, batch: model(batch["image"]).sum(), "losses.. must map each optimiser"),
    ("losses", lambda self, model, batch: {"other": {}}, "has terms of .'other'., but the optimisers are .'network'."),
    ("losses", of_network(lambda model, batch: torch.ones(())), "the loss l of network is not a finite"),
    ("losses", of_network(lambda model, batch: model(batch["image"])), "the loss l of network is not a"),
    ("losses", of_network(lambda model, batch: model[0].weight.sum() * torch.nan), "is not a finite scalar"),
    ("losses", of_network(lambda model, batch: model[0].weight.sum()), "no loss of network reaches 1.weight"),
    ("parameter_groups", twice, "has a parameter twice"),
    ("parameter_groups", lambda self, model: {"network": [{"params": model.parameters()}]}, "`params` and `lr`"),
    ("validate", lambda self, model: float("nan"), "validate of the workload returned nan"),
]


@pytest.mark.parametrize(("method", "broken", "sentence"), CASES)
def test_a_fault_of_a_method_is_one_sentence(method, broken, sentence, monkeypatch):
    monkeypatch.setattr(Tiny, method, broken)
    with pytest.raises(UserError, match=sentence):
        check_workload(Tiny(), "tiny")


def test_a_loss_that_reaches_the_parameters_of_another_optimiser_is_named(monkeypatch):
    monkeypatch.setattr(Tiny, "parameter_groups", split)
    monkeypatch.setattr(Tiny, "losses", for_both)
    with pytest.raises(UserError, match="the losses of first reach 5.weight of last: see `detached`"):
        check_workload(Tiny(), "tiny")


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
        made.run(made.feed(range(3)))
        assert made.module[1].momentum == 0.1
        states.append(made.module.state_dict())
    assert all(torch.equal(states[0][name], states[1][name]) for name in states[0])
    assert states[0]["1.num_batches_tracked"] == 3 and states[0]["1.running_mean"].any()


def test_a_network_that_does_not_fit_is_one_sentence(monkeypatch):
    before = resource.getrlimit(resource.RLIMIT_DATA)
    monkeypatch.setattr(prove_workload, "memory_bytes", lambda: 2 * 2**30)
    monkeypatch.setattr(Tiny, "build", lambda self: nn.Sequential(nn.Linear(2**15, 2**15)))
    with pytest.raises(UserError, match="workload tiny_workload:Tiny: one step does not fit into the 2.0 GiB"):
        prove_workload.check_fitting("tiny_workload:Tiny")
    assert resource.getrlimit(resource.RLIMIT_DATA) == before


def test_detached_passes_gradients_to_inputs_only():
    layer, inputs = nn.Linear(2, 1), torch.ones(1, 2, requires_grad=True)
    detached(layer, inputs).sum().backward()
    assert torch.equal(inputs.grad, layer.weight.detach()) and layer.weight.grad is None


EXAMPLES = ["cgan:CGAN", "conv_lstm:ConvLSTM", "ssd:SSD", "transformer:Transformer", "unet3d:UNet3D"]


@pytest.mark.parametrize("name", EXAMPLES)
def test_every_example_passes_the_checks(name):
    workload = load_workload(f"examples.{name}")
    check_workload(workload, name)
    paper = load_workload(f"examples.{name.replace(':', ':Paper')}")
    with torch.device("meta"):
        model = paper.build()
    assert 1e5 < sum(parameter.numel() for parameter in model.parameters()) < 1e9


def test_a_process_gets_its_slice_of_the_batch():
    whole = WorkloadBatches(Tiny(), 3, 0, 1)[5]
    parts = [WorkloadBatches(Tiny(), 3, rank, 2)[5] for rank in range(2)]
    assert all(torch.equal(torch.cat([part[key] for part in parts]), whole[key]) for key in whole)
    assert not torch.equal(WorkloadBatches(Tiny(), 4, 0, 1)[5]["image"], whole["image"])
    with pytest.raises(UserError, match="batch_size 8 of the workload is not a multiple of 3 processes"):
        training(Tiny(), Apart(0, 3, CPU.device))


def test_a_training_learns_and_follows_its_rates(tmp_path, monkeypatch):
    monkeypatch.setattr(Tiny, "rate", lambda self, number: 0.0 if number >= 20 else 1.0)
    made = training(Tiny())
    before = made.validate()["val/score"]
    assert made.schedule.steps == 40 and made.rates(8 * 19) == [0.1] and made.rates(8 * 20) == [0.0]
    work = type("Work", (), {"save": lambda *args: None})()
    Fit(dataclasses.replace(made, schedule=dataclasses.replace(made.schedule, samples=160)), work, None).run(Resume())
    learned = made.validate()["val/score"]
    assert learned > before + 20 and made.module.training
    weights = [p.clone() for p in made.module.parameters()]
    made.step.set_learning_rates(made.rates(8 * 20))
    made.step(next(made.feed(range(20, 21))), made.weights(160))
    assert all(map(torch.equal, weights, made.module.parameters()))


def test_parameters_may_come_from_a_generator(monkeypatch):
    """Regression: model.parameters() was read twice, and reported as a parameter that is there twice."""
    monkeypatch.setattr(
        Tiny, "parameter_groups", lambda self, model: {"network": [{"params": model.parameters(), "lr": 0.1}]}
    )
    check_workload(Tiny(), "tiny")
    assert len(training(Tiny(), optimizer="fused_sgd").step.groups[0]["params"]) == 5


def test_the_same_seed_gives_the_same_weights_in_every_tier_and_another_gives_others():
    one, other = training(Tiny()), training(Tiny(), channels_last=True)
    assert all(map(torch.equal, one.module.parameters(), other.module.parameters()))
    third = build_workload_training(Tiny(), tier("baseline"), CPU, 1)
    assert not torch.equal(one.module[0].weight, third.module[0].weight)
    assert torch.equal(one.module[1].running_mean, torch.zeros(4))  # looking for the terms' names moves nothing


def test_switches_without_a_part_to_act_on_are_inactive():
    made = training(Tiny(), recompute=True, fused_norm=True, checkpointing=True, resident=True, sync_batchnorm=True)
    reasons = {switch.switch: switch.reason for switch in made.switches}
    assert reasons["fused_norm"] == "no part of the model has a fused normalisation"
    assert reasons["recompute"] == "no part of the model has a low-memory implementation"
    assert reasons["resident"] == "the workload generates its batches"
    assert reasons["sync_batchnorm"] == "there is one process"
    assert reasons["checkpointing"] == "no part of the model can be recomputed"
