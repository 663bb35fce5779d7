"""DT-ED training as a workload: pairs of strips, the schedules from section 3.1 of the paper, and validation.

A sample is a pair of one person's strips. Schedules are measured in pairs, so they are the same for every tier and any
number of processes.
"""

import hashlib
import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from faze.base.geometry import rotation_from_pitchyaw, vector_from_pitchyaw
from faze.config.parameters import Loss, Train
from faze.config.stage_config import Resolved
from faze.data.network_input import to_network
from faze.data.pairs import PairIndices, People, cache, cache_what_fits, open_people
from faze.data.strips import StoredPerson, read_store
from faze.engine.switches import Switch
from faze.engine.transfer import resident_switch
from faze.model.dted import DTED, freeze, part_of
from faze.model.losses import angle_deg
from faze.model.objective import Objective
from faze.model.weights import description, load_start
from faze.training.augmentation import Augmentation
from faze.training.workload import Batch, Workload
from faze.weights import network_path

TERMS = ("reconstruction_l1", "gaze_angle", "gaze_mse")
RAMPED_TERMS = ("embedding_consistency", "triplet_angular", "triplet_euclidean", "all_equal")  # compare embeddings
VALIDATED = 64  # strips per forward pass
REDIRECTED = 16  # strips of each person: a few suffice to judge image quality, and decoding is expensive


