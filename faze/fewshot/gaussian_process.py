"""A Gaussian process as the model of a person's residual; faze.fewshot.residual_model explains the training.

Shapes: P people, n entries, of which k are calibration samples, 2 axes, F numbers in a gaze code.
"""

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from faze.fewshot.likelihood import likely_factors, negative_log_likelihood, some_entries
from faze.fewshot.person_codes import PersonCodes, Seen
from faze.fewshot.residual_model import Gaussian, ResidualModel, State, check_features, residual_deg


class GaussianProcess(ResidualModel):
    """A residual model whose f is a Gaussian process over the gaze code: a constant plus a smooth function.

    The kernel for each axis is c^2 + s^2 exp(-|x - x'|^2 / 2 l^2) over the standardised code, with maximum-likelihood
    parameters from train people (Rasmussen and Williams, Gaussian Processes for Machine Learning, 2.2 and 5.4).
    """

    name = "gp"

    def learn_prior(self, people: Sequence[PersonCodes]) -> dict[str, NDArray[np.float64]]:
        """Maximise the total log likelihood of some entries of each person."""
        codes = np.concatenate([person.code for person in people]).astype(np.float64)
        center, scale = codes.mean(axis=0), np.maximum(codes.std(axis=0), 1e-9)
        taken = some_entries(people)
        inputs = np.stack([(p.code[rows] - center) / scale for p, rows in zip(people, taken, strict=True)])
        residuals = np.stack([residual_deg(p, rows) for p, rows in zip(people, taken, strict=True)])
        kernel = np.stack([learn_kernel(inputs, residuals[..., axis]) for axis in range(2)])
        return {"kernel": kernel[:, :3], "noise": kernel[:, 3], "center": center, "scale": scale}

    def condition(
        self, prior: State, seen: Seen, residual: NDArray[np.float64], noise: NDArray[np.float64]
    ) -> dict[str, NDArray[np.float64]]:
        """Store the samples and their weights."""
        code = self._standardised(prior, seen)
        spread = kernel_of(prior["kernel"], code, code) + noise[..., None] * np.eye(len(code))
        inverse = np.linalg.inv(spread)
        return dict(prior) | {
            "samples": code,
            "inverse": inverse,
            "weights": (inverse @ residual.T[..., None])[..., 0],
        }

    def predict(self, own: State, seen: Seen) -> Gaussian:
        """Compute the predictive distribution."""
        across = kernel_of(own["kernel"], self._standardised(own, seen), own["samples"])  # (2, n, k)
        mean = (across @ own["weights"][..., None])[..., 0]
        known = np.sum(across @ own["inverse"] * across, axis=-1)
        variance = (own["kernel"][:, :2].sum(axis=1) + own["noise"])[:, None] - known
        return Gaussian(mean.T, variance.T)

    def covariance(self, prior: State, seen: Seen) -> NDArray[np.float64]:
        """Compute the kernel."""
        code = self._standardised(prior, seen)
        return kernel_of(prior["kernel"], code, code)

    def scaled(self, prior: State, factors: NDArray[np.float64]) -> dict[str, NDArray[np.float64]]:
        """Multiply c^2, s^2 and the noise by factors."""
        kernel = prior["kernel"] * np.array([factors[0], factors[1], 1.0])
        return dict(prior) | {"kernel": kernel, "noise": factors[2] * prior["noise"]}

    def _standardised(self, state: State, seen: Seen) -> NDArray[np.float64]:
        check_features(seen.code.shape[-1], state["center"].shape[-1])
        return (seen.code.astype(np.float64) - state["center"]) / state["scale"]


def kernel_of(kernel: NDArray[np.float64], a: NDArray[np.float64], b: NDArray[np.float64]) -> NDArray[np.float64]:
    """Compute covariances (2, n, m) between codes (n, F) and (m, F); kernel is (2, 3): c^2, s^2, l^2 for each axis."""
    square = np.sum(a**2, axis=1)[:, None] + np.sum(b**2, axis=1) - 2 * a @ b.T
    constant, varying, length = kernel.T[..., None, None]
    return constant + varying * np.exp(-np.maximum(square, 0) / (2 * length))


def learn_kernel(inputs: NDArray[np.float64], residuals: NDArray[np.float64]) -> NDArray[np.float64]:
    """Find the maximum-likelihood kernel parameters for people's residuals along one axis.

    Args:
        inputs: (P, n, F) standardised codes.
        residuals: (P, n) degrees.

    Returns:
        (4,) c^2, s^2, l^2 and the noise's variance.
    """
    x, y = torch.from_numpy(inputs), torch.from_numpy(residuals)
    square, size = torch.cdist(x, x).square(), max(float(y.square().mean()), 1e-6)
    guess = torch.tensor([0.5 * size, 0.3 * size, float(x.shape[-1]), 0.3 * size], dtype=torch.float64)
    eye = torch.eye(x.shape[1], dtype=torch.float64)

    def unlikelihood(factors: Tensor) -> Tensor:
        constant, varying, length, noise = factors * guess
        spread = constant + varying * torch.exp(-square / (2 * length)) + noise * eye
        return negative_log_likelihood(spread, y)

    return likely_factors(unlikelihood, 4) * guess.numpy()
