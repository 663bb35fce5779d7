"""Fixtures that several test folders share."""

import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

if not torch.cuda.is_available():
    os.environ["TRITON_INTERPRET"] = "1"  # read at Triton's first import: its kernels then run in its interpreter

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture(scope="session", autouse=True)
def machine_lock(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Tests neither hold up measured runs on this machine nor are refused by them."""
    os.environ["FAZE_MACHINE_LOCK"] = str(tmp_path_factory.mktemp("machine") / "lock")


@pytest.fixture(scope="session", autouse=True)
def one_thread() -> None:
    """Numbers computed here depend neither on what else the machine does nor on how many cores it has."""
    torch.set_num_threads(1)


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
