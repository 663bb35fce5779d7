"""How likely people's residuals are under a Gaussian model, and the numbers of it that make them the likeliest."""

from collections.abc import Callable, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from faze.fewshot.person_codes import PersonCodes

_OF_EACH = 60  # entries of a person that tell a likelihood
_LOG_FACTOR = 2.0  # standard deviation of a factor's logarithm, before any person is seen
_FURTHEST = 6 * _LOG_FACTOR  # from 0 that a logarithm acts: covariances stay definite in numbers of 16 digits
_LEAST = 1e-8  # that is added to every variance


def some_entries(people: Sequence[PersonCodes]) -> list[NDArray[np.int64]]:
    """Take as many entries of each person, spread over all of that person's: at most _OF_EACH."""
    count = min(_OF_EACH, *(len(person.code) for person in people))
    return [np.linspace(0, len(person.code) - 1, count).astype(int) for person in people]


def negative_log_likelihood(spread: Tensor, residual: Tensor) -> Tensor:
    """Compute it, up to a constant, for residuals (..., n) of mean zero and their covariances (..., n, n)."""
    root = torch.linalg.cholesky(spread + _LEAST * torch.eye(spread.shape[-1], dtype=spread.dtype))
    whitened = torch.linalg.solve_triangular(root, residual[..., None], upper=False)
    return 0.5 * whitened.square().sum() + root.diagonal(dim1=-2, dim2=-1).log().sum()


def likely_factors(unlikelihood: Callable[[Tensor], Tensor], count: int) -> NDArray[np.float64]:
    """Find the likeliest factors (count,); before anything is seen each is 1, give or take e to the _LOG_FACTOR."""
    logs = torch.zeros(count, dtype=torch.float64, requires_grad=True)
    optimizer = torch.optim.LBFGS([logs], max_iter=60, line_search_fn="strong_wolfe")

    def loss() -> Tensor:
        optimizer.zero_grad()
        found = unlikelihood(logs.clamp(-_FURTHEST, _FURTHEST).exp()) + (logs / _LOG_FACTOR).square().sum() / 2
        found.backward()
        return found

    optimizer.step(loss)
    return logs.detach().clamp(-_FURTHEST, _FURTHEST).exp().numpy()
