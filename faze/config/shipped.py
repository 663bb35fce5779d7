"""The weights that are part of the package, and how the configuration refers to them. Standard library only."""

from pathlib import Path

SHIPPED = "shipped"  # stands for the path of the package's network
FOLDER = Path(__file__).resolve().parents[1] / "weights"  # dted.pt, each learner's file and model_card.md


def network_path(name: Path | str) -> Path:
    """Return the path of a checkpoint, which is the package's own if the name is SHIPPED."""
    return FOLDER / "dted.pt" if str(name) == SHIPPED else Path(name)
