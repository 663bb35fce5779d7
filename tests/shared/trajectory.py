"""A small training run that every tier repeats; it returns the loss of each step."""

import dataclasses
import os
import tempfile
from types import SimpleNamespace

import numpy as np
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from numpy.typing import NDArray
from torch import Tensor

from faze.benchmark.proof import Change, change_since
from faze.config.parameters import Augment, Engine, Loss
from faze.config.stage_config import resolve_tier
from faze.config.validation import read_config
from faze.data.pairs import People
from faze.data.strips import StoredPerson
from faze.engine.parallel import World
from faze.engine.step import Step
from faze.model.dted import DTED
from faze.training.dted import DTEDTraining, decay, part_rates
from faze.training.train import Training, build

CONFIG = read_config()
CONFIG = CONFIG.model_copy(update={"run": CONFIG.run.model_copy(update={"tiers": CONFIG.auto_tiers["cuda"]})})
MODEL = CONFIG.model.model_copy(update={"growth": 4, "blocks": 4})
# Every embedding term, in chunks: two of them for each of two processes.
LOSS = CONFIG.loss.model_copy(
    update={
        **{"reconstruction_l1": 1.0, "chunk_pairs": 2, "ramp_pairs": 64},
        **{"triplet_angular": 0.5, "all_equal": 0.1, "gaze_mse": 0.3},
    }
)
TRAIN = CONFIG.train.model_copy(update={"global_batch": 8, "warmup_pairs": 64, "base_lr": 1e-4, "head_lr": 1e-3})

ALONE = World(0, 1, torch.device("cpu"))
STEPS = 8  # that a switch must follow the baseline in float64; the first five in float32


def people() -> People:
    """Create four people whose strips are noise, at the model's size."""
    random = np.random.default_rng(7)
    counts = [5, 9, 6, 8]
    pixels = [random.integers(0, 256, (n, 32, 128, 3), dtype=np.uint8) for n in counts]
    return made_up_people(pixels, [random.normal(0, 0.25, (n, 4)).astype(np.float32) for n in counts])


def made_up_people(pixels: list[NDArray], labels: list[NDArray]) -> People:
    """Create people in memory from the strips and labels of each."""
    persons = [StoredPerson(f"p{i}", "train", of_person) for i, of_person in enumerate(labels)]
    strips, all_labels = (torch.from_numpy(np.concatenate(arrays)) for arrays in (pixels, labels))
    return People(persons, all_labels, strips, pixels[0].shape[1:3])


def tier(name: str, **switches) -> Engine:
    """Return the switches of a tier, on the CPU."""
    return resolve_tier(CONFIG, name).model_copy(update={"device": "cpu", **switches})


def setup(engine: Engine, world: World = ALONE, *, loss: Loss = LOSS, seed: int = 3, **sections) -> Training:
    """Return the small training run, ready to start."""
    given = {"model": MODEL, "loss": loss, "train": TRAIN, "data": CONFIG.data, "preprocess": CONFIG.preprocess}
    given |= {"augment": Augment(flip=False, color_scale=0.0)}
    workload = DTEDTraining(SimpleNamespace(**given | sections), None)
    workload.people = workload.validation = people()
    return build(workload, engine, world, seed)


def learning_rates(pairs: int, step: Step) -> list[float]:
    """Return the learning rate of each group after so many pairs."""
    factor = decay(pairs, TRAIN.pairs, TRAIN.decay_share)
    return [part_rates(pairs, TRAIN)[name] * factor for name in step.group_names]


def bare_model(step: Step) -> DTED:
    """Return DT-ED without its objective and parallel wrapper."""
    return getattr(step.model, "module", step.model).model.dted


def weights_of(step: Step) -> dict[str, Tensor]:
    """Copy DT-ED's current weights to the host, in float64."""
    named = bare_model(step).named_parameters()
    return {name: weight.detach().to("cpu", torch.float64, copy=True) for name, weight in named}


def moved_since(first: dict[str, Tensor], step: Step) -> Change:
    """Return how the weights have moved since `weights_of`, by part of DT-ED."""
    return change_since(first, dict(bare_model(step).named_parameters()))


@dataclasses.dataclass(frozen=True)
class Trained:
    """The results of a training run."""

    losses: list[float]  # of each step over the global batch
    moved: Change


def losses(
    engine: Engine,
    *,
    steps: int,
    dtype: torch.dtype,
    processes: int = 1,
    loss_scale: float | None = None,
    loss: Loss = LOSS,
) -> list[float]:
    """Return the loss of each step over the global batch; loss_scale replaces the scaler's default of 65536."""
    if processes == 1:
        return trained(engine, ALONE, steps=steps, dtype=dtype, loss_scale=loss_scale, loss=loss).losses
    with tempfile.TemporaryDirectory() as folder:
        # Forked if possible: torch is loaded already, which takes longer than these steps. Torch for CUDA refuses it.
        method = "spawn" if torch.backends.cuda.is_built() else "fork"
        mp.start_processes(_process, (engine, steps, dtype, processes, folder, loss), processes, start_method=method)
        return np.load(f"{folder}/losses.npy").tolist()


def _process(
    rank: int, engine: Engine, steps: int, dtype: torch.dtype, processes: int, folder: str, loss: Loss
) -> None:
    torch.set_num_threads(1)
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    dist.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=processes)
    world = World(rank, processes, torch.device("cpu"))
    found = trained(engine, world, steps=steps, dtype=dtype, loss=loss).losses
    if rank == 0:
        np.save(f"{folder}/losses.npy", found)
    dist.destroy_process_group()


def trained(
    engine: Engine,
    world: World = ALONE,
    *,
    steps: int,
    dtype: torch.dtype,
    loss_scale: float | None = None,
    loss: Loss = LOSS,
) -> Trained:
    """Train in this process, perhaps one of several; return the losses and how the weights moved."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        training = setup(engine, world, loss=loss)
        step = training.step
        if loss_scale and step.scalers[0].is_enabled():
            step.scalers[0].load_state_dict(step.scalers[0].state_dict() | {"scale": loss_scale})
        first, found = weights_of(step), []
        for number, batch in enumerate(training.feed(range(steps))):
            value = training.take(batch, number * TRAIN.global_batch)["loss"]
            found.append(float(world.sum(value.clone()) / world.size))
        return Trained(found, moved_since(first, step))
    finally:
        torch.set_default_dtype(before)
