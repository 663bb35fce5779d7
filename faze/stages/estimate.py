"""Rule `estimate`: raw camera frames -> the estimates of a network of another project, in the format of codes."""

import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from faze.base.progress import Progress
from faze.config.stage_config import Resolved
from faze.data.codes import write_codes
from faze.data.pairs import People, open_people
from faze.data.preparation.normalise import normalise
from faze.data.strips import read_store
from faze.gaze.network import Network, load_network


def main(*, config: Resolved, raw: Path, supplementary: Path | None = None, threads: int, out: Path) -> None:
    """Make the patches that the network's virtual camera sees, and write its estimates for all of them."""
    torch.set_num_threads(threads)
    network = load_network(config.given.network)
    config.preprocess = config.preprocess.model_copy(update=dict(network.camera))
    with tempfile.TemporaryDirectory(dir=out.parent) as folder:
        patches = Path(folder) / "patches.h5"
        print(normalise(config, raw, supplementary, threads, patches, Path(folder) / "rejects.csv"))
        store = read_store(patches)
        people = estimates(network, open_people(store, store.size), config.encode.batch)
        write_codes(out, store.dataset, people, None, store.pixel_source, network.hash)


def estimates(network: Network, people: People, batch: int) -> Iterator[tuple[str, str, dict[str, NDArray]]]:
    """Yield every person's name, split and a dict of arrays, named as in the code store."""
    progress, done = Progress("estimate", sum(people.counts), "patches"), 0
    for person, indices in zip(people.persons, people.person_indices(), strict=True):
        parts = [network(people.gather(some).numpy()) for some in indices.split(batch)]
        done += len(indices)
        progress(done)
        codes, gaze = (np.concatenate(part) for part in zip(*parts, strict=True))
        labels = {"gaze": person.labels[:, :2], "head": person.labels[:, 2:]}
        yield person.name, person.split, labels | {"z_gaze": codes, "gaze_hat": gaze.astype(np.float32)}
