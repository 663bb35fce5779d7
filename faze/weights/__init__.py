"""The shipped weights (dted.pt and a file for each learner), and their model card (model_card.md)."""

from pathlib import Path

SHIPPED = "shipped"  # stands for the path of the shipped network in the configuration and in commands
FOLDER = Path(__file__).resolve().parent

# Errors of the shipped network on real people whom it has not seen; `faze gaze` prints this without a calibration.
UNCALIBRATED = (
    "without a calibration, the errors on five real people were 5 to 12 degrees (mean: 7.7); with nine calibration "
    "samples, about 6: record some with known targets, and run faze calibrate"
)


def network_path(name: Path | str) -> Path:
    """Return the path of a checkpoint; the name SHIPPED stands for the shipped network."""
    return FOLDER / "dted.pt" if str(name) == SHIPPED else Path(name)
