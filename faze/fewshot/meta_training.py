"""Meta-training: the outer loop over tasks, for all k at once. Paper section 3.2.

MAML moves initial weights w so that one small step on a person's support reduces the loss on their query:

    outer loss(w) = mean over tasks of query loss(w - inner_lr * gradient of support loss(w)).

Its gradient is v - inner_lr * H v, where v is the query gradient after the step and H is the Hessian of the support
loss before it. `maml` uses this gradient, `fomaml` omits H, and `reference` uses the gradient of the released code
(reference_gradient).

Shapes: K values of k, T tasks per outer step, K * T models: model k * T + t belongs to task t.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

import torch
from torch import Tensor
from torch.optim.adam import adam

from faze.base.errors import UserError
from faze.base.progress import Progress
from faze.config.parameters import Fewshot
from faze.fewshot.kernel import Kernel, kernel_for, single_threaded_operations
from faze.fewshot.mlp import InitialNetworks, ModelSamples, SampleSets, Weights, map_weights
from faze.fewshot.person_codes import TaskDraws


class Adam:
    """Adam with the default settings of torch.optim.Adam, and with bit-identical results.

    The constructors of torch.optim import torch._dynamo, which takes a third of the time of a short meta-training run.
    """

    def __init__(self, parameters: Iterable[Tensor], lr: float) -> None:
        """Store the tensors, of any shape, that each step updates in place."""
        self._parameters, self._lr = list(parameters), lr
        self._state = {
            "exp_avgs": [torch.zeros_like(parameter) for parameter in self._parameters],
            "exp_avg_sqs": [torch.zeros_like(parameter) for parameter in self._parameters],
            "state_steps": [torch.zeros(()) for _ in self._parameters],
        }

    def step(self, gradients: Sequence[Tensor]) -> None:
        """Update the parameters; each gradient has the shape of its parameter."""
        rates = {"lr": self._lr, "beta1": 0.9, "beta2": 0.999, "eps": 1e-8, "weight_decay": 0.0}
        unused = {"max_exp_avg_sqs": [], "amsgrad": False, "maximize": False}
        adam(self._parameters, list(gradients), **self._state, **rates, **unused, foreach=False)


Rule = Literal["maml", "fomaml", "reference"]


class Tasks(NamedTuple):
    """The samples of an outer step's tasks."""

    support: ModelSamples  # of K * T models
    query: ModelSamples  # of K * T models


# For each k: the gradient by the weights (K, ...), and the query loss after the inner step in degrees (K,).
# The loss is the mean over tasks; for `reference`, that of the last task.
OuterGradient = tuple[Weights, Tensor]


def outer_gradient(
    kernel: Kernel, weights: Weights, rate: float, tasks: Tasks, *, second_order: bool = True
) -> OuterGradient:
    """Compute the gradient of the query loss after the inner step, averaged over tasks.

    Args:
        kernel: computes the loss and its derivatives.
        weights: weights of K models.
        rate: learning rate of the inner step, per degree.
        tasks: T tasks for each of K models.
        second_order: whether to differentiate the inner gradient with respect to the weights.
    """
    num_k = len(weights.hidden_bias)
    num_tasks = len(tasks.support.row) // num_k
    before = _for_each_task(weights, num_tasks)
    by_support, _ = kernel.gradient(before, tasks.support)
    adapted = map_weights(lambda w, g: w - rate * g, before, by_support)
    by_weights, loss = kernel.gradient(adapted, tasks.query)
    if second_order:
        turned = kernel.hessian_product(before, tasks.support, map_weights(lambda v: rate * v, by_weights))
        by_weights = map_weights(torch.sub, by_weights, turned)

    def mean(parameter: Tensor) -> Tensor:
        return parameter.unflatten(0, (num_k, num_tasks)).mean(1)

    return map_weights(mean, by_weights), mean(loss)


def reference_gradient(kernel: Kernel, weights: Weights, rate: float, tasks: Tasks) -> OuterGradient:
    """Compute the gradient of the released code: a sum over all tasks, with the query of the last task only.

    With g and H the gradient and Hessian of each task's support loss at the weights, and q the last task's query loss:
    sum of g + (1 - inner_lr * sum of H) * gradient of q at (weights - inner_lr * sum of g).

    Args:
        kernel: computes the loss and its derivatives.
        weights: weights of K models.
        rate: learning rate of the inner step, per degree.
        tasks: T tasks for each of K models; only the query of the last task is used.
    """
    num_k = len(weights.hidden_bias)
    num_tasks = len(tasks.support.row) // num_k

    def total(parameter: Tensor) -> Tensor:
        return parameter.unflatten(0, (num_k, num_tasks)).sum(1)

    by_support = map_weights(total, kernel.gradient(_for_each_task(weights, num_tasks), tasks.support)[0])
    adapted = map_weights(lambda w, g: w - rate * g, weights, by_support)
    by_query, loss = kernel.gradient(adapted, tasks.query.of_models(slice(num_tasks - 1, None, num_tasks)))
    along = _for_each_task(map_weights(lambda v: rate * v, by_query), num_tasks)
    turned = map_weights(total, kernel.hessian_product(_for_each_task(weights, num_tasks), tasks.support, along))
    return map_weights(lambda g, v, hv: g + v - hv, by_support, by_query, turned), loss


