"""Learners that fine-tune a gaze network with gradient steps, from meta-trained weights or from the trained gaze head.

Paper section 3.2. MAML adjusts initial weights w so that one small step on a person's support reduces the query loss:

    outer loss(w) = mean over tasks of query loss(w - inner_lr * gradient of support loss(w)).

For each task, the outer gradient is v - inner_lr * H v, where v is the gradient of the query loss after the step and H
is the Hessian of the support loss before the step. `maml` uses this outer gradient, `fomaml` omits H, and `reference`
uses the gradient of the released code.

Shapes: K values of k; T tasks per outer step; S parameters. Network i * T + t uses the i-th value of k and task t.
"""

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from faze.base.errors import UserError
from faze.base.progress import Progress
from faze.config.parameters import Fewshot
from faze.fewshot import mlp
from faze.fewshot.interface import Errors, Learned, Learner, MetaTraining
from faze.fewshot.mlp import Activation, Samples
from faze.fewshot.person_codes import Calibration, PersonCodes, Seen, draw_calibrations


class FineTuned(Learner):
    """A learner that fine-tunes a network on k samples: the trained gaze head (`none`), or a network trained for k."""

    def __init__(self, rule: str) -> None:
        self.name, self.learns_from_tasks = rule, rule != "none"

    def initial(self, training: MetaTraining) -> Learned:
        """Return the untrained learner, with the same network for every k: either random or the trained gaze head."""
        settings = training.settings
        if self.learns_from_tasks and settings.init == "random":
            inputs, activation = training.train[0].code.shape[1], "selu"
            network = mlp.random_network(inputs, settings.hidden, training.seed)
        else:
            network, activation = mlp.gaze_head_network(training.gaze_head), "relu"
        state = {name: part.repeat(len(settings.shots), 1, 1) for name, part in network.items()}
        return training.learned(self.name, state, activation=activation)

    def fit(self, person: PersonCodes, support: NDArray[np.int64], learned: Learned) -> dict[str, Tensor]:
        """Fine-tune the network for k = len(support); raise a UserError if the adaptation diverges."""
        steps, rate = learned.settings["adapt_steps"], learned.settings["adapt_lr"]
        _, adapted = fine_tune(learned, [Calibration(person, 0, support)], steps, rate)
        if not adapted.isfinite().all():
            raise UserError(f"adaptation of {person} diverged: lower fewshot.adapt_lr and run meta_train again")
        network = {name: part[0].squeeze(0) for name, part in mlp.unpack(adapted.cpu(), person.code.shape[1]).items()}
        return network | {"is_relu": torch.tensor(learned.activation == "relu")}

    def estimate(self, correction: Mapping[str, Tensor], seen: Seen) -> NDArray[np.float64]:
        """Estimate gaze directions with the adapted network."""
        network = mlp.pack({name: correction[name][None] for name in mlp.PARTS})
        activation = "relu" if correction["is_relu"] else "selu"
        vector = mlp.gaze_vector(network, torch.from_numpy(seen.code)[None], activation)[0].double().numpy()
        return vector / np.linalg.norm(vector, axis=-1, keepdims=True)

    def errors(
        self, learned: Learned, calibrations: Sequence[Calibration], settings: Fewshot, threads: int = 1
    ) -> Errors:
        """Measure errors as Learner.errors does; raise a UserError if an adaptation diverges."""
        size, last = mlp.NETWORKS_PER_CALL, np.arange(-settings.query_entries, 0)

        def measure(first: int) -> Tensor:
            some = calibrations[first : first + size]
            query = samples_of([(calibration.person, last) for calibration in some])
            both = fine_tune(learned, some, settings.adapt_steps, settings.adapt_lr)
            return torch.stack([mlp.mean_angle_deg(networks, query, learned.activation) for networks in both], dim=1)

        errors_deg, progress = [], Progress(f"adapt {self.name}", len(calibrations), "calibrations")
        # Without this setting, which is per thread, each matrix product would start a team of spinning threads.
        with ThreadPoolExecutor(threads, initializer=torch.set_num_threads, initargs=(1,)) as pool:
            for found in pool.map(measure, range(0, len(calibrations), size)):
                errors_deg += found.double().tolist()
                progress(len(errors_deg))
        start_deg, adapted_deg = np.array(errors_deg).T
        if not np.isfinite(adapted_deg).all():
            lost = calibrations[np.argmin(np.isfinite(adapted_deg))]
            raise UserError(
                f"adaptation of {lost.person} with k = {len(lost.support)} diverged: lower fewshot.adapt_lr"
            )
        return Errors(adapted_deg, start_deg)

    def meta_train(self, training: MetaTraining) -> Learned:
        """Train a network for each k; keep the weights that are best on val people or, without val people, the last."""
        settings, val, learned = training.settings, training.val, self.initial(training)
        if not self.learns_from_tasks:
            return learned
        networks, inputs = mlp.pack(learned.state).to(mlp.DEVICE), learned.state["hidden_weight"].shape[1]
        validation = draw_calibrations(val, settings, repeats=1)
        losses, recorded, history = [], [], []
        for step, loss in enumerate(self.outer_steps(networks, learned.activation, training), 1):
            losses.append(loss)
            if step % settings.validate_every_steps and step != settings.outer_steps:
                continue
            train_deg, val_deg = torch.stack(losses).mean(0), None
            if not train_deg.isfinite().all():
                raise UserError(f"meta-training diverged before outer step {step}: lower fewshot.outer_lr or inner_lr")
            if val:
                current = dataclasses.replace(learned, state=mlp.unpack(networks, inputs))
                errors = self.errors(current, validation, settings, training.threads)
                val_deg = errors.adapted_deg.reshape(-1, len(val)).mean(axis=1).tolist()
            recorded.append(networks.clone())
            history.append({"step": step, "train_deg": train_deg.tolist(), "val_deg": val_deg})
            losses.clear()
        best = np.argmin([record["val_deg"] for record in history], axis=0) if val else [-1] * len(networks)
        kept = torch.stack([recorded[number][k] for k, number in enumerate(best)])
        steps = [history[number]["step"] for number in best]
        return dataclasses.replace(learned, state=mlp.unpack(kept.cpu(), inputs), history=history, outer_steps=steps)

    def outer_steps(self, networks: Tensor, activation: Activation, training: MetaTraining) -> Iterator[Tensor]:
        """Update the networks (K, S) in place with outer steps on train people's tasks; yield each step's loss (K,)."""
        settings, rng = training.settings, np.random.default_rng(training.seed)
        progress = Progress(f"meta_train {self.name}", settings.outer_steps, "steps")
        mean, square = torch.zeros_like(networks), torch.zeros_like(networks)
        for step in range(1, settings.outer_steps + 1):
            tasks = draw_tasks(training.train, settings, rng)
            slope, loss = outer_gradient(self.name, networks, activation, settings.inner_lr, *tasks)
            # Adam with torch's default settings; constructing torch.optim.Adam takes longer than a short meta-training.
            mean.lerp_(slope, 1 - 0.9)
            square.lerp_(slope.square(), 1 - 0.999)
            networks -= settings.outer_lr * mean / (1 - 0.9**step) / ((square / (1 - 0.999**step)).sqrt() + 1e-8)
            yield loss
            progress(step)


