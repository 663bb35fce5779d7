"""The released few-shot procedure, rewritten from its description (FACTS F): one network, task by task, autograd.

It does not batch over tasks, people, repeats or k, and uses nothing from faze.fewshot. It is fastest with one thread.
"""

import copy
import random
from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

CLIP = 1e-6


class Samples(NamedTuple):
    """A person's samples: codes (n, 6), and gaze as unit vectors (n, 3)."""

    code: Tensor
    gaze: Tensor

    def take(self, entries: Sequence[int]) -> "Samples":
        """Return the samples at the given indices."""
        index = torch.tensor(entries)
        return Samples(self.code[index], self.gaze[index])


class GazeNetwork(nn.Module):
    """A gaze network: 6 -> 64 (SELU) -> 3, with normalised output."""

    def __init__(self, inputs: int = 6, hidden: int = 64) -> None:
        super().__init__()
        self.layer1, self.layer2 = nn.Linear(inputs, hidden), nn.Linear(hidden, 3)

    def forward(self, code: Tensor) -> Tensor:
        """Map (n, 6) to (n, 3) unit vectors."""
        return F.normalize(self.layer2(F.selu(self.layer1(code))), dim=-1)


def mean_angle_deg(gaze_hat: Tensor, gaze: Tensor) -> Tensor:
    cosine = F.cosine_similarity(gaze_hat, gaze, dim=-1).clamp(CLIP - 1, 1 - CLIP)
    return torch.acos(cosine).rad2deg().mean()


def exact_mean_angle_deg(gaze_hat: Tensor, gaze: Tensor) -> Tensor:
    """Compute the mean angle without clipping, for fairness: clipped angles below 0.081 degrees have no gradient."""
    sine = torch.linalg.vector_norm(torch.linalg.cross(gaze_hat, gaze), dim=-1)
    return torch.atan2(sine, (gaze_hat * gaze).sum(-1)).rad2deg().mean()


def adapt(
    network: GazeNetwork,
    support: Samples,
    query: Samples,
    *,
    steps: int,
    lr: float,
    every: int,
    loss: Callable[[Tensor, Tensor], Tensor] = mean_angle_deg,
) -> tuple[GazeNetwork, list[float]]:
    """Fine-tune a copy on the support; return it and the query's mean angles before, every `every` steps, and after."""
    network, errors = copy.deepcopy(network), []
    optimizer = torch.optim.SGD(network.parameters(), lr=lr)
    for step in range(steps + 1):
        if step % every == 0 or step == steps:
            with torch.no_grad():
                errors.append(loss(network(query.code), query.gaze).item())
        if step < steps:
            optimizer.zero_grad()
            loss(network(support.code), support.gaze).backward()
            optimizer.step()
    return network, errors


def meta_train(
    network: GazeNetwork,
    train: Sequence[Samples],
    val: Sequence[Samples],
    *,
    k: int,
    steps: int,
    tasks: int = 5,
    query: int = 100,
    inner_lr: float = 1e-5,
    outer_lr: float = 1e-3,
    validate_every: int = 100,
) -> None:
    """Train the network for `steps` outer steps of the released MAML.

    Gradients on the tasks' supports accumulate in the shared weights. The inner step of the last task uses all of them,
    and only the last task's query loss is backpropagated, through that inner step. Every `validate_every` steps, val
    people are measured on a query set after one inner step.
    """
    optimizer = torch.optim.Adam(network.parameters(), lr=outer_lr)
    parameters = dict(network.named_parameters())
    for step in range(1, steps + 1):
        optimizer.zero_grad()
        total = [torch.zeros_like(p) for p in parameters.values()]
        for person in random.sample(range(len(train)), tasks):
            of_support, of_query = _draw(train[person], k, query)
            loss = mean_angle_deg(network(of_support.code), of_support.gaze)
            gradients = torch.autograd.grad(loss, list(parameters.values()), create_graph=True)
            total = [t + g for t, g in zip(total, gradients, strict=True)]
            adapted = {name: p - inner_lr * t for (name, p), t in zip(parameters.items(), total, strict=True)}
        loss = mean_angle_deg(torch.func.functional_call(network, adapted, of_query.code), of_query.gaze)
        by_query = torch.autograd.grad(loss, list(parameters.values()))
        for parameter, piled, last in zip(parameters.values(), total, by_query, strict=True):
            parameter.grad = piled.detach() + last
        optimizer.step()
        if step % validate_every == 0:
            for person in val:
                of_support, of_query = _draw(person, k, query)
                adapt(network, of_support, of_query, steps=1, lr=inner_lr, every=1)


def _draw(person: Samples, k: int, query: int) -> tuple[Samples, Samples]:
    entries = random.sample(range(len(person.code)), k + query)
    return person.take(entries[:k]), person.take(entries[k:])
