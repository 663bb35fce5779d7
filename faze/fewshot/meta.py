"""Meta-training: the outer loop over tasks, for all k at once. Paper section 3.2.

MAML moves initial weights w so that one small step on a person's support helps on their query:

    outer loss(w) = mean over tasks of query loss(w - inner_lr * gradient of support loss(w)),

with its true gradient, through the inner step's gradient. (The released code applies another: the sum of all tasks'
support gradients and the query gradient of the last.)

Shapes: K values of k, T tasks of an outer step, K * T models of the inner loop, s samples of the largest support.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from faze.fewshot.draws import TaskDraws
from faze.fewshot.kernel import single_threaded_operations
from faze.fewshot.mlp import Batch, Weights, mean_angle_deg
from faze.sections import Fewshot
from faze.telemetry import Progress

# (parameters of M models, inputs (M, n, ...), targets (M, n, ...), shares (M, n)) -> (M,)
Loss = Callable[[Sequence[Tensor], Tensor, Tensor, Tensor], Tensor]


def support_shares(shots: Sequence[int], dtype: torch.dtype = torch.float32) -> Tensor:
    """Each sample's share in the support loss of each k, (K, s): the first k samples share alike, the rest pad."""
    k = torch.tensor(shots, dtype=dtype)[:, None]
    return (torch.arange(max(shots)) < k) / k


def maml_loss(
    parameters: Sequence[Tensor],
    support: Batch,
    query: Batch,
    shares: Tensor,
    *,
    inner_lr: float,
    inner_steps: int,
    loss: Loss = mean_angle_deg,
) -> Tensor:
    """Query loss after the inner steps, differentiable to second order.

    Args:
        parameters: of K models, each (K, ...).
        support: (T, s, ...) samples of T tasks, the same for every k.
        query: (T, q, ...).
        shares: (K, s), from support_shares.
        inner_lr: of the inner SGD.
        inner_steps: its steps.
        loss: of M models.

    Returns:
        (K,) means over the tasks.
    """
    num_k, num_tasks = len(shares), len(query.code)
    adapted = [parameter.repeat_interleave(num_tasks, dim=0) for parameter in parameters]  # (K * T, ...)
    code, gaze = _for_each_k(support, num_k)
    for _ in range(inner_steps):
        inner = loss(adapted, code, gaze, shares.repeat_interleave(num_tasks, dim=0))
        gradients = torch.autograd.grad(inner.sum(), adapted, create_graph=True)
        adapted = [p - inner_lr * g for p, g in zip(adapted, gradients, strict=True)]
    code, gaze = _for_each_k(query, num_k)
    alike = torch.full_like(code[..., 0], 1 / code.shape[1])  # (K * T, q)
    return loss(adapted, code, gaze, alike).view(num_k, num_tasks).mean(1)


def _for_each_k(batch: Batch, num_k: int) -> tuple[Tensor, Tensor]:
    return batch.code.repeat(num_k, 1, 1), batch.gaze.repeat(num_k, 1, 1)  # (T, n, ...) -> (K * T, n, ...)


@dataclass(frozen=True)
class Record:
    """Errors in degrees, one per k, at an outer step."""

    step: int
    train_deg: list[float]  # query loss after the inner step, mean over the outer steps since the last record
    val_deg: list[float] | None  # after adaptation as at test, mean over val people


def meta_train(
    weights: Weights, draw: TaskDraws, settings: Fewshot, validate: Callable[[Weights], list[float] | None]
) -> tuple[Weights, list[Record]]:
    """Train the initial weights of all k in one loop; each k is a model and an Adam of its own.

    Args:
        weights: of K models, one per entry of settings.shots.
        draw: gives support and query of T tasks.
        settings: rates and steps.
        validate: from weights to the errors on people not trained on.

    Returns:
        The weights after the last step, and a record of every settings.validate_every_steps.

    Raises:
        ValueError: the loss is no longer finite.
    """
    parameters = [parameter.clone().requires_grad_() for parameter in weights]
    optimizer = torch.optim.Adam(parameters, lr=settings.outer_lr)  # elementwise: what is stacked does not mix
    shares, progress = support_shares(settings.shots), Progress("meta_train", settings.outer_steps, "steps")
    history: list[Record] = []
    recent: list[Tensor] = []
    with single_threaded_operations():
        for step in range(1, settings.outer_steps + 1):
            support, query = draw()
            losses = maml_loss(
                parameters, support, query, shares, inner_lr=settings.inner_lr, inner_steps=settings.inner_steps
            )
            optimizer.zero_grad()
            losses.sum().backward()
            optimizer.step()
            recent.append(losses.detach())
            if step % settings.validate_every_steps == 0 or step == settings.outer_steps:
                trained = Weights(*(parameter.detach().clone() for parameter in parameters))
                history.append(Record(step, _finite_mean(recent, step), validate(trained)))
                recent.clear()
            progress(step)
    return trained, history


def _finite_mean(losses: Sequence[Tensor], step: int) -> list[float]:
    mean = torch.stack(list(losses)).mean(0)
    if not mean.isfinite().all():
        raise ValueError(f"meta-training diverged before outer step {step}: lower fewshot.outer_lr or fewshot.inner_lr")
    return mean.tolist()
