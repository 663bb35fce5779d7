"""Rule `estimate`: raw camera frames -> the estimates of a network of another project, in the format of codes."""

import tempfile
from functools import partial
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from faze.config.stage_config import Resolved
from faze.data.codes import write_codes
from faze.data.pairs import open_people
from faze.data.preparation.normalise import normalise
from faze.data.strips import read_store
from faze.gaze.network import Network, load_network
from faze.stages.encode import encode_people


def main(*, config: Resolved, raw: Path, supplementary: Path | None = None, threads: int, out: Path) -> None:
    """Make the patches that the network's virtual camera sees, and write its estimates for all of them."""
    torch.set_num_threads(threads)
    network = load_network(config.given.network)
    config.preprocess = config.preprocess.model_copy(update=dict(network.camera) | {"compatibility": "none"})
    with tempfile.TemporaryDirectory(dir=out.parent) as folder:
        patches = Path(folder) / "patches.h5"
        print(normalise(config, raw, supplementary, threads, patches, Path(folder) / "rejects.csv"))
        store = read_store(patches)
        people = encode_people(partial(estimate, network), open_people(store, store.size), config.encode.batch)
        write_codes(out, store.dataset, people, None, store.pixel_source, network.hash)


def estimate(network: Network, patches: Tensor) -> dict[str, NDArray]:
    """Return the arrays of a code store for patches (B, H, W, 3); the codes are empty."""
    codes, gaze = network(patches.numpy())
    return {"z_gaze": codes, "gaze_hat": gaze.astype(np.float32)}
