"""The shipped weights (dted.pt and a file for each learner), and their model card (model_card.md)."""

from pathlib import Path

SHIPPED = "shipped"  # stands for the path of the shipped network in the configuration and in commands
FOLDER = Path(__file__).resolve().parent


def network_path(name: Path | str) -> Path:
    """Return the path of a checkpoint; the name SHIPPED stands for the shipped network."""
    return FOLDER / "dted.pt" if str(name) == SHIPPED else Path(name)
