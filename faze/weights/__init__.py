"""The weights that are part of the package: dted.pt, a file for each learner, model_card.md."""

from pathlib import Path

SHIPPED = "shipped"  # stands for the path of the package's network in the configuration and in commands
FOLDER = Path(__file__).resolve().parent


def network_path(name: Path | str) -> Path:
    """Return the path of a checkpoint, which is the package's own if the name is SHIPPED."""
    return FOLDER / "dted.pt" if str(name) == SHIPPED else Path(name)
