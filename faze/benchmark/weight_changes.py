"""How a few steps move the weights, and how much of that is rounding.

Losses stay close to each other even if no weight moves. Therefore, the changes in the weights are compared for each
part of the network. The distance from the baseline's change, relative to the length of that change, is 1 if nothing
moves.
"""

import copy
import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from faze.benchmark.roofline import synchronize
from faze.config.parameters import Engine
from faze.engine.step import Step
from faze.training.loop import Training

# The share of a weight by which each number format rounds it.
ROUNDING = {"float64": 2.0**-53, "fp32": 2.0**-24, "tf32": 2.0**-11, "fp16": 2.0**-11, "bf16": 2.0**-8}
# Ratio of tolerance to noise. Noise is the baseline against itself: run twice, or from first weights that are
# nudged by one rounding. On a CPU, switches that reorder sums differ by 0.3 to 1.3 times the noise, fp16 and bf16 by
# 1.0 to 2.7 times; cuDNN's algorithms may round coarser.
FACTOR = 10.0
MOST = 0.7  # of the tolerance, whatever the noise; bf16 has been seen 0.44 away in the small training's encoder
SMALL = 0.01  # share of the whole change below which a part's is too short for a distance of its own
LOSS_SCALE = 64.0  # the default, 65536, overflows fp16 here, and the first steps would be skipped


@dataclass(frozen=True)
class Moved:
    """The result of a few steps."""

    weights: dict[str, Tensor]  # by part of the network, the change of all its weights; float64, on the host
    gradient: float  # length of the last step's with weight decay; not a number without momentum
    terms: dict[str, float]  # of the last step, those that count
    seconds: float  # of a step


def number_format_of(engine: Engine) -> str:
    """Return the number format of an engine, a key of ROUNDING."""
    return "tf32" if engine.precision == "fp32" and engine.tf32 else engine.precision


def take_steps(
    training: Training,
    batches: Sequence[Mapping[str, Tensor]],
    seen: Sequence[int],
    *,
    nudge: tuple[float, int] = (0.0, 0),
) -> Moved:
    """Settle the step, restore its initial state, and train on the batches.

    Args:
        training: the training as built; the graph of its step, if any, is captured before anything is compared.
        batches: the first one also settles the step.
        seen: position of each batch in the training, in samples; the weights of the loss terms depend on it.
        nudge: largest change of an initial weight, as a share of the weight; and the seed, where 0 means no change.
    """
    step, world = training.step, training.world
    names, parameters = zip(*training.module.named_parameters(), strict=True)
    _nudge(parameters, *nudge)
    tensors = [*parameters, *training.module.buffers()]
    first = [tensor.detach().clone() for tensor in tensors]
    states = copy.deepcopy([update.optimizer.state_dict() for update in step.updates])

    def take(number: int) -> Mapping[str, Tensor]:
        step.set_learning_rates(training.rates(seen[number]))
        return step(batches[number], training.weights(seen[number]))

    set_scale(step)
    for _ in range(step.settling_steps + 1):
        take(0)
    _put_back(step, tensors, first, states)
    synchronize(world.device)
    began = time.perf_counter()
    for number in range(len(batches) - 1):
        take(number)
    before = _momentum(step, parameters)
    terms = take(len(batches) - 1)
    synchronize(world.device)
    seconds = (time.perf_counter() - began) / len(batches)
    gradient = _momentum(step, parameters) - step.groups[0].get("momentum", 0.0) * before
    weights: dict[str, list[Tensor]] = {}
    for name, new, old in zip(names, parameters, first, strict=False):  # buffers follow
        part = name.split(".")[0]
        part = part.rstrip("0123456789") or part  # of DT-ED: encoder, fc_enc, gaze, fc_dec, decoder
        weights.setdefault(part, []).append((new.detach().double() - old.double()).flatten().cpu())
    means = {name: float(world.sum(term.clone()) / world.size) for name, term in terms.items()}
    return Moved({part: torch.cat(those) for part, those in weights.items()}, float(gradient.norm()), means, seconds)


