"""Adapters: the classes of the tutorial train, and what cannot be repeated is refused in one sentence."""

import re
import textwrap

import pytest
import torch
from stage_runs import ROOT
from torch import nn
from torch.nn import functional as F
from torch.utils.data import ChainDataset, DataLoader, TensorDataset, WeightedRandomSampler
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


STORED = TensorDataset(*load("train"))


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
        self.log(self.logged, (self.net(batch[0]).argmax(1) == batch[1]).float().mean())

    def configure_optimizers(self) -> tuple:
        optimizer = torch.optim.SGD(self.parameters(), lr=0.2, momentum=0.5)
        scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.5)
        return [optimizer] * self.optimizers, [{"scheduler": scheduler, "interval": self.interval}]

    def train_dataloader(self) -> DataLoader:
        return DataLoader(STORED, batch_size=32, shuffle=True)

    def val_dataloader(self) -> DataLoader:
        return DataLoader(TensorDataset(*load("test")), batch_size=50)


def documented(adapter: type) -> type:
    """Return the class that the tutorial derives from an adapter."""
    text = (ROOT / "docs/tutorials/own-training.md").read_text(encoding="utf-8")
    code = re.search(rf"^    class Mine\({adapter.__name__}\):.*\n(?:(?: {{8}}.*)?\n)+", text, re.MULTILINE)[0]
    names = globals() | {"train_set": STORED}
    exec(textwrap.dedent(code), names)
    return names["Mine"]


Lit = documented(FromLightning)


class Digits(documented(FromLoader)):
    def build(self) -> nn.Module:
        return nn.Linear(64, 10)

    def validate(self, model: nn.Module) -> torch.Tensor:
        images, labels = load("test")
        return 100 * (model(images).argmax(1) == labels).float().mean()


@pytest.mark.parametrize("adapter", [Digits, Lit])
def test_an_adapter_trains(adapter: type) -> None:
    workload = adapter()
    check(workload)
    workload.steps = 12
    made = build(workload, tier("baseline"), ALONE, 0)
    before = made.validate()["val/score"]
    fit(made, None, 0, lambda number: None)
    assert (made.validate()["val/score"] > before) == workload.higher_is_better


def test_an_epoch_has_each_sample_once_in_an_order_of_its_own() -> None:
    workload = Digits()
    orders = ((range(3), 0), (range(3), 0), (range(3, 6), 0), (range(3), 1))
    first, again, second, other = (torch.cat([workload.batch(n, seed)["0"] for n in ns]) for ns, seed in orders)
    assert len(first.unique(dim=0)) == 96 and torch.equal(first, again)
    assert not torch.equal(first, second) and not torch.equal(first, other)


@pytest.mark.parametrize(("interval", "expected"), [("epoch", [0.2, 0.2, 0.2, 0.1]), ("step", [0.2, 0.1, 0.05, 0.025])])
def test_learning_rates_and_arguments_are_those_of_the_module(interval, expected, monkeypatch) -> None:
    monkeypatch.setattr(Classifier, "interval", interval)
    made = build(Lit(), tier("baseline"), ALONE, 0)
    assert [made.workload.rates(32 * number, [])[0] for number in range(4)] == pytest.approx(expected)
    assert made.step.groups[0]["momentum"] == 0.5


UNREPEATABLE = [(ChainDataset([]), {}), (STORED, {"sampler": WeightedRandomSampler([1.0] * 100, 100)})]


@pytest.mark.parametrize(("data", "options"), UNREPEATABLE, ids=["stream", "sampler"])
def test_draws_that_cannot_be_repeated_are_refused(data, options) -> None:
    kind = type("Mine", (Digits,), {"loader": lambda self: DataLoader(data, batch_size=32, **options)})
    with pytest.raises(UserError, match="draws cannot be repeated: use a Dataset"):
        kind()


@pytest.mark.parametrize(
    ("attribute", "value", "sentence"),
    [
        ("automatic_optimization", False, "several optimisers need"),
        ("optimizers", 2, "several optimisers need"),
        ("logged", "acc", "validation_step logs no val_acc"),
    ],
)
def test_a_module_that_needs_a_trainer_is_refused(attribute, value, sentence, monkeypatch) -> None:
    monkeypatch.setattr(Classifier, attribute, value)
    with pytest.raises(UserError, match=sentence):
        check(Lit())
