"""Meta-training: the outer loop over tasks, for all k at once. Paper section 3.2.

MAML moves initial weights w so that one small step on a person's support helps on their query:

    outer loss(w) = mean over tasks of query loss(w - inner_lr * gradient of support loss(w)).

Its gradient is v - inner_lr * H v, with v the query gradient after the step and H the Hessian of the support loss
before it; several steps chain. `maml` follows it; `fomaml` leaves H out; `meta_sgd` has a rate for each parameter and
learns these too; `reference` does what the released code does, see there.

Shapes: K values of k, T tasks of an outer step, K * T models: model k * T + t is of task t; s samples of the largest
support, q of a query.
"""

import json
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from faze.base.errors import UserError
from faze.base.files import whole_file
from faze.base.progress import Progress
from faze.config.parameters import Fewshot
from faze.fewshot.draws import TaskDraws
from faze.fewshot.kernel import Kernel, kernel_for, single_threaded_operations
from faze.fewshot.mlp import Activation, ModelSamples, Weights, each

Rule = Literal["maml", "fomaml", "meta_sgd", "reference"]


class OuterGradient(NamedTuple):
    """Of one outer step, for each k."""

    by_weights: Weights  # gradient (K, ...)
    by_rates: Weights  # gradient (K, ...); meant for meta_sgd alone
    loss: Tensor  # (K,) query loss after the inner step, mean over tasks (`reference`: of the last), degrees


def outer_gradient(
    kernel: Kernel,
    weights: Weights,
    rates: Weights,
    support: ModelSamples,
    query: ModelSamples,
    *,
    steps: int,
    second_order: bool = True,
) -> OuterGradient:
    """Gradient of the query loss after the inner steps, mean over tasks.

    Args:
        kernel: of the loss.
        weights: of K models.
        rates: of the inner SGD, for each parameter (K, ...), per degree.
        support: of K * T models.
        query: of K * T models.
        steps: of the inner SGD.
        second_order: False leaves out how the inner gradients change with the weights.
    """
    num_k = len(weights.hidden_bias)
    tasks = len(support.row) // num_k
    rates = _for_each_task(rates, tasks)
    passed, gradients = [_for_each_task(weights, tasks)], []
    for _ in range(steps):
        gradients.append(kernel.gradient(passed[-1], support)[0])
        passed.append(each(lambda w, rate, g: w - rate * g, passed[-1], rates, gradients[-1]))
    by_weights, loss = kernel.gradient(passed.pop(), query)
    by_rates = each(torch.zeros_like, rates)
    for before, gradient in zip(reversed(passed), reversed(gradients), strict=True):
        by_rates = each(lambda total, v, g: total - v * g, by_rates, by_weights, gradient)
        if second_order:
            turned = kernel.hessian_product(before, support, each(torch.mul, rates, by_weights))
            by_weights = each(torch.sub, by_weights, turned)

    def mean(parameter: Tensor) -> Tensor:
        return parameter.unflatten(0, (num_k, tasks)).mean(1)

    return OuterGradient(each(mean, by_weights), each(mean, by_rates), mean(loss))


def reference_gradient(
    kernel: Kernel, weights: Weights, rates: Weights, support: ModelSamples, query: ModelSamples
) -> OuterGradient:
    """What the released code applies: gradients of all tasks pile up, and only the last task's query is used.

    With g and H of each task's support loss at the weights and q the last task's query loss:
    sum of g + (1 - inner_lr * sum of H) * gradient of q at (weights - inner_lr * sum of g).

    Args:
        kernel: of the loss.
        weights: of K models.
        rates: of the one inner step, (K, ...).
        support: of K * T models.
        query: of K * T models, of which the last task's are used.
    """
    num_k = len(weights.hidden_bias)
    tasks = len(support.row) // num_k

    def total(parameter: Tensor) -> Tensor:
        return parameter.unflatten(0, (num_k, tasks)).sum(1)

    by_support = each(total, kernel.gradient(_for_each_task(weights, tasks), support)[0])
    adapted = each(lambda w, rate, g: w - rate * g, weights, rates, by_support)
    by_query, loss = kernel.gradient(adapted, query.some(slice(tasks - 1, None, tasks)))
    along = _for_each_task(each(torch.mul, rates, by_query), tasks)
    turned = each(total, kernel.hessian_product(_for_each_task(weights, tasks), support, along))
    return OuterGradient(
        each(lambda g, v, hv: g + v - hv, by_support, by_query, turned), each(torch.zeros_like, weights), loss
    )


