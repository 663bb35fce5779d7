"""Maximum-likelihood estimates shared by the closed-form learners.

Shapes: P people, n entries.
"""

from collections.abc import Callable, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from faze.fewshot.person_codes import PersonCodes

_OF_EACH = 60  # entries of a person used for a likelihood
_LOG_FACTOR = 2.0  # prior standard deviation of a factor's logarithm
_FURTHEST = 6 * _LOG_FACTOR  # bound of a logarithm, so that covariances stay definite in double precision
_LEAST = 1e-8  # that is added to every variance
_DOF = np.geomspace(2.5, 1000, 100)  # candidates; the noise has a variance only above 2, and is normal in the limit


def some_entries(people: Sequence[PersonCodes]) -> list[NDArray[np.int64]]:
    """Select evenly spaced entries, the same number for each person: at most _OF_EACH."""
    count = min(_OF_EACH, *(len(person.code) for person in people))
    return [np.linspace(0, len(person.code) - 1, count).astype(int) for person in people]


def negative_log_likelihood(spread: Tensor, residual: Tensor) -> Tensor:
    """Compute the negative log likelihood, up to a constant, of residuals (..., n) with covariances (..., n, n)."""
    root = torch.linalg.cholesky(spread + _LEAST * torch.eye(spread.shape[-1], dtype=spread.dtype))
    whitened = torch.linalg.solve_triangular(root, residual[..., None], upper=False)
    return 0.5 * whitened.square().sum() + root.diagonal(dim1=-2, dim2=-1).log().sum()


def likely_factors(unlikelihood: Callable[[Tensor], Tensor], count: int) -> NDArray[np.float64]:
    """Find the factors (count,) that maximise the posterior for a log-normal prior around 1 with width _LOG_FACTOR."""
    logs = torch.zeros(count, dtype=torch.float64, requires_grad=True)
    optimizer = torch.optim.LBFGS([logs], max_iter=60, line_search_fn="strong_wolfe")

    def loss() -> Tensor:
        optimizer.zero_grad()
        found = unlikelihood(logs.clamp(-_FURTHEST, _FURTHEST).exp()) + (logs / _LOG_FACTOR).square().sum() / 2
        found.backward()
        return found

    optimizer.step(loss)
    return logs.detach().clamp(-_FURTHEST, _FURTHEST).exp().numpy()


def likely_dof(standard: NDArray[np.float64]) -> float:
    """Find the degrees of freedom of the bivariate t distribution with unit variances that is likeliest for (n, 2)."""
    square = np.sum(standard**2, axis=1)[:, None]
    log = -np.log(_DOF - 2) + np.log(_DOF) - (_DOF + 2) / 2 * np.log1p(square / (_DOF - 2))
    return float(_DOF[log.sum(axis=0).argmax()])
