"""Fixtures that several test folders share."""

import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture(scope="session", autouse=True)
def machine_lock(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Tests neither hold up measured runs on this machine nor are refused by them."""
    os.environ["FAZE_MACHINE_LOCK"] = str(tmp_path_factory.mktemp("machine") / "lock")


@pytest.fixture(scope="session")
def golden_dir() -> Path:
    folder = Path(os.environ.get("FAZE_GOLDEN_DIR", ROOT.parent / "shared" / "golden"))
    if not folder.is_dir():
        pytest.skip(f"no golden numbers in {folder} (set FAZE_GOLDEN_DIR)")
    return folder


@pytest.fixture(scope="session")
def golden(golden_dir: Path) -> Callable[[str], dict[str, np.ndarray]]:
    """golden("misc") -> the arrays of misc.npz by key."""

    def load(name: str) -> dict[str, np.ndarray]:
        with np.load(golden_dir / f"{name}.npz") as arrays:
            return dict(arrays)

    return load
