"""Convert a published DT-ED state dictionary into a checkpoint that every stage can use.

faze import-checkpoint published.pth.tar --configfile config/sizes/one_gpu.yaml --out results/published/checkpoint.pt
"""

from pathlib import Path

from faze.config.validation import read_config
from faze.model.weights import import_published, save_weights


def main(published: Path, *, configfile: list[Path] = (), out: Path) -> None:
    """Check the name and shape of each tensor, and write the checkpoint.

    Args:
        configfile: files that override the defaults; their `model` and `preprocess` sections describe the weights
    """
    config = read_config(configfile)
    dted = import_published(published, config.model)
    dted.camera = config.preprocess.camera()
    save_weights(out, dted)
    print(f"{out}: {len(dted.state_dict())} tensors, {sum(p.numel() for p in dted.parameters()):,} parameters")
