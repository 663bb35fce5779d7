"""Numbers computed here must not depend on what else the machine does, nor on how many cores it has."""

import pytest
import torch


@pytest.fixture(autouse=True, scope="session")
def one_thread():
    torch.set_num_threads(1)
