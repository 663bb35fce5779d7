"""Validation uses the network for inference, with the current weights."""

import pytest
import torch
from trajectory import people, setup, tier

from faze.engine.precision import exact
from faze.model.inference import CompiledNetwork
from faze.native.compiled import library
from faze.training import dted_training


@pytest.mark.parametrize(
    "switches", [{}, {"channels_last": True}, {"recompute": True}, {"precision": "bf16", "force": True}]
)
def test_validation_is_fast_and_knows_the_last_weights(switches, monkeypatch):
    if library("model/inference.c") is None:
        pytest.skip("inference.c is not compiled")
    calls, forward = [], CompiledNetwork.forward
    monkeypatch.setattr(CompiledNetwork, "forward", lambda self, x: calls.append(len(x)) or forward(self, x))
    chosen, persons = setup(tier("baseline", **switches)), people()
    step = dted_training.build_step(chosen)
    dted = dted_training.bare_model(step)
    parts = dict(dted.named_modules())
    found = []
    for _ in range(2):
        found.append(dted_training.validate(step, persons, chosen)["val/gaze_deg"])
        with torch.inference_mode(), exact(dted):
            assert found[-1] == pytest.approx(dted_training._mean_error_deg(dted, persons, chosen), rel=1e-5)
        with torch.no_grad():
            for parameter in dted.encoder.parameters():
                parameter.add_(torch.randn_like(parameter), alpha=0.1)
    assert calls == [5, 9, 6, 8, *[5, 5, 9, 9, 6, 6, 8, 8]] * 2  # gaze of all strips; the first 16 redirected
    assert abs(found[0] - found[1]) > 1e-3
    assert dict(dted.named_modules()) == parts
