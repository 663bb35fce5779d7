"""The baseline's losses, which the tiers and switches are compared with."""

import pytest
import torch
from trajectory import STEPS, losses, tier


@pytest.fixture(scope="session")
def baseline_float64(one_thread: None) -> list[float]:
    return losses(tier("baseline"), steps=STEPS, dtype=torch.float64)


@pytest.fixture(scope="session")
def baseline_float32(one_thread: None) -> list[float]:
    return losses(tier("baseline"), steps=5, dtype=torch.float32)