def compare(found: Moved, wanted: Moved, noise: Sequence[Moved], number_format: str) -> dict:
    """Compare a result with the expected one and with rounding noise; add `failed` if it differs too much.

    Args:
        found: result of the engine under test.
        wanted: result of the reference.
        noise: results of the reference, repeated and nudged.
        number_format: number format of the engine under test, a key of ROUNDING.
    """
    gaps, _ = _distances(found, wanted)
    tolerances = {part: min(each, MOST) for part, each in tolerances_of(wanted, noise, number_format).items()}
    most = max(tolerances.values())
    one, other = (torch.cat([moved.weights[part] for part in gaps]) for moved in (found, wanted))
    lengths = float(one.norm()), float(other.norm())
    scalars = {name: _gap(found.terms[name], term) for name, term in wanted.terms.items()}
    scalars["length of the change"] = 2 * _gap(*lengths)  # which half of what rounding may turn it may shorten
    if math.isfinite(wanted.gradient):
        scalars["gradient"] = _gap(found.gradient, wanted.gradient)
    worst = max(gaps, key=lambda part: gaps[part] / tolerances[part])
    result = {
        "distance": gaps[worst],
        "tolerance": tolerances[worst],
        "part": worst,
        "cosine": float(one @ other) / (lengths[0] * lengths[1]) if all(lengths) else 0.0,
        "length": lengths[0] / lengths[1] if lengths[1] else 0.0,
        "scalars": scalars,
    }
    wrong = [f"weights of {part}" for part, gap in gaps.items() if not gap <= tolerances[part]]
    wrong += [name for name, gap in scalars.items() if not gap <= most]
    return result | ({"failed": f"differ by more than rounding: {', '.join(wrong)}"} if wrong else {})


def tolerances_of(wanted: Moved, noise: Sequence[Moved], number_format: str) -> dict[str, float]:
    """Return the distance that rounding may cause in each part of the network; above MOST, nothing can be detected.

    Args:
        wanted: result of the reference.
        noise: results of the reference, repeated and nudged.
        number_format: number format of the engine under test, a key of ROUNDING.
    """
    gaps, whole = zip(*(_distances(each, wanted) for each in noise), strict=True)
    least = max(ROUNDING[number_format], *whole)
    return {part: FACTOR * max(least, *(each[part] for each in gaps)) for part in wanted.weights}


def _distances(found: Moved, wanted: Moved) -> tuple[dict[str, float], float]:
    """Return the distance between two changes, relative to the expected one's length, by network part and in total."""
    lengths = {part: float(change.norm()) for part, change in wanted.weights.items()}
    gaps = {part: float((found.weights[part] - change).norm()) for part, change in wanted.weights.items()}
    whole = math.hypot(*lengths.values())
    if not whole or not math.isfinite(sum(gaps.values())):
        return dict.fromkeys(gaps, math.inf), math.inf
    by_part = {part: gap / max(lengths[part], SMALL * whole) for part, gap in gaps.items()}
    return by_part, math.hypot(*gaps.values()) / whole


def _gap(found: float, wanted: float) -> float:
    """Return the relative difference, or infinity if it is nan."""
    gap = abs(found - wanted) / max(abs(wanted), 1e-30)
    return gap if math.isfinite(gap) else math.inf


def _nudge(parameters: Sequence[Tensor], share: float, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    for parameter in parameters if share and seed else ():
        random = torch.rand(parameter.shape, generator=generator, dtype=parameter.dtype)
        with torch.no_grad():
            parameter.mul_((1 + share * (2 * random - 1)).to(parameter.device))


def set_scale(step: Step) -> None:
    """Set a loss scale that does not overflow here, if the step has one."""
    for scaler in step.scalers:
        if scaler.is_enabled():
            scaler.load_state_dict(scaler.state_dict() | {"scale": LOSS_SCALE, "_growth_tracker": 0})


def _put_back(step: Step, tensors: Sequence[Tensor], first: Sequence[Tensor], states: Sequence[dict]) -> None:
    """Reset weights, buffers, optimisers and loss scales, in place, so that captured graphs see the values."""
    with torch.no_grad():
        for tensor, value in zip(tensors, first, strict=True):
            tensor.copy_(value)
            if tensor.grad is not None:
                tensor.grad.zero_()
        for update, state in zip(step.updates, states, strict=True):
            entries = update.optimizer.state.values()
            if all(set(entry) <= {"momentum_buffer"} for entry in entries):
                for entry in entries:
                    entry["momentum_buffer"].zero_()
            else:  # of an optimiser that no graph takes in
                update.optimizer.load_state_dict(state)
    set_scale(step)


def _momentum(step: Step, parameters: Sequence[Tensor]) -> Tensor:
    """Return all momentum buffers as one vector; nan if an optimiser has none."""
    known = {p: entry for update in step.updates for p, entry in update.optimizer.state.items()}
    buffers = [known.get(p, {}).get("momentum_buffer") for p in parameters]
    if any(buffer is None for buffer in buffers):
        return torch.tensor([math.nan], dtype=torch.float64)
    return torch.cat([buffer.detach().double().flatten() for buffer in buffers])
