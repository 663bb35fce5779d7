"""Encode the strips in each store, and write their codes, the trained gaze head and its estimates."""

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from faze.base.progress import Progress
from faze.config.stage_config import Resolved
from faze.data.codes import GAZE_HEAD, write_codes
from faze.data.network_input import to_network
from faze.data.pairs import People, open_people
from faze.data.strips import read_store
from faze.engine.execution import set_recompute
from faze.engine.precision import exact
from faze.model.dted import DTED
from faze.model.weights import load_model, network_hash


def main(*, config: Resolved, checkpoint: Path, data: list[Path], threads: int, out: list[Path]) -> None:
    """Encode every person in every store."""
    torch.set_num_threads(threads)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    dted = load_model(checkpoint, device)
    head = {name: dted.get_parameter(name).detach().cpu().numpy() for name in GAZE_HEAD}
    size = (dted.model.image_height_px, dted.model.image_width_px)
    set_recompute(dted, True)  # faster: normalises each channel once, and processes few strips at a time
    for path, written in zip(data, out, strict=True):
        store = read_store(path, config.fold)
        with exact(dted):
            codes = encode_people(partial(encode_strips, dted), open_people(store, size), config.encode.batch)
            write_codes(written, store.dataset, codes, head, store.pixel_source, network_hash(dted))


def encode_people(
    encode: Callable[[torch.Tensor], dict[str, NDArray]], people: People, batch: int
) -> Iterator[tuple[str, str, dict[str, NDArray]]]:
    """Encode every person; yield the person's name, split and a dict of arrays, named as in the code store."""
    progress, done = Progress("encode", sum(people.counts), "strips"), 0
    for person, indices in zip(people.persons, people.person_indices(), strict=True):
        parts = [encode(people.gather(some)) for some in indices.split(batch)]
        done += len(indices)
        progress(done)
        arrays = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
        yield person.name, person.split, arrays | {"gaze": person.labels[:, :2], "head": person.labels[:, 2:]}


@torch.inference_mode()
def encode_strips(dted: DTED, strips: torch.Tensor) -> dict[str, NDArray[np.float32]]:
    """Encode strips (B, H, W, 3) as z_app (B, A), z_gaze (B, G, 3), z_head (B, D, 3) and unit-norm gaze_hat (B, 3)."""
    codes = dted.encode(to_network(strips.to(dted.fc_enc.weight.device)))
    arrays = {"z_app": codes.app, "z_gaze": codes.gaze, "z_head": codes.head, "gaze_hat": dted.gaze_vector(codes.gaze)}
    return {name: array.cpu().numpy() for name, array in arrays.items()}
