"""A workload that consists of a model, a loss and a DataLoader; docs/tutorials/own-training.md contains an example."""

from abc import abstractmethod
from collections.abc import Callable, Mapping

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, RandomSampler, SequentialSampler

from faze.base.errors import UserError
from faze.training.workload import Batch, Workload, seed_draws


class FromLoader(Workload):
    """The training of a model with a loss, which is a module or a method, on the batches of a DataLoader.

    A batch must be [input, ..., target], or `losses` overridden; its loss is loss(model(input, ...), target).
    """

    loss: Callable[..., Tensor]

    def __init__(self) -> None:
        self.source = loader = self.loader()
        if type(loader.sampler) not in (RandomSampler, SequentialSampler) or not loader.batch_size:
            raise UserError("the loader's draws cannot be repeated: use a Dataset with indices, batch_size and shuffle")
        self.batch_size, self.workers = min(loader.batch_size, len(loader.dataset)), loader.num_workers

    @abstractmethod
    def loader(self) -> DataLoader:
        """Return the loader of training batches."""

    def batch(self, number: int, seed: int) -> Batch:
        data, size = self.source.dataset, self.batch_size
        epoch, position = divmod(number, len(data) // size)  # an epoch's incomplete last batch is left out
        seed_draws(seed, epoch)
        order = torch.randperm(len(data)) if isinstance(self.source.sampler, RandomSampler) else torch.arange(len(data))
        seed_draws(seed, number)  # for random transforms of samples
        batch = self.source.collate_fn([data[i] for i in order[position * size :][:size].tolist()])
        return batch if isinstance(batch, Mapping) else {str(i): value for i, value in enumerate(batch)}

    def losses(self, model: nn.Module, batch: Mapping[str, Tensor]) -> Mapping[str, Mapping[str, Tensor]]:
        *inputs, target = batch.values()
        return {"network": {"loss": self.loss(model(*inputs), target)}}
