"""The gradient that an outer step of meta-training follows, for all k at once. Paper section 3.2.

MAML moves initial weights w so that one small step on a person's support helps on their query:

    outer loss(w) = mean over tasks of query loss(w - inner_lr * gradient of support loss(w)).

Its gradient is v - inner_lr * H v, with v the query gradient after the step and H the Hessian of the support loss
before it; several steps chain. `maml` follows it; `fomaml` leaves H out; `meta_sgd` has a rate for each parameter and
learns these too; `reference` does what the released code does, see reference_gradient.

Shapes: K values of k, T tasks of an outer step, K * T models: model k * T + t is of task t.
"""

from typing import Literal, NamedTuple

import torch
from torch import Tensor

from faze.fewshot.kernel import Kernel
from faze.fewshot.mlp import ModelSamples, Weights, map_weights

Rule = Literal["maml", "fomaml", "meta_sgd", "reference"]


class Tasks(NamedTuple):
    """The samples of an outer step's tasks."""

    support: ModelSamples  # of K * T models
    query: ModelSamples  # of K * T models


class OuterGradient(NamedTuple):
    """What one outer step follows, for each k."""

    by_weights: Weights  # gradient (K, ...)
    by_rates: Weights  # gradient (K, ...); meant for meta_sgd alone
    loss: Tensor  # (K,) query loss after the inner step, mean over tasks (`reference`: of the last), degrees


def outer_gradient(
    kernel: Kernel, weights: Weights, rates: Weights, tasks: Tasks, *, steps: int, second_order: bool = True
) -> OuterGradient:
    """Compute the gradient of the query loss after the inner steps, mean over tasks.

    Args:
        kernel: of the loss.
        weights: of K models.
        rates: of the inner SGD, for each parameter (K, ...), per degree.
        tasks: T of each of K models.
        steps: of the inner SGD.
        second_order: False leaves out how the inner gradients change with the weights.
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
    """Compute what the released code applies: gradients of all tasks pile up, only the last task's query is used.

    With g and H of each task's support loss at the weights and q the last task's query loss:
    sum of g + (1 - inner_lr * sum of H) * gradient of q at (weights - inner_lr * sum of g).

    Args:
        kernel: of the loss.
        weights: of K models.
        rates: of the one inner step, (K, ...).
        tasks: T of each of K models; of the queries, the last task's are used.
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