def fine_tune(learned: Learned, calibrations: Sequence[Calibration], steps: int, rate: float) -> tuple[Tensor, Tensor]:
    """Fine-tune a network on each of M calibrations (the one for its k); return networks (M, S) before and after."""
    own = [learned.shots.index(len(calibration.support)) for calibration in calibrations]
    support = samples_of([(calibration.person, calibration.support) for calibration in calibrations])
    before = mlp.pack(learned.state)[own].to(mlp.DEVICE)
    return before, mlp.sgd(before, support, learned.activation, steps, rate)


def outer_gradient(
    rule: str, networks: Tensor, activation: Activation, inner_lr: float, support: Samples, query: Samples
) -> tuple[Tensor, Tensor]:
    """Return the gradient (K, S) and the value (K,) of the query loss after the inner step, averaged over tasks.

    The arguments are the networks w (K, S), the inner learning rate per degree, and the samples of K * T networks.
    `reference` sums over tasks and uses only the last task's query. Let g and H be the gradient and the Hessian of
    each task's support loss at w, and let q be the last task's query loss. The gradient for `reference` is
    sum of g + (1 - inner_lr * sum of H) * gradient of q at (w - inner_lr * sum of g).
    """
    num_tasks = len(support.code) // len(networks)
    repeated = networks.repeat_interleave(num_tasks, dim=0)
    by_support, _ = mlp.gradient(repeated, support, activation)
    if rule != "reference":
        by_query, loss = mlp.gradient(repeated - inner_lr * by_support, query, activation)
        if rule == "maml":
            by_query -= mlp.gradient(repeated, support, activation, inner_lr * by_query)[0]
        return by_query.unflatten(0, (-1, num_tasks)).mean(1), loss.unflatten(0, (-1, num_tasks)).mean(1)
    total = by_support.unflatten(0, (-1, num_tasks)).sum(1)
    last = Samples(*(part[num_tasks - 1 :: num_tasks].contiguous() for part in query))
    by_query, loss = mlp.gradient(networks - inner_lr * total, last, activation)
    direction = (inner_lr * by_query).repeat_interleave(num_tasks, dim=0)
    turned, _ = mlp.gradient(repeated, support, activation, direction)
    return total + by_query - turned.unflatten(0, (-1, num_tasks)).sum(1), loss


def draw_tasks(people: Sequence[PersonCodes], settings: Fewshot, rng: np.random.Generator) -> tuple[Samples, Samples]:
    """Draw settings.tasks people and, for each person and every k, disjoint support and query samples.

    All k share the same tasks: the support for a smaller k is the beginning of the support for a larger k.
    """
    chosen, size = rng.permutation(len(people))[: settings.tasks], settings.meta_query
    tasks = [(people[i], rng.permutation(len(people[i].code))[: size + max(settings.shots)]) for i in chosen]
    support = [(person, entries[size : size + k]) for k in settings.shots for person, entries in tasks]
    query = [(person, entries[:size]) for person, entries in tasks] * len(settings.shots)
    return samples_of(support), samples_of(query)


def samples_of(chosen: Sequence[tuple[PersonCodes, NDArray[np.int64]]]) -> Samples:
    """Copy each network's samples (a person's entries) to the device, padded to the largest number of samples."""
    count = np.array([len(entries) for _, entries in chosen])
    code = np.zeros((len(count), count.max(), chosen[0][0].code.shape[1]), np.float32)
    gaze = np.zeros((*code.shape[:2], 3), np.float32)
    for m, (person, entries) in enumerate(chosen):
        code[m, : len(entries)], gaze[m, : len(entries)] = person.code[entries], person.gaze[entries]
    return Samples(*(torch.from_numpy(array).to(mlp.DEVICE) for array in (code, gaze, count)))
