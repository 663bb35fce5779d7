"""The outer loop's Adam."""

from collections.abc import Iterable, Mapping, Sequence

import torch
from torch import Tensor
from torch.optim.adam import adam


class Adam:
    """torch.optim.Adam with its default settings, to the bit.

    To build one of torch.optim's classes imports torch._dynamo, a third of what a short meta-training takes.
    """

    def __init__(self, parameters: Iterable[Tensor], lr: float) -> None:
        """Take the tensors that each step changes in place, of any shapes."""
        self._parameters, self._lr = list(parameters), lr
        self._state = {
            "exp_avgs": [torch.zeros_like(parameter) for parameter in self._parameters],
            "exp_avg_sqs": [torch.zeros_like(parameter) for parameter in self._parameters],
            "state_steps": [torch.zeros(()) for _ in self._parameters],
        }

    def step(self, gradients: Sequence[Tensor]) -> None:
        """Follow the gradients, one of each parameter's shape."""
        rates = {"lr": self._lr, "beta1": 0.9, "beta2": 0.999, "eps": 1e-8, "weight_decay": 0.0}
        unused = {"max_exp_avg_sqs": [], "amsgrad": False, "maximize": False}
        adam(self._parameters, list(gradients), **self._state, **rates, **unused, foreach=False)

    def state_dict(self) -> Mapping[str, list[Tensor]]:
        """Return the state on which the next steps depend, except the parameters."""
        return self._state

    def load_state_dict(self, state: Mapping[str, list[Tensor]]) -> None:
        """Go on from another's state."""
        self._state = dict(state)
