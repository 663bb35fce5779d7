"""Training of DT-ED: step, schedules, validation. Paper section 3.1.

Schedules are counted in pairs, so they are the same for every tier and any number of processes.
"""

import functools
import hashlib
import math
from collections.abc import Sequence
from pathlib import Path

import torch
from torch import nn

from faze import engine
from faze.base import code_hash
from faze.base.geometry import rotation_from_pitchyaw, vector_from_pitchyaw
from faze.config.parameters import Loss, Train
from faze.config.stage_config import Resolved
from faze.data.network_input import to_network
from faze.data.pairs import People, cache_what_fits, open_people
from faze.data.strips import read_store
from faze.engine.parallel import World, check_chunks
from faze.engine.precision import Precision, exact
from faze.engine.step import Step
from faze.engine.transfer import Feed
from faze.model.dted import DTED, part_of
from faze.model.losses import angle_deg
from faze.model.objective import Objective
from faze.model.parts import freeze, load_start
from faze.model.weights import description
from faze.training.augmentation import build_augmentation
from faze.training.feed import TrainingSetup, build_feed
from faze.training.loop import Schedule, Training
from faze.training.resume import WorkFolder
from faze.training.run import RunIdentity, perturb_weight, run_training
from faze.weights import network_path

TERMS = ("reconstruction_l1", "gaze_angle", "gaze_mse")
RAMPED_TERMS = ("embedding_consistency", "triplet_angular", "triplet_euclidean", "all_equal")  # compare embeddings
VALIDATED = 64  # strips at once
REDIRECTED = 16  # strips of each person: a few suffice to judge image quality, and decoding is expensive


def build_step(setup: TrainingSetup) -> Step:
    """Build the step of a tier; the same seed gives the same initial weights in every tier."""
    train = setup.train

    def make_objective(precision: Precision) -> nn.Module:
        torch.manual_seed(setup.seed)
        objective = Objective(DTED(setup.model, autocast=precision.autocast), setup.loss)
        freeze(objective.dted, train.frozen)
        return objective

    def groups(objective: Objective) -> dict[str, list[dict]]:
        rates = part_rates(0, train)
        of_part = {
            part: [p for name, p in objective.dted.named_parameters() if part_of(name) == part and p.requires_grad]
            for part in rates
        }
        return {"network": [{"name": n, "params": of, "lr": rates[n]} for n, of in of_part.items() if of]}

    return engine.build(make_objective, groups, engine=setup.engine, train=train, world=setup.world)


def bare_model(step: Step) -> DTED:
    """Return DT-ED without its objective and parallel wrapper."""
    module = step.model
    return (module.module if hasattr(module, "module") else module).dted


def build_training(setup: TrainingSetup, step: Step, feed: Feed, validation: People | None) -> Training:
    """Combine what the loop needs.

    Args:
        setup: configuration and process.
        step: step from `build_step`.
        feed: training batches.
        validation: people for validation; None if there is no validation.
    """
    train = setup.train
    return Training(
        step=step,
        feed=feed,
        module=bare_model(step),
        world=setup.world,
        schedule=Schedule(
            samples=train.pairs,
            batch=train.global_batch,
            log_every=train.log_every_pairs,
            validate_every=train.validate_every_pairs,
            checkpoint_every=train.checkpoint_every_pairs,
            unit="pairs",
            throughput=("images_per_s", 2),
            rate_keys="train.base_lr or train.head_lr",
        ),
        rates=functools.partial(learning_rates, train=train, parts=step.group_names),
        weights=functools.partial(loss_weights, loss=setup.loss, global_batch=train.global_batch),
        validate=lambda: validate(step, validation, setup) if validation else {},
        about=description(bare_model(step)),
    )


# --- schedules ------------------------------------------------------------------------------------------------------


