"""Meta-training: the outer loop over tasks, for all k at once. Paper section 3.2.

MAML moves initial weights w so that one small step on a person's support reduces the loss on their query:

    outer loss(w) = mean over tasks of query loss(w - inner_lr * gradient of support loss(w)).

Its gradient is v - inner_lr * H v, where v is the query gradient after the step and H is the Hessian of the support
loss before it. `maml` uses this gradient, `fomaml` omits H, and `reference` uses the gradient of the released code.

Shapes: K values of k, T tasks per outer step, K * T networks: network k * T + t belongs to task t; S parameters.
"""

from collections.abc import Callable, Sequence
from typing import Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor

from faze.base.errors import UserError
from faze.base.progress import Progress
from faze.config.parameters import Fewshot
from faze.fewshot.kernel import AutogradKernel, Samples
from faze.fewshot.person_codes import PersonCodes, draw_tasks

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
    num_k, num_tasks = len(networks), len(support.code) // len(networks)
    repeated = networks.repeat_interleave(num_tasks, dim=0)
    by_support, _ = kernel.gradient(repeated, support)
    if rule != "reference":
        gradient, loss = kernel.gradient(repeated - inner_lr * by_support, query)
        if rule == "maml":
            gradient = gradient - kernel.hessian_product(repeated, support, inner_lr * gradient)
        return gradient.view(num_k, num_tasks, -1).mean(1), loss.view(num_k, num_tasks).mean(1)
    by_support = by_support.view(num_k, num_tasks, -1).sum(1)
    last = Samples(*(part[num_tasks - 1 :: num_tasks].contiguous() for part in query))
    gradient, loss = kernel.gradient(networks - inner_lr * by_support, last)
    direction = (inner_lr * gradient).repeat_interleave(num_tasks, dim=0)
    turned = kernel.hessian_product(repeated, support, direction).view(num_k, num_tasks, -1).sum(1)
    return by_support + gradient - turned, loss


class Trained(NamedTuple):
    """The initial network of each k with the lowest val error; without val people, the last one."""

    networks: Tensor  # (K, S)
    steps: list[int]  # outer step of each k's network
    # Records {"step", "train_deg", "val_deg"}, errors in degrees for each k: the query loss after the inner step, mean
    # over the outer steps since the previous record; after adaptation, mean over val people, or None.
    history: list[dict[str, object]]


def meta_train(
    rule: Rule,
    kernel: AutogradKernel,
    networks: Tensor,
    people: Sequence[PersonCodes],
    settings: Fewshot,
    seed: int,
    validate: Callable[[Tensor], list[float] | None],
) -> Trained:
    """Train the initial networks (K, S) of all settings.shots on tasks drawn from people.

    `validate` maps networks to their errors on val people. Raises a UserError if the loss is no longer finite.
    """
    rng, networks, losses = np.random.default_rng(seed), networks.clone(), []
    best, best_steps, history = networks.clone(), [0] * len(networks), []
    progress = Progress(f"meta_train {rule}", settings.outer_steps, "steps")
    mean, square = torch.zeros_like(networks), torch.zeros_like(networks)
    for step in range(1, settings.outer_steps + 1):
        support, query = draw_tasks(people, settings, rng, kernel.device)
        gradient, loss = outer_gradient(rule, kernel, networks, settings.inner_lr, support, query)
        # Adam with torch's default settings. The constructor of torch's own takes longer than a short meta-training.
        mean.lerp_(gradient, 1 - 0.9)
        square.lerp_(gradient.square(), 1 - 0.999)
        networks -= settings.outer_lr * mean / (1 - 0.9**step) / ((square / (1 - 0.999**step)).sqrt() + 1e-8)
        losses.append(loss)
        if step % settings.validate_every_steps == 0 or step == settings.outer_steps:
            train_deg = torch.stack(losses).mean(0)
            if not train_deg.isfinite().all():
                raise UserError(f"meta-training diverged before outer step {step}: lower fewshot.outer_lr or inner_lr")
            val_deg = validate(networks)
            for k in range(len(networks)):
                if val_deg is None or all(val_deg[k] < earlier["val_deg"][k] for earlier in history):
                    best[k], best_steps[k] = networks[k], step
            history.append({"step": step, "train_deg": train_deg.tolist(), "val_deg": val_deg})
            losses.clear()
        progress(step)
    return Trained(best, best_steps, history)