class DTEDTraining(Workload):
    """DT-ED training on a store of strips or, to time steps without a store, on noise in place of four people."""

    score, higher_is_better = "gaze error, deg", False
    unit, images = "images", 2

    def __init__(self, config: Resolved, data: Path | None, processes: int = 1) -> None:
        self.config, self.train = config, (train := config.train)
        self.batch_size, self.steps = train.global_batch, -(-train.pairs // train.global_batch)
        self.chunk, self.workers = config.loss.chunk_pairs, config.data.workers
        self.momentum, self.weight_decay, self.clip_norm = train.momentum, train.weight_decay, train.clip_norm
        self.start = network_path(train.start) if train.start else None
        size = config.model.image_height_px, config.model.image_width_px
        if data is None:
            self.people, self.validation = make_noise(size), None
        else:
            store = read_store(data, config.fold)
            people = open_people(store, size, split="train", min_entries=config.data.min_entries)
            everyone = [people, open_people(store, size, split="val")]
            self.people, self.validation = cache_what_fits(everyone, config.data.memory_gib, processes)
            self.pixel_source, self.identity = store.pixel_source, store.digest("train")
            left_out = [person.name for person in store.of_split("train") if person not in people.persons]
            if left_out:
                self.notes = (f"left out because of too few entries (data.min_entries): {', '.join(left_out)}",)
        if self.start:
            self.identity += hashlib.sha256(self.start.read_bytes()).hexdigest()
        self.augmentation = Augmentation(config.augment, len(self.people.persons))
        self._indices: PairIndices | None = None
        self._on_device = False

    @property
    def every(self) -> tuple[int, int, int]:
        return self.train.log_every_pairs, self.train.validate_every_pairs, self.train.checkpoint_every_pairs

    def build(self) -> nn.Module:
        config, dted = self.config, DTED(self.config.model)
        dted.camera = config.preprocess.camera()
        if self.start:
            given = load_start(self.start, config.model, dted.camera, trained=self.train.pairs > 0)
            dted.load_state_dict(given.state_dict())
        objective = Objective(dted, config.loss)
        freeze(dted, self.train.frozen)
        return objective

    def losses(self, model: nn.Module, batch: Batch) -> dict[str, dict[str, Tensor]]:
        return {"network": model(batch)}

    def network(self, model: nn.Module) -> nn.Module:
        return model.dted

    def about(self, model: nn.Module) -> dict[str, object]:
        return description(model.dted)

    def batch(self, number: int, seed: int) -> Batch:
        if self._indices is None or self._indices.seed != seed:
            self._indices = PairIndices(self.people.counts, seed, self.batch_size)
        return self._indices[number] | self.augmentation.draw(number, seed, self.batch_size)

    def read(self, batch: Batch) -> Batch:
        return batch if self._on_device else self.people.gather_pairs(batch)

    def prepare(self, batch: Batch) -> Batch:
        batch = self.augmentation(self.people.gather_pairs(batch) if self._on_device else batch)
        return batch | {name: to_network(batch[name]) for name in ("image_a", "image_b")}

    def keep_resident(self, wanted: bool, device: torch.device) -> Switch:
        switch = resident_switch(wanted, size=self.people.nbytes, cached=self.people.cached, device=device)
        if wanted and switch.active:
            self.people, self._on_device = cache(self.people, device), True
            self.workers = 0  # drawing indices is faster than receiving them from another process
        return switch

    def parameter_groups(self, model: nn.Module) -> dict[str, list[dict]]:
        trained = [(part_of(name), p) for name, p in model.dted.named_parameters() if p.requires_grad]
        groups = []
        for part, rate in part_rates(0, self.train).items():
            parameters = [p for of, p in trained if of == part]
            if parameters:
                groups.append({"name": part, "params": parameters, "lr": rate})
        self._parts = [group["name"] for group in groups]
        return {"network": groups}

    def rates(self, seen: int, first: Sequence[float]) -> list[float]:
        rates, factor = part_rates(seen, self.train), decay(seen, self.train.pairs, self.train.decay_share)
        return [rates[part] * factor for part in self._parts]

    def weights(self, seen: int) -> dict[str, float]:
        return loss_weights(seen, self.config.loss, self.batch_size)

    def validate(self, model: nn.Module) -> dict[str, float]:
        """Return `val/gaze_deg` (each validation person's mean gaze error, averaged over people) and `val/l1`.

        Each of a person's first strips is redirected to the gaze and head pose of the next strip. `val/l1` is the mean
        absolute difference from that next strip, averaged over people with two or more strips.
        """
        dted, people, errors_deg, differences = model.dted, self.validation, [], []
        device = next(dted.parameters()).device
        for indices in people.person_indices():
            total = torch.zeros((), dtype=torch.float64, device=device)
            for some in indices.split(VALIDATED):
                image, gaze = to_network(people.gather(some).to(device)), people.labels[some, :2].to(device)
                found = dted.gaze_vector(dted.encode(image).gaze)
                total += angle_deg(found, vector_from_pitchyaw(gaze, torch)).double().sum()
            errors_deg.append(float(total) / len(indices))
            if len(indices) > 1:
                some = indices[:REDIRECTED]
                image = to_network(people.gather(some).to(device))
                angles = people.labels[some].to(image)
                own = [rotation_from_pitchyaw(part, torch) for part in angles.split(2, dim=1)]
                frontal = dted.encode(image).turn(*own)
                redirected = dted.decode(frontal.turn(*(rotation.roll(-1, 0).mT for rotation in own)))
                differences.append(float((redirected - image.roll(-1, 0)).abs().mean()))
        values = {"val/gaze_deg": sum(errors_deg) / len(errors_deg)}
        return values | ({"val/l1": sum(differences) / len(differences)} if differences else {})


def make_noise(size: tuple[int, int]) -> People:
    """Return four people with eight noise strips each."""
    random = np.random.default_rng(0)
    pixels = random.integers(0, 256, (32, *size, 3), dtype=np.uint8)
    labels = random.normal(0, 0.2, (4, 8, 4)).astype(np.float32)
    people = [StoredPerson(f"noise{number}", "train", labels[number]) for number in range(4)]
    return People(people, torch.from_numpy(labels).flatten(0, 1), torch.from_numpy(pixels), size)


def ramp(pairs: int, ramp_pairs: int, global_batch: int) -> float:
    """Return the value of a linear ramp from 0 to 1 after `pairs` pairs.

    The ramp's length is truncated to whole steps, as in the released code: int(ramp_pairs / global_batch).
    """
    steps = ramp_pairs // global_batch
    return min(pairs // global_batch / steps, 1.0) if steps else 1.0


def part_rates(pairs: int, train: Train) -> dict[str, float]:
    """Return the learning rate of each part before decay, with a linear warm-up to base_lr x global_batch (appendix B).

    Thus, a step of k pairs moves the weights as far as k steps of one pair (Goyal et al. 2017, arXiv 1706.02677). The
    gaze head's learning rate has no warm-up.
    """
    batch, base_lr = train.global_batch, train.base_lr
    rate = base_lr + (base_lr * batch - base_lr) * ramp(pairs, train.warmup_pairs, batch)
    return {"encoder": rate, "decoder": rate, "gaze_head": train.head_lr}


def decay(pairs: int, total_pairs: int, share: float) -> float:
    """Return the learning-rate factor: a half cosine from 1 to 0 over the last fraction `share` of training."""
    if not share:
        return 1.0
    fallen = max(0.0, 1.0 - (1.0 - pairs / total_pairs) / share)
    return 0.5 * (1.0 + math.cos(math.pi * fallen))


def loss_weights(pairs: int, loss: Loss, global_batch: int) -> dict[str, float]:
    """Return the weight of every loss term; the weights of terms that compare embeddings ramp up from 0."""
    factor = ramp(pairs, loss.ramp_pairs, global_batch)
    return {n: getattr(loss, n) for n in TERMS} | {n: getattr(loss, n) * factor for n in RAMPED_TERMS}
