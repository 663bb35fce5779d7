"""Meta-training: the outer loop over tasks, for all k at once. Paper section 3.2.

MAML moves initial weights w so that one small step on a person's support reduces the loss on their query:

    outer loss(w) = mean over tasks of query loss(w - inner_lr * gradient of support loss(w)).

Its gradient is v - inner_lr * H v, where v is the query gradient after the step and H is the Hessian of the support
loss before it; for several steps, the chain rule applies. `maml` uses this gradient, `fomaml` omits H, `meta_sgd` also
trains a rate for each parameter, and `reference` uses the gradient of the released code (reference_gradient).

Shapes: K values of k, T tasks per outer step, K * T models: model k * T + t belongs to task t.
"""

import contextlib
import json
import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
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
from faze.model.torch_file import read_mapping, write_mapping


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

    def state_dict(self) -> Mapping[str, list[Tensor]]:
        """Return the state, apart from the parameters, on which the next steps depend."""
        return self._state

    def load_state_dict(self, state: Mapping[str, list[Tensor]]) -> None:
        """Restore a state."""
        self._state = dict(state)


Rule = Literal["maml", "fomaml", "meta_sgd", "reference"]


class Tasks(NamedTuple):
    """The samples of an outer step's tasks."""

    support: ModelSamples  # of K * T models
    query: ModelSamples  # of K * T models


class OuterGradient(NamedTuple):
    """The gradients of an outer step, for each k."""

    by_weights: Weights  # gradient (K, ...)
    by_rates: Weights  # gradient (K, ...); only meta_sgd uses it
    loss: Tensor  # (K,) query loss after the inner step, mean over tasks (`reference`: of the last), degrees


def outer_gradient(
    kernel: Kernel, weights: Weights, rates: Weights, tasks: Tasks, *, steps: int, second_order: bool = True
) -> OuterGradient:
    """Compute the gradient of the query loss after the inner steps, averaged over tasks.

    Args:
        kernel: computes the loss and its derivatives.
        weights: weights of K models.
        rates: learning rates of the inner SGD, for each parameter (K, ...), per degree.
        tasks: T tasks for each of K models.
        steps: number of inner SGD steps.
        second_order: whether to differentiate the inner gradients with respect to the weights.
    """
    num_k = len(weights.hidden_bias)
    num_tasks = len(tasks.support.row) // num_k
    rates = _for_each_task(rates, num_tasks)
    passed, gradients = [_for_each_task(weights, num_tasks)], []
    for _ in range(steps):
        gradients.append(kernel.gradient(passed[-1], tasks.support)[0])
        passed.append(map_weights(lambda w, rate, g: w - rate * g, passed[-1], rates, gradients[-1]))
    by_weights, loss = kernel.gradient(passed.pop(), tasks.query)
    by_rates = map_weights(torch.zeros_like, rates)
    for before, gradient in zip(reversed(passed), reversed(gradients), strict=True):
        by_rates = map_weights(lambda total, v, g: total - v * g, by_rates, by_weights, gradient)
        if second_order:
            turned = kernel.hessian_product(before, tasks.support, map_weights(torch.mul, rates, by_weights))
            by_weights = map_weights(torch.sub, by_weights, turned)

    def mean(parameter: Tensor) -> Tensor:
        return parameter.unflatten(0, (num_k, num_tasks)).mean(1)

    return OuterGradient(map_weights(mean, by_weights), map_weights(mean, by_rates), mean(loss))


