"""The outer loop's Adam equals torch's, bit for bit."""

import torch

from faze.fewshot.meta_training import Adam


def test_steps_are_those_of_torchs_adam():
    """Fails with 0.99 as the second decay rate."""
    rng = torch.Generator().manual_seed(0)
    ours = [torch.randn(3, 5, 4, generator=rng), torch.randn(3, 1, 4, generator=rng)]
    theirs = [parameter.clone() for parameter in ours]
    mine, reference = Adam(ours, 0.01), torch.optim.Adam(theirs, lr=0.01)
    for step in range(40):
        gradients = [torch.randn(parameter.shape, generator=rng) * 10.0 ** (step % 7 - 3) for parameter in ours]
        mine.step(gradients)
        for parameter, gradient in zip(theirs, gradients, strict=True):
            parameter.grad = gradient
        reference.step()
        assert all(torch.equal(one, other) for one, other in zip(ours, theirs, strict=True))
