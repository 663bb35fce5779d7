"""A workload that consists of a LightningModule, or of a module with the same methods."""

from abc import abstractmethod
from collections.abc import Mapping, Sequence

from torch import Tensor, nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler, ReduceLROnPlateau
from torch.utils._pytree import tree_leaves, tree_map_only
from torch.utils.data import DataLoader

from faze.base.errors import UserError
from faze.training.from_loader import FromLoader


class FromLightning(FromLoader):
    """The training of a LightningModule; `score` is the name of a value that its validation_step logs.

        class Mine(FromLightning):
            steps, score, higher_is_better = 1000, "val_acc", True

            def module(self):
                return Classifier(width=32)

    The tier's switch `optimizer` determines the optimiser's class. No hooks are called: call `setup` in `module`.
    """

    def __init__(self) -> None:
        self.lit = self.build()
        super().__init__()
        found = tree_leaves(self.lit.configure_optimizers())
        optimizers, schedulers = ([each for each in found if isinstance(each, of)] for of in (Optimizer, LRScheduler))
        if len(optimizers) != 1 or ReduceLROnPlateau in map(type, schedulers) or not self.lit.automatic_optimization:
            raise UserError("manual optimisation, several optimisers and ReduceLROnPlateau need a Workload of your own")
        every, self.table = 1 if "step" in found else len(self.source.dataset) // self.batch_size, []
        for number in range(1, self.steps + 1):
            self.table.append([float(group["lr"]) for group in optimizers[0].param_groups])
            optimizers[0].step()  # no effect without gradients, but schedulers expect it
            for scheduler in schedulers if number % every == 0 else ():
                scheduler.step()

    @abstractmethod
    def module(self) -> nn.Module:
        """Return the LightningModule."""

    def build(self) -> nn.Module:
        model = self.module()
        model.log = model.log_dict = lambda *values, **options: None  # otherwise, they need a Trainer
        return model

    def loader(self) -> DataLoader:
        return self.lit.train_dataloader()

    def parameter_groups(self, model: nn.Module) -> Mapping[str, list[dict]]:
        groups = next(x for x in tree_leaves(model.configure_optimizers()) if isinstance(x, Optimizer)).param_groups
        switches = ("capturable", "differentiable", "foreach", "fused")
        return {"network": [{key: group[key] for key in group if key not in switches} for group in groups]}

    def rates(self, seen: int, first: Sequence[float]) -> list[float]:
        return self.table[min(seen // self.batch_size, self.steps - 1)]

    def losses(self, model: nn.Module, batch: Mapping[str, Tensor]) -> Mapping[str, Mapping[str, Tensor]]:
        found = model.training_step(list(batch.values()) if "0" in batch else batch, 0)
        return {"network": {"loss": found["loss"] if isinstance(found, Mapping) else found}}

    def validate(self, model: nn.Module) -> float:
        logged, ignore, device = [], model.log, next(model.parameters()).device
        model.log = lambda name, value, **options: logged.append((name, value))
        model.log_dict = lambda values, **options: logged.extend(values.items())
        for number, batch in enumerate(self.lit.val_dataloader()):
            model.validation_step(tree_map_only(Tensor, lambda value: value.to(device), batch), number)
        model.log = model.log_dict = ignore
        found = [value for name, value in logged if name == self.score]
        if not found:
            raise UserError(f"validation_step logs no {self.score}: set `score` to the name of a logged value")
        if isinstance(found[0], nn.Module):  # a metric of torchmetrics, updated with every batch
            metric, found = found[0], [found[0].compute()]
            metric.reset()
        return sum(map(float, found)) / len(found)
