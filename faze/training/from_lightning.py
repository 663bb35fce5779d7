"""A workload that consists of a LightningModule; docs/tutorials/own-training.md contains an example."""

from collections.abc import Mapping, Sequence

from torch import Tensor, nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler
from torch.utils._pytree import tree_leaves, tree_map_only
from torch.utils.data import DataLoader

from faze.base.errors import UserError
from faze.training.from_loader import FromLoader


class FromLightning(FromLoader):
    """The training of a LightningModule, which `build` returns; `score` names a value that its validation_step logs.

    The tier's switch `optimizer` determines the optimiser's class. No hooks are called: call `setup` in `build`.
    """

    def loader(self) -> DataLoader:
        self.lit = self.build()
        return self.lit.train_dataloader()

    def parameter_groups(self, model: nn.Module) -> Mapping[str, list[dict]]:
        model.log = lambda *value, **options: None  # otherwise, it needs a Trainer
        found, own = tree_leaves(model.configure_optimizers()), ("capturable", "differentiable", "foreach", "fused")
        optimizers = [each for each in found if isinstance(each, Optimizer)]
        if len(optimizers) != 1 or not model.automatic_optimization:
            raise UserError("manual optimisation and several optimisers need a Workload of your own")
        groups = optimizers[0].param_groups
        given = [{key: group[key] for key in group if key not in own} for group in groups]
        optimizers[0].step()  # has no effect without gradients, but schedulers expect it
        every, self.table = 1 if "step" in found else len(self.source.dataset) // self.batch_size, []
        for number in range(1, self.steps + 1):
            self.table.append([float(group["lr"]) for group in groups])
            for scheduler in found if number % every == 0 else ():
                if isinstance(scheduler, LRScheduler):
                    scheduler.step()
        return {"network": given}

    def rates(self, seen: int, first: Sequence[float]) -> list[float]:
        return self.table[min(seen // self.batch_size, self.steps - 1)]

    def losses(self, model: nn.Module, batch: Mapping[str, Tensor]) -> Mapping[str, Mapping[str, Tensor]]:
        found = model.training_step(list(batch.values()) if "0" in batch else batch, 0)
        return {"network": {"loss": found["loss"] if isinstance(found, Mapping) else found}}

    def validate(self, model: nn.Module) -> float:
        found, log, device = [], model.log, next(model.parameters()).device
        model.log = lambda name, value, *rest, **options: found.append(value) if name == self.score else None
        for number, batch in enumerate(self.lit.val_dataloader()):
            model.validation_step(tree_map_only(Tensor, lambda value: value.to(device), batch), number)
        model.log = log
        if not found:
            raise UserError(f"validation_step logs no {self.score}: set `score` to the name of a logged value")
        if isinstance(found[0], nn.Module):  # a metric of torchmetrics, updated with every batch
            metric, found = found[0], [found[0].compute()]
            metric.reset()
        return sum(map(float, found)) / len(found)
