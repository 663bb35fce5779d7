"""Meta-training: the outer loop over tasks, for all k at once. Paper section 3.2.

MAML moves initial weights w so that one small step on a person's support reduces the loss on their query:

    outer loss(w) = mean over tasks of query loss(w - inner_lr * gradient of support loss(w)).

Its gradient is v - inner_lr * H v, where v is the query gradient after the step and H is the Hessian of the support
loss before it. `maml` uses this gradient, `fomaml` omits H, and `reference` uses the gradient of the released code.

Shapes: K values of k, T tasks per outer step, K * T networks: network k * T + t belongs to task t; S parameters.
"""

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
    rule: Rule, kernel: AutogradKernel, networks: Tensor, inner_lr: float, support: Samples, query: Samples
) -> tuple[Tensor, Tensor]:
    """Compute the gradient of the query loss after the inner step, averaged over tasks.

    `reference` sums over tasks, and uses the query of the last task only. With g and H the gradient and Hessian of each
    task's support loss at w, and q the last task's query loss, it is
    sum of g + (1 - inner_lr * sum of H) * gradient of q at (w - inner_lr * sum of g).

    The arguments are the networks w (K, S), the rate of the inner step per degree, and the samples of K * T networks.
    The results are the gradient (K, S) and the query loss (K,) in degrees.
    """
    num_k, num_tasks = len(networks), len(support.rows) // len(networks)
    repeated = networks.repeat_interleave(num_tasks, dim=0)
    by_support, _ = kernel.gradient(repeated, support)
    if rule != "reference":
        gradient, loss = kernel.gradient(repeated - inner_lr * by_support, query)
        if rule == "maml":
            gradient = gradient - kernel.hessian_product(repeated, support, inner_lr * gradient)
        return gradient.view(num_k, num_tasks, -1).mean(1), loss.view(num_k, num_tasks).mean(1)
    by_support = by_support.view(num_k, num_tasks, -1).sum(1)
    last = query.of_networks(slice(num_tasks - 1, None, num_tasks))
    gradient, loss = kernel.gradient(networks - inner_lr * by_support, last)
    direction = (inner_lr * gradient).repeat_interleave(num_tasks, dim=0)
    turned = kernel.hessian_product(repeated, support, direction).view(num_k, num_tasks, -1).sum(1)
    return by_support + gradient - turned, loss


@dataclass
class Trained:
    """The initial networks of each k with the lowest val error; without val people, the last ones."""

    networks: Tensor  # (K, S)
    steps: list[int]  # outer step of each k's network
    # Records {"step", "train_deg", "val_deg"}, errors in degrees for each k: the query loss after the inner step, mean
    # over the outer steps since the previous record; after adaptation, mean over val people, or None.
    history: list[dict[str, object]] = field(default_factory=list)

    def record(self, step: int, networks: Tensor, train_deg: list[float], val_deg: list[float] | None) -> None:
        """Record the errors of a step; for each k, keep the network if its val error is the lowest so far."""
        for k in range(len(networks)):
            if val_deg is None or all(val_deg[k] < record["val_deg"][k] for record in self.history):
                self.networks[k], self.steps[k] = networks[k], step
        self.history.append({"step": step, "train_deg": train_deg, "val_deg": val_deg})


def meta_train(
    rule: Rule,
    kernel: AutogradKernel,
    networks: Tensor,
    people: Entries,
    settings: Fewshot,
    seed: int,
    validate: Callable[[Tensor], list[float] | None],
) -> Trained:
    """Train the initial networks (K, S) of all settings.shots on tasks drawn from people.

    `validate` maps networks to their errors on val people. Raises a UserError if the loss is no longer finite.
    """
    rng, networks, losses = np.random.default_rng(seed), networks.clone(), []
    trained = Trained(networks.clone(), [0] * len(networks))
    progress = Progress(f"meta_train {rule}", settings.outer_steps, "steps")
    mean, square = torch.zeros_like(networks), torch.zeros_like(networks)
    for step in range(1, settings.outer_steps + 1):
        gradient, loss = outer_gradient(rule, kernel, networks, settings.inner_lr, *people.draw_tasks(settings, rng))
        # Adam with torch's default settings. The constructor of torch's own takes longer than a short meta-training.
        mean.lerp_(gradient, 1 - 0.9)
        square.lerp_(gradient.square(), 1 - 0.999)
        networks -= settings.outer_lr * mean / (1 - 0.9**step) / ((square / (1 - 0.999**step)).sqrt() + 1e-8)
        losses.append(loss)
        if step % settings.validate_every_steps == 0 or step == settings.outer_steps:
            train_deg = torch.stack(losses).mean(0)
            if not train_deg.isfinite().all():
                raise UserError(f"meta-training diverged before outer step {step}: lower fewshot.outer_lr or inner_lr")
            trained.record(step, networks, train_deg.tolist(), validate(networks))
            losses.clear()
        progress(step)
    return trained
