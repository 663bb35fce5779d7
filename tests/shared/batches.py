"""Compare training batches."""

import torch

from faze.data.pairs import Batch


def assert_same(found: list[Batch], wanted: list[Batch]) -> None:
    """Fail if the batches differ in number, names, types or a single bit."""
    assert len(found) == len(wanted)
    for one, other in zip(found, wanted, strict=True):
        assert one.keys() == other.keys()
        for name in one:
            assert one[name].dtype == other[name].dtype and torch.equal(one[name], other[name]), name