def ramp(pairs: int, ramp_pairs: int, global_batch: int) -> float:
    """Return the value of a linear ramp from 0 to 1 after `pairs` pairs.

    Its length is truncated to whole steps, as in the released code: int(ramp_pairs / global_batch).
    """
    steps = ramp_pairs // global_batch
    return min(pairs // global_batch / steps, 1.0) if steps else 1.0


def learning_rate(pairs: int, train: Train) -> float:
    """Return the network's learning rate before its decay: a linear warm-up from base_lr to the peak (appendix B).

    The peak is proportional to the global batch, so that one step of k pairs moves the weights as far as k steps of one
    pair (Goyal et al. 2017, arXiv 1706.02677).
    """
    batch, base_lr = train.global_batch, train.base_lr
    return base_lr + (base_lr * batch - base_lr) * ramp(pairs, train.warmup_pairs, batch)


def decay(pairs: int, total_pairs: int, share: float) -> float:
    """Return the factor for the learning rates: a half cosine from 1 to 0 over the last `share` of training."""
    if not share:
        return 1.0
    fallen = max(0.0, 1.0 - (1.0 - pairs / total_pairs) / share)
    return 0.5 * (1.0 + math.cos(math.pi * fallen))


def part_rates(pairs: int, train: Train) -> dict[str, float]:
    """Return the learning rate of each part before its decay. That of the gaze head is not warmed up."""
    rate = learning_rate(pairs, train)
    return {"encoder": rate, "decoder": rate, "gaze_head": train.head_lr}


def learning_rates(pairs: int, train: Train, parts: Sequence[str]) -> list[float]:
    """Return the learning rates of some parts; all decay alike."""
    rates, factor = part_rates(pairs, train), decay(pairs, train.pairs, train.decay_share)
    return [rates[part] * factor for part in parts]


def loss_weights(pairs: int, loss: Loss, global_batch: int) -> dict[str, float]:
    """Return the weight of every loss term; the weights of terms that compare embeddings ramp up from 0."""
    factor = ramp(pairs, loss.ramp_pairs, global_batch)
    return {n: getattr(loss, n) for n in TERMS} | {n: getattr(loss, n) * factor for n in RAMPED_TERMS}


# --- validation -----------------------------------------------------------------------------------------------------


def validate(step: Step, people: People, setup: TrainingSetup) -> dict[str, float]:
    """Evaluate the current network in fp32 on people who are not used for training.

    Returns:
        `val/gaze_deg`, the mean over people of their mean gaze errors; every process evaluates its share of each
        person's strips. Also `val/l1`, the mean over people with two or more strips of the absolute difference between
        their first strips, redirected to the gaze and head pose of the next strip, and that strip.
    """
    dted = bare_model(step)
    with torch.inference_mode(), exact(dted):
        gaze = {"val/gaze_deg": _mean_error_deg(dted, people, setup)}
        return gaze | _redirection_l1(dted, people, setup)


def _mean_error_deg(dted: DTED, people: People, setup: TrainingSetup) -> float:
    world = setup.world
    sums = torch.zeros(len(people.persons), 2, dtype=torch.float64, device=world.device)
    for person, indices in enumerate(people.person_indices()):
        for some in indices.split(VALIDATED)[world.rank :: world.size]:
            image, gaze = to_network(people.gather(some).to(world.device)), people.labels[some, :2].to(world.device)
            error = angle_deg(dted.gaze_vector(dted.encode(image).gaze), vector_from_pitchyaw(gaze, torch))
            sums[person] += torch.stack([error.double().sum(), torch.tensor(float(len(error)), device=world.device)])
    world.sum(sums)
    return float((sums[:, 0] / sums[:, 1]).mean())


def _redirection_l1(dted: DTED, people: People, setup: TrainingSetup) -> dict[str, float]:
    """Evaluate redirected strips; every process evaluates all of them, since there are few."""
    found = []
    for indices in people.person_indices():
        if len(indices) > 1:
            some = indices[:REDIRECTED]
            image = to_network(people.gather(some).to(setup.world.device))
            angles = people.labels[some].to(image)
            own = [rotation_from_pitchyaw(part, torch) for part in angles.split(2, dim=1)]
            requested = [rotation.roll(-1, 0) for rotation in own]
            found.append(float((dted(image, own, requested) - image.roll(-1, 0)).abs().mean()))
    return {"val/l1": sum(found) / len(found)} if found else {}


# --- the whole run ---------------------------------------------------------------------------------------------------


def train(config: Resolved, data: Path, world: World, out: Path, run_log: Path) -> None:
    """Train one tier with one seed, and write the checkpoint and run log.

    Args:
        config: the stage's parameters.
        data: store of normalised strips.
        world: this process's position among those that train together.
        out: checkpoint to write.
        run_log: run log to write.
    """
    setup = TrainingSetup(config.model, config.loss, config.engine, config.train, world, config.seed)
    step = build_step(setup)
    check_chunks(config.train.global_batch, config.loss.chunk_pairs, world.size * step.shares)  # before strips are read
    size = (config.model.image_height_px, config.model.image_width_px)
    store = read_store(data, config.fold)
    people = open_people(store, size, split="train", min_entries=config.data.min_entries)
    left_out = [person.name for person in store.of_split("train") if person not in people.persons]
    validation = open_people(store, size, split="val")
    fingerprint = code_hash.fingerprint("faze.stages.train")
    dted, camera = bare_model(step), config.preprocess.camera()
    dted.camera = camera
    started = ""
    if start := config.train.start and network_path(config.train.start):
        given = load_start(start, config.model, camera, trained=config.train.pairs > 0)
        dted.load_state_dict(given.state_dict())
        started = hashlib.sha256(start.read_bytes()).hexdigest()
    if config.control == "rounding":
        perturb_weight(dted.encoder.initial.conv1.weight)
    work = WorkFolder.of(out, "-".join([config.hash, fingerprint, store.digest("train"), started]))
    people, validation = cache_what_fits((people, validation), config.data.memory_gib, world.processes_here)
    augmentation = build_augmentation(config.augment, config.preprocess, config.model, len(people.persons))
    feed = build_feed(people, setup, workers=config.data.workers, augmentation=augmentation)
    notes = [f"left out because of too few entries (data.min_entries): {', '.join(left_out)}"] if left_out else []
    run = RunIdentity(config, fingerprint, (*step.switches, *feed.switches), (*notes, *feed.notes), store.pixel_source)
    run_training(build_training(setup, step, feed, validation), run, work, run_log, out)
