"""Validation evaluates the current weights in fp32, whatever the switches of the tier."""

import pytest
import torch
from trajectory import people, setup, tier

from faze.training.dted_training import bare_model, build_step, validate


@pytest.mark.parametrize(
    "switches", [{"channels_last": True}, {"recompute": True}, {"precision": "bf16", "force": True}]
)
def test_validation_knows_the_last_weights_and_no_switch(switches):
    found = []
    for engine in (tier("baseline"), tier("baseline", **switches)):
        chosen = setup(engine)
        step = build_step(chosen)
        before = validate(step, people(), chosen)
        with torch.no_grad():
            bare_model(step).fc_enc.weight[64:].neg_()
        found.append((before, validate(step, people(), chosen)))
    for baseline, other in zip(*found, strict=True):
        assert other == pytest.approx(baseline, rel=1e-4)
    assert abs(found[0][0]["val/gaze_deg"] - found[0][1]["val/gaze_deg"]) > 1e-3
