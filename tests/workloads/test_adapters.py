"""Adapters: the examples in their docstrings train, and what they cannot repeat is refused in one sentence."""

import inspect
import textwrap

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, IterableDataset, TensorDataset, WeightedRandomSampler
from trajectory import ALONE, tier

from faze.base.errors import UserError
from faze.training.check import check
from faze.training.from_lightning import FromLightning
from faze.training.from_loader import FromLoader
from faze.training.train import build, fit


def load(split: str) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(len(split))
    images = torch.randn(100, 64, generator=generator)
    return images, images[:, :10].argmax(1)


class Classifier(nn.Module):
    """A network with the methods of a LightningModule, without the package."""

    automatic_optimization, interval, optimizers, logged = True, "epoch", 1, "val_acc"

    def __init__(self, width: int) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(64, width), nn.ReLU(), nn.Dropout(0.1), nn.Linear(width, 10))

    def training_step(self, batch: list, batch_idx: int) -> torch.Tensor:
        loss = F.cross_entropy(self.net(batch[0]), batch[1])
        self.log("train_loss", loss)
        return loss

    def validation_step(self, batch: list, batch_idx: int) -> None:
        self.log_dict({self.logged: (self.net(batch[0]).argmax(1) == batch[1]).float().mean()})

    def configure_optimizers(self) -> tuple:
        optimizer = torch.optim.SGD(self.parameters(), lr=0.2, momentum=0.5)
        scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.5)
        return [optimizer] * self.optimizers, [{"scheduler": scheduler, "interval": self.interval}]

    def train_dataloader(self) -> DataLoader:
        return DataLoader(TensorDataset(*load("train")), batch_size=32, shuffle=True)

    def val_dataloader(self) -> DataLoader:
        return DataLoader(TensorDataset(*load("test")), batch_size=50)


def example(adapter: type) -> type:
    """Return the class in the docstring of an adapter."""
    code, names = inspect.getdoc(adapter).split("\n\n", 1)[1].rpartition("\n\n")[0], dict(globals())
    exec(textwrap.dedent(code), names)
    return next(value for name, value in names.items() if name not in globals() and inspect.isclass(value))


@pytest.mark.parametrize("adapter", [FromLoader, FromLightning])
def test_the_example_of_an_adapter_trains(adapter: type) -> None:
    workload = example(adapter)()
    check(workload, "mine")
    workload.steps = 12
    made = build(workload, tier("baseline"), ALONE, 0)
    before = made.validate()["val/score"]
    fit(made, None, 0, lambda number: None)
    assert (made.validate()["val/score"] > before) == workload.higher_is_better


def test_an_epoch_has_each_sample_once_in_an_order_of_its_own() -> None:
    workload = example(FromLoader)()
    orders = ((range(3), 0), (range(3), 0), (range(3, 6), 0), (range(3), 1))
    first, again, second, other = (torch.cat([workload.batch(n, seed)["0"] for n in ns]) for ns, seed in orders)
    assert len(first.unique(dim=0)) == 96 and torch.equal(first, again)
    assert not torch.equal(first, second) and not torch.equal(first, other)


@pytest.mark.parametrize(("interval", "expected"), [("epoch", [0.2, 0.2, 0.2, 0.1]), ("step", [0.2, 0.1, 0.05, 0.025])])
def test_learning_rates_and_arguments_are_those_of_the_module(interval, expected, monkeypatch) -> None:
    monkeypatch.setattr(Classifier, "interval", interval)
    made = build(example(FromLightning)(), tier("baseline"), ALONE, 0)
    assert [made.workload.rates(32 * number, [])[0] for number in range(4)] == pytest.approx(expected)
    assert made.step.groups[0]["momentum"] == 0.5


class Stream(IterableDataset):
    def __iter__(self):
        yield from load("train")[0]


UNREPEATABLE = [(Stream(), {}), (TensorDataset(*load("train")), {"sampler": WeightedRandomSampler([1.0] * 100, 100)})]


@pytest.mark.parametrize(("data", "options"), UNREPEATABLE, ids=["stream", "sampler"])
def test_draws_that_cannot_be_repeated_are_refused(data, options) -> None:
    kind = type("Mine", (example(FromLoader),), {"loader": lambda self: DataLoader(data, batch_size=32, **options)})
    with pytest.raises(UserError, match="draws cannot be repeated: use a Dataset"):
        kind()


@pytest.mark.parametrize(
    ("attribute", "value", "sentence"),
    [
        ("automatic_optimization", False, "several optimisers and"),
        ("optimizers", 2, "several optimisers and"),
        ("logged", "acc", "validation_step logs no val_acc"),
    ],
)
def test_a_module_that_needs_a_trainer_is_refused(attribute, value, sentence, monkeypatch) -> None:
    monkeypatch.setattr(Classifier, attribute, value)
    with pytest.raises(UserError, match=sentence):
        check(example(FromLightning)(), "mine")