def _for_each_task(weights: Weights, tasks: int) -> Weights:
    return each(lambda parameter: parameter.repeat_interleave(tasks, dim=0), weights)  # (K, ...) -> (K * T, ...)


@dataclass(frozen=True)
class Record:
    """Errors in degrees, one per k, at an outer step."""

    step: int
    train_deg: list[float]  # query loss after the inner step, mean over the outer steps since the last record
    val_deg: list[float] | None  # after adaptation as at test, mean over val people


@dataclass
class OuterState:
    """A meta-training in progress, for all k at once."""

    weights: Weights
    scales: Weights  # of the inner rate for each parameter; 1 but for meta_sgd
    best: Weights  # those of the record with the lowest val error of each k; without val people the last
    best_scales: Weights
    best_steps: list[int] = field(default_factory=list)  # outer step of each k's best
    step: int = 0
    history: list[Record] = field(default_factory=list)

    @classmethod
    def first(cls, weights: Weights) -> "OuterState":
        """Before any step."""
        weights = each(torch.clone, weights)
        ones = each(torch.ones_like, weights)
        return cls(weights, ones, weights, ones, [0] * len(weights.hidden_bias))

    def keep(self, record: Record) -> None:
        """Take a record in; of each k, keep these weights if no record before had a lower val error."""
        before = [old.val_deg for old in self.history]
        self.history.append(record)
        better = torch.tensor(
            [
                record.val_deg is None or all(val[k] > record.val_deg[k] for val in before if val is not None)
                for k in range(len(self.best_steps))
            ]
        )

        def chosen(new: Tensor, old: Tensor) -> Tensor:
            return torch.where(better.view(-1, 1, 1), new, old)

        self.best, self.best_scales = each(chosen, self.weights, self.best), each(chosen, self.scales, self.best_scales)
        self.best_steps = [
            record.step if new else old for new, old in zip(better.tolist(), self.best_steps, strict=True)
        ]


def meta_train(
    rule: Rule,
    weights: Weights,
    draw: TaskDraws,
    settings: Fewshot,
    validate: Callable[[Weights, Weights], list[float] | None],
    checkpoint: "ResumeFile",
    *,
    activation: Activation = "selu",
) -> OuterState:
    """Train the initial weights of all k in one loop; each k is a model and an Adam of its own.

    Args:
        rule: whose outer gradient is followed.
        weights: of K models, one per entry of settings.shots.
        draw: gives support and query of T tasks.
        settings: rates and steps.
        validate: from weights and the scales of their rates to the errors on people not trained on.
        checkpoint: where a killed training goes on; written with every record.
        activation: of the networks.

    Returns:
        The state after the last step, with a record of every settings.validate_every_steps.

    Raises:
        UserError: the loss is no longer finite.
    """
    state = OuterState.first(weights)
    learnt = [*state.weights, *(state.scales if rule == "meta_sgd" else ())]
    optimizer = torch.optim.Adam(learnt, lr=settings.outer_lr)  # elementwise: what is stacked does not mix
    checkpoint.restore(state, optimizer, draw)
    progress = Progress("meta_train", settings.outer_steps, "steps", done=state.step)
    kernel, recent = kernel_for(weights, activation), []
    of_support, of_query = _models(settings)
    with single_threaded_operations(), torch.no_grad():
        for step in range(state.step + 1, settings.outer_steps + 1):
            batches = draw()
            support, query = (batch.of(*of) for batch, of in zip(batches, (of_support, of_query), strict=True))
            rates = each(lambda scale: settings.inner_lr * scale, state.scales)
            if rule == "reference":
                outer = reference_gradient(kernel, state.weights, rates, support, query)
            else:
                outer = outer_gradient(
                    kernel,
                    state.weights,
                    rates,
                    support,
                    query,
                    steps=settings.inner_steps,
                    second_order=rule != "fomaml",
                )
            by_scales = each(lambda g: settings.inner_lr * g, outer.by_rates)
            for parameter, gradient in zip(learnt, [*outer.by_weights, *by_scales], strict=False):
                parameter.grad = gradient
            optimizer.step()
            recent.append(outer.loss)
            if step % settings.validate_every_steps == 0 or step == settings.outer_steps:
                state.step = step
                state.keep(Record(step, _finite_mean(recent, step), validate(state.weights, state.scales)))
                recent.clear()
                checkpoint.save(state, optimizer, draw)
            progress(step)
    return state


