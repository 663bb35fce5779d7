"""Meta-training: the outer loop over tasks, for all k at once. Paper section 3.2.

MAML moves initial weights w so that one small step on a person's support reduces the loss on their query:

    outer loss(w) = mean over tasks of query loss(w - inner_lr * gradient of support loss(w)).

Its gradient is v - inner_lr * H v, where v is the query gradient after the step and H is the Hessian of the support
loss before it. `maml` uses this gradient, `fomaml` omits H, and `reference` uses the gradient of the released code
(reference_gradient).

Shapes: K values of k, T tasks per outer step, K * T networks: network k * T + t belongs to task t; S parameters.
"""

import functools
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from faze.base.errors import UserError
from faze.base.progress import Progress
from faze.config.parameters import Fewshot
from faze.fewshot.kernel import AutogradKernel, Samples
from faze.fewshot.person_codes import Entries

Rule = Literal["maml", "fomaml", "reference"]


def outer_gradient(
    kernel: AutogradKernel,
    networks: Tensor,
    rate: float,
    support: Samples,
    query: Samples,
    *,
    second_order: bool = True,
) -> tuple[Tensor, Tensor]:
    """Compute the gradient of the query loss after the inner step, averaged over tasks.

    Args:
        kernel: computes the loss and its derivatives.
        networks: K networks (K, S).
        rate: learning rate of the inner step, per degree.
        support: samples of K * T networks.
        query: samples of K * T networks.
        second_order: whether to differentiate the inner gradient with respect to the weights.

    Returns:
        The gradient (K, S), and the loss (K,) in degrees.
    """
    before = networks.repeat_interleave(len(support.rows) // len(networks), dim=0)
    by_support, _ = kernel.gradient(before, support)
    gradient, loss = kernel.gradient(before - rate * by_support, query)
    if second_order:
        gradient = gradient - kernel.hessian_product(before, support, rate * gradient)
    return gradient.unflatten(0, (len(networks), -1)).mean(1), loss.unflatten(0, (len(networks), -1)).mean(1)


def reference_gradient(
    kernel: AutogradKernel, networks: Tensor, rate: float, support: Samples, query: Samples
) -> tuple[Tensor, Tensor]:
    """Compute the gradient of the released code: a sum over all tasks, with the query of the last task only.

    With g and H the gradient and Hessian of each task's support loss at the weights, and q the last task's query loss:
    sum of g + (1 - inner_lr * sum of H) * gradient of q at (weights - inner_lr * sum of g). Arguments and results are
    those of outer_gradient; the loss is that of the last task.
    """
    num_tasks = len(support.rows) // len(networks)

    def for_each_task(values: Tensor) -> Tensor:
        return values.repeat_interleave(num_tasks, dim=0)

    def total(values: Tensor) -> Tensor:
        return values.unflatten(0, (-1, num_tasks)).sum(1)

    by_support = total(kernel.gradient(for_each_task(networks), support)[0])
    last = query.of_networks(slice(num_tasks - 1, None, num_tasks))
    by_query, loss = kernel.gradient(networks - rate * by_support, last)
    turned = kernel.hessian_product(for_each_task(networks), support, for_each_task(rate * by_query))
    return by_support + by_query - total(turned), loss


@dataclass
class Trained:
    """The initial networks of each k with the lowest val error; without val people, the last ones."""

    networks: Tensor  # (K, S)
    steps: list[int]  # outer step of each k's network
    # Records {"step", "train_deg", "val_deg"}, errors in degrees for each k: the query loss after the inner step, mean
    # over the outer steps since the previous record; after adaptation, mean over val people, or None.
    history: list[dict[str, object]] = field(default_factory=list)

    def record(self, step: int, networks: Tensor, train_deg: list[float], val_deg: list[float] | None) -> None:
        """Record the errors of a step; for each k, keep the network if no earlier one had a lower or the same error."""
        for k in range(len(networks)):
            if val_deg is None or all(val_deg[k] < record["val_deg"][k] for record in self.history):
                self.networks[k], self.steps[k] = networks[k], step
        self.history.append({"step": step, "train_deg": train_deg, "val_deg": val_deg})


GRADIENTS = {
    "maml": outer_gradient,
    "fomaml": functools.partial(outer_gradient, second_order=False),
    "reference": reference_gradient,
}


def meta_train(
    rule: Rule,
    kernel: AutogradKernel,
    networks: Tensor,
    train: Entries,
    settings: Fewshot,
    seed: int,
    validate: Callable[[Tensor], list[float] | None],
) -> Trained:
    """Train the initial networks (K, S) of all settings.shots in one loop.

    Tasks are drawn from the people in `train`. `validate` maps networks to their errors on val people.

    Raises:
        UserError: the loss is no longer finite.
    """
    rng, networks, recent = np.random.default_rng(seed), networks.clone(), []
    trained = Trained(networks.clone(), [0] * len(networks))
    progress = Progress(f"meta_train {rule}", settings.outer_steps, "steps")
    mean, square = torch.zeros_like(networks), torch.zeros_like(networks)
    counts = np.repeat(settings.shots, settings.tasks)
    for step in range(1, settings.outer_steps + 1):
        support, query = (np.tile(rows, (len(networks), 1)) for rows in train.draw_tasks(settings, rng))
        samples = train.samples(support, counts), train.samples(query, settings.meta_query)
        gradient, loss = GRADIENTS[rule](kernel, networks, settings.inner_lr, *samples)
        # Adam with torch's default settings. The constructor of torch's own takes longer than a short meta-training.
        mean.lerp_(gradient, 1 - 0.9)
        square.lerp_(gradient.square(), 1 - 0.999)
        networks -= settings.outer_lr * mean / (1 - 0.9**step) / ((square / (1 - 0.999**step)).sqrt() + 1e-8)
        recent.append(loss)
        if step % settings.validate_every_steps == 0 or step == settings.outer_steps:
            train_deg = torch.stack(recent).mean(0)
            if not train_deg.isfinite().all():
                raise UserError(f"meta-training diverged before outer step {step}: lower fewshot.outer_lr or inner_lr")
            trained.record(step, networks, train_deg.tolist(), validate(networks))
            recent.clear()
        progress(step)
    return trained
