"""The golden numbers: every clone contains a subset; all are in a folder beside it, or in FAZE_GOLDEN_DIR."""

import os
from pathlib import Path

import numpy as np

KEPT = Path(__file__).resolve().parents[1] / "golden"
ALL = Path(os.environ.get("FAZE_GOLDEN_DIR", KEPT.parents[2] / "shared" / "golden"))
FOLDERS = {"kept": KEPT} | ({"all": ALL} if ALL.is_dir() else {})


def arrays_of(path: Path) -> dict[str, np.ndarray]:
    """Return the arrays of a file by key."""
    with np.load(path) as arrays:
        return dict(arrays)