def reference_gradient(kernel: Kernel, weights: Weights, rates: Weights, tasks: Tasks) -> OuterGradient:
    """Compute the gradient of the released code: a sum over all tasks, with the query of the last task only.

    With g and H the gradient and Hessian of each task's support loss at the weights, and q the last task's query loss:
    sum of g + (1 - inner_lr * sum of H) * gradient of q at (weights - inner_lr * sum of g).

    Args:
        kernel: computes the loss and its derivatives.
        weights: weights of K models.
        rates: learning rates of the inner step, (K, ...).
        tasks: T tasks for each of K models; only the query of the last task is used.
    """
    num_k = len(weights.hidden_bias)
    num_tasks = len(tasks.support.row) // num_k

    def total(parameter: Tensor) -> Tensor:
        return parameter.unflatten(0, (num_k, num_tasks)).sum(1)

    by_support = map_weights(total, kernel.gradient(_for_each_task(weights, num_tasks), tasks.support)[0])
    adapted = map_weights(lambda w, rate, g: w - rate * g, weights, rates, by_support)
    by_query, loss = kernel.gradient(adapted, tasks.query.of_models(slice(num_tasks - 1, None, num_tasks)))
    along = _for_each_task(map_weights(torch.mul, rates, by_query), num_tasks)
    turned = map_weights(total, kernel.hessian_product(_for_each_task(weights, num_tasks), tasks.support, along))
    return OuterGradient(
        map_weights(lambda g, v, hv: g + v - hv, by_support, by_query, turned),
        map_weights(torch.zeros_like, weights),
        loss,
    )


def _for_each_task(weights: Weights, num_tasks: int) -> Weights:
    return map_weights(
        lambda parameter: parameter.repeat_interleave(num_tasks, dim=0), weights
    )  # (K, ...) -> (K * T, ...)


@dataclass
class OuterState:
    """The state of the outer loop, for all k at once."""

    weights: Weights
    scales: Weights  # factor of the inner rate for each parameter; 1 except for meta_sgd
    best: Weights  # of each k, those with the lowest recorded val error; without val people, the last ones
    best_scales: Weights
    best_steps: list[int]  # outer step of the best weights of each k
    step: int = 0
    # Records {"step", "train_deg", "val_deg"}, errors in degrees for each k: the query loss after the inner step, mean
    # over the outer steps since the previous record; after adaptation, mean over val people, or None.
    history: list[dict[str, object]] = field(default_factory=list)

    @classmethod
    def first(cls, weights: Weights) -> "OuterState":
        """Return the state before the first step."""
        weights = map_weights(torch.clone, weights)
        ones = map_weights(torch.ones_like, weights)
        return cls(weights, ones, weights, ones, [0] * len(weights.hidden_bias))

    def record(self, train_deg: list[float], val_deg: list[float] | None) -> None:
        """Record the errors of this step; for each k, store the weights if no earlier record had a lower val error."""
        before = [old["val_deg"] for old in self.history if old["val_deg"] is not None]
        self.history.append({"step": self.step, "train_deg": train_deg, "val_deg": val_deg})
        better = [val_deg is None or all(val[k] > val_deg[k] for val in before) for k in range(len(self.best_steps))]

        def chosen(new: Tensor, old: Tensor) -> Tensor:
            return torch.where(torch.tensor(better).view(-1, 1, 1), new, old)

        self.best = map_weights(chosen, self.weights, self.best)
        self.best_scales = map_weights(chosen, self.scales, self.best_scales)
        self.best_steps = [self.step if new else old for new, old in zip(better, self.best_steps, strict=True)]


@dataclass(frozen=True)
class ResumeFile:
    """The file from which a killed meta-training run resumes with the same result."""

    path: Path | None = None  # the only file in its folder; None: no file
    identity: str = ""  # of configuration, code and codes: a file with another identity is not used

    def save(self, state: OuterState, optimizer: Adam, draw: TaskDraws) -> None:
        """Write the state atomically."""
        if self.path is None:
            return
        content = {
            "identity": self.identity,
            "state": {name: tuple(v) if isinstance(v, Weights) else v for name, v in vars(state).items()},
            "optimizer": optimizer.state_dict(),
            "draws": json.dumps(draw.rng.bit_generator.state),
        }
        write_mapping(self.path, content)

    def read(self) -> Mapping | None:
        """Read the state; return None if there is no file, or it is corrupt or belongs to another run."""
        if self.path is None:
            return None
        with contextlib.suppress(UserError):
            content = read_mapping(self.path)
            return content if content.get("identity") == self.identity else None

    def remove(self) -> None:
        """Remove the folder of the file at the end of training."""
        shutil.rmtree(self.path.parent, ignore_errors=True)


