"""Numbers computed here must not depend on what else the machine does, nor on how many cores it has."""

import os

import pytest
import torch
from trajectory import STEPS, losses, tier

if not torch.cuda.is_available():
    os.environ["TRITON_INTERPRET"] = "1"  # read at Triton's first import: its kernels then run in its interpreter


@pytest.fixture(autouse=True, scope="session")
def one_thread():
    torch.set_num_threads(1)


@pytest.fixture(scope="session")
def baseline_float64(one_thread) -> list[float]:
    return losses(tier("baseline"), steps=STEPS, dtype=torch.float64)


@pytest.fixture(scope="session")
def baseline_float32(one_thread) -> list[float]:
    return losses(tier("baseline"), steps=5, dtype=torch.float32)