def _for_each_task(weights: Weights, num_tasks: int) -> Weights:
    """Repeat the network of each k for each of its tasks: (K, ...) -> (K * T, ...)."""
    return map_weights(lambda parameter: parameter.repeat_interleave(num_tasks, dim=0), weights)


@dataclass
class OuterState:
    """The state of the outer loop, for all k at once."""

    weights: Weights
    best: Weights  # of each k, those with the lowest recorded val error; without val people, the last ones
    best_steps: list[int]  # outer step of the best weights of each k
    # Records {"step", "train_deg", "val_deg"}, errors in degrees for each k: the query loss after the inner step, mean
    # over the outer steps since the previous record; after adaptation, mean over val people, or None.
    history: list[dict[str, object]] = field(default_factory=list)

    @classmethod
    def first(cls, weights: Weights) -> "OuterState":
        """Return the state before the first step."""
        return cls(map_weights(torch.clone, weights), weights, [0] * len(weights.hidden_bias))

    def record(self, step: int, train_deg: list[float], val_deg: list[float] | None) -> None:
        """Record the errors of a step; for each k, store the weights if no earlier record had a lower val error."""
        before = [old["val_deg"] for old in self.history if old["val_deg"] is not None]
        self.history.append({"step": step, "train_deg": train_deg, "val_deg": val_deg})
        better = [val_deg is None or all(val[k] > val_deg[k] for val in before) for k in range(len(self.best_steps))]
        chosen = torch.tensor(better).view(-1, 1, 1)
        self.best = map_weights(lambda new, old: torch.where(chosen, new, old), self.weights, self.best)
        self.best_steps = [step if new else old for new, old in zip(better, self.best_steps, strict=True)]


def meta_train(
    rule: Rule,
    initial: InitialNetworks,
    draw: TaskDraws,
    settings: Fewshot,
    validate: Callable[[Weights], list[float] | None],
) -> OuterState:
    """Train the initial weights of all k in one loop; each k has its own model and Adam state.

    Args:
        rule: determines the outer gradient.
        initial: K networks, one for each of settings.shots.
        draw: returns the support and query of T tasks.
        settings: learning rates and step counts.
        validate: maps weights to errors on val people.

    Returns:
        The state after the last step, with a record for every settings.validate_every_steps steps.

    Raises:
        UserError: the loss is no longer finite.
    """
    state = OuterState.first(initial.weights)
    optimizer = Adam(state.weights, settings.outer_lr)  # elementwise, so stacked models do not mix
    progress = Progress(f"meta_train {rule}", settings.outer_steps, "steps")
    kernel, recent = kernel_for(state.weights, initial.activation), []
    with single_threaded_operations(), torch.no_grad():
        for step in range(1, settings.outer_steps + 1):
            tasks = _models(draw(), settings)
            if rule == "reference":
                gradient, loss = reference_gradient(kernel, state.weights, settings.inner_lr, tasks)
            else:
                second_order = rule == "maml"
                gradient, loss = outer_gradient(
                    kernel, state.weights, settings.inner_lr, tasks, second_order=second_order
                )
            optimizer.step(gradient)
            recent.append(loss)
            if step % settings.validate_every_steps == 0 or step == settings.outer_steps:
                state.record(step, _finite_mean(recent, step), validate(state.weights))
                recent.clear()
            progress(step)
    return state


def _models(drawn: tuple[SampleSets, SampleSets], settings: Fewshot) -> Tasks:
    """Distribute the drawn tasks to K * T models: each k uses the first k samples of the support set."""
    support, query = drawn
    row = torch.arange(settings.tasks).repeat(len(settings.shots))
    count = torch.tensor(settings.shots).repeat_interleave(settings.tasks)
    return Tasks(support.for_models(row, count), query.for_models(row, settings.meta_query))


def _finite_mean(losses: Sequence[Tensor], step: int) -> list[float]:
    mean = torch.stack(list(losses)).mean(0)
    if not mean.isfinite().all():
        raise UserError(f"meta-training diverged before outer step {step}: lower fewshot.outer_lr or fewshot.inner_lr")
    return mean.tolist()