def meta_train(
    rule: Rule,
    initial: InitialNetworks,
    draw: TaskDraws,
    settings: Fewshot,
    validate: Callable[[Weights, Weights], list[float] | None],
    resume_file: ResumeFile,
) -> OuterState:
    """Train the initial weights of all k in one loop; each k has its own model and Adam state.

    Args:
        rule: determines the outer gradient.
        initial: K networks, one for each of settings.shots.
        draw: returns the support and query of T tasks.
        settings: learning rates and step counts.
        validate: maps weights and the scales of their rates to errors on val people.
        resume_file: written with every record.

    Returns:
        The state after the last step, with a record for every settings.validate_every_steps steps.

    Raises:
        UserError: the loss is no longer finite.
    """
    held = resume_file.read()
    state = OuterState.first(initial.weights)
    if held is not None:
        state = OuterState(**{n: Weights(*v) if isinstance(v, tuple) else v for n, v in held["state"].items()})
    learnt = [*state.weights, *(state.scales if rule == "meta_sgd" else ())]
    optimizer = Adam(learnt, settings.outer_lr)  # elementwise, so stacked models do not mix
    if held is not None:
        optimizer.load_state_dict(held["optimizer"])
        draw.rng.bit_generator.state = json.loads(held["draws"])
    progress = Progress(f"meta_train {rule}", settings.outer_steps, "steps", done=state.step)
    kernel, recent = kernel_for(state.weights, initial.activation), []
    with single_threaded_operations(), torch.no_grad():
        for step in range(state.step + 1, settings.outer_steps + 1):
            outer = _outer_gradient(rule, kernel, state, _models(draw(), settings), settings)
            by_scales = map_weights(lambda g: settings.inner_lr * g, outer.by_rates)
            optimizer.step([*outer.by_weights, *by_scales][: len(learnt)])
            recent.append(outer.loss)
            if step % settings.validate_every_steps == 0 or step == settings.outer_steps:
                state.step = step
                state.record(_finite_mean(recent, step), validate(state.weights, state.scales))
                recent.clear()
                resume_file.save(state, optimizer, draw)
            progress(step)
    return state


def _models(drawn: tuple[SampleSets, SampleSets], settings: Fewshot) -> Tasks:
    """Distribute the drawn tasks to K * T models: each k uses the first k samples of the support set."""
    support, query = drawn
    row = torch.arange(settings.tasks).repeat(len(settings.shots))
    count = torch.tensor(settings.shots).repeat_interleave(settings.tasks)
    return Tasks(support.for_models(row, count), query.for_models(row, settings.meta_query))


def _outer_gradient(rule: Rule, kernel: Kernel, state: OuterState, tasks: Tasks, settings: Fewshot) -> OuterGradient:
    """Compute the rule's gradient at the state's weights."""
    rates = map_weights(lambda scale: settings.inner_lr * scale, state.scales)
    if rule == "reference":
        if settings.inner_steps != 1:  # in a stage's own file, which need not list the learner
            raise UserError(f"fewshot.inner_steps {settings.inner_steps} must be 1 for the learner `reference`")
        return reference_gradient(kernel, state.weights, rates, tasks)
    return outer_gradient(
        kernel, state.weights, rates, tasks, steps=settings.inner_steps, second_order=rule != "fomaml"
    )


def _finite_mean(losses: Sequence[Tensor], step: int) -> list[float]:
    mean = torch.stack(list(losses)).mean(0)
    if not mean.isfinite().all():
        raise UserError(f"meta-training diverged before outer step {step}: lower fewshot.outer_lr or fewshot.inner_lr")
    return mean.tolist()
