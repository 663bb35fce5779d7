"""Rule `preprocess`: raw camera frames -> normalised, labelled eye strips (FAZE section 3), and rejected frames.

The output does not depend on the number of processes or on interruptions. Instead of frames, the input can be an HDF5
file of strips, which are then copied.
"""

from pathlib import Path

from faze.config.stage_config import Resolved
from faze.data.preparation.normalise import normalise
from faze.data.preparation.store import copy_strips


def main(
    *, config: Resolved, raw: Path, supplementary: Path | None = None, threads: int, out: Path, rejects: Path
) -> None:
    """Normalise every usable frame of a data set, and list the rejected ones."""
    if config.dataset.layout == "strips":
        counts = copy_strips(config, raw, out, rejects)
    else:
        counts = normalise(config, raw, supplementary, threads, out, rejects)
    print(f"{config.dataset.name}: {counts}, listed in {rejects}")