def _models(settings: Fewshot) -> tuple[tuple[Tensor, Tensor], tuple[Tensor, int]]:
    """Row and count, in support and query, of each of K * T models."""
    row = torch.arange(settings.tasks).repeat(len(settings.shots))
    return (row, torch.tensor(settings.shots).repeat_interleave(settings.tasks)), (row, settings.meta_query)


def _finite_mean(losses: Sequence[Tensor], step: int) -> list[float]:
    mean = torch.stack(list(losses)).mean(0)
    if not mean.isfinite().all():
        raise UserError(f"meta-training diverged before outer step {step}: lower fewshot.outer_lr or fewshot.inner_lr")
    return mean.tolist()


@dataclass(frozen=True)
class ResumeFile:
    """The file from which a killed meta-training goes on, as if it had not been killed."""

    path: Path | None = None  # alone in its folder; None: none is kept
    identity: str = ""  # of configuration, code and codes: another training's file is not continued

    def save(self, state: OuterState, optimizer: torch.optim.Optimizer, draw: TaskDraws) -> None:
        """Write all of it, whole or not at all."""
        if self.path is None:
            return
        content = {
            "identity": self.identity,
            "tensors": {name: tuple(getattr(state, name)) for name in _TENSORS},
            "step": state.step,
            "best_steps": state.best_steps,
            "history": [asdict(record) for record in state.history],
            "optimizer": optimizer.state_dict(),
            "draws": json.dumps(draw.state),
        }
        with whole_file(self.path) as temporary:
            torch.save(content, temporary)

    def restore(self, state: OuterState, optimizer: torch.optim.Optimizer, draw: TaskDraws) -> None:
        """Go on from the file, if there is one of this very training."""
        content = self._read()
        if content is None:
            return
        with torch.no_grad():
            for now, then in zip([*state.weights, *state.scales], _learnt(content["tensors"]), strict=True):
                now.copy_(then)  # in place: the optimiser holds them
        state.best, state.best_scales = (Weights(*content["tensors"][name]) for name in ("best", "best_scales"))
        state.step, state.best_steps = content["step"], content["best_steps"]
        state.history = [Record(**record) for record in content["history"]]
        optimizer.load_state_dict(content["optimizer"])
        draw.state = json.loads(content["draws"])

    def remove(self) -> None:
        """Remove its folder: the training is over."""
        if self.path is not None:
            shutil.rmtree(self.path.parent, ignore_errors=True)

    def _read(self) -> Mapping | None:
        if self.path is None or not self.path.exists():
            return None
        try:
            content = torch.load(self.path, weights_only=True)
        except Exception:  # torn bytes make the unpickler raise whatever they happen to lead it to
            return None
        return content if isinstance(content, Mapping) and content.get("identity") == self.identity else None


_TENSORS = ("weights", "scales", "best", "best_scales")


def _learnt(tensors: Mapping[str, Sequence[Tensor]]) -> list[Tensor]:
    return [*tensors["weights"], *tensors["scales"]]
