"""The baseline's losses and weights, with which tiers and switches are compared."""

import pytest
import torch
from trajectory import STEPS, Trained, tier, trained


@pytest.fixture(scope="session")
def trained_float32(one_thread: None) -> Trained:
    return trained(tier("baseline"), steps=5, dtype=torch.float32)


@pytest.fixture(scope="session")
def baseline_float64(one_thread: None) -> list[float]:
    return trained(tier("baseline"), steps=STEPS, dtype=torch.float64).losses


@pytest.fixture(scope="session")
def baseline_float32(trained_float32: Trained) -> list[float]:
    return trained_float32.losses


@pytest.fixture
def no_low_precision(monkeypatch: pytest.MonkeyPatch) -> None:
    """Simulate a CPU without kernels for fp16 and bf16."""
    monkeypatch.setattr(torch.cpu, "get_capabilities", dict)
