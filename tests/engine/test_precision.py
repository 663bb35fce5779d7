"""A scaler that counts skipped steps."""

import pytest
import torch
from torch import nn
from trajectory import tier

from faze.engine.precision import Scaler, build_precision


def precision(name: str):
    return build_precision(tier("baseline", precision=name, force=True), torch.device("cpu"))


def overflow(scaler: Scaler, gradient: float) -> None:
    weight = nn.Parameter(torch.ones(()))
    scaler.scale(weight * gradient).backward()
    optimizer = torch.optim.SGD([weight], lr=0.1)
    scaler.step(optimizer)
    scaler.update()


def test_skipped_steps_are_counted_also_after_a_restart(tmp_path):
    scaler, again, off = precision("fp16").scaler, precision("fp16").scaler, precision("bf16").scaler
    for gradient in (1.0, float("inf"), 1.0, float("nan"), 1.0, 1.0):
        overflow(scaler, gradient)
    assert scaler.skipped == 2.0 and scaler.get_scale() == 65536.0 / 4
    torch.save(scaler.state_dict(), tmp_path / "scaler.pt")
    again.load_state_dict(torch.load(tmp_path / "scaler.pt", weights_only=True))
    assert again.state_dict() == scaler.state_dict() and again.state_dict()["_growth_tracker"] == 2
    for one in (scaler, again, off):
        overflow(one, float("inf"))
    assert again.state_dict() == scaler.state_dict() and again.skipped == 3.0
    assert off.skipped == 0.0 and off.state_dict() == {}


@pytest.mark.parametrize("name", ["fp16", "bf16"])
def test_without_kernels_low_precision_is_inactive_unless_forced(name, no_low_precision, monkeypatch):
    idle = build_precision(tier("baseline", precision=name), torch.device("cpu"))
    assert idle.switches[0].acted == "fp32" and f"this CPU has no {name} kernels" in idle.switches[0].reason
    with idle.autocast():
        assert not idle.scaler.is_enabled() and not torch.is_autocast_enabled("cpu")
    forced = precision(name)
    assert forced.switches[0].active and forced.switches[0].acted.startswith(f"{name} autocast")
    assert forced.scaler.is_enabled() == (name == "fp16")
    flags = {"fp16": "amx_fp16", "bf16": "avx512_bf16"}
    for other, flag in flags.items():
        monkeypatch.setattr(torch.cpu, "get_capabilities", lambda flag=flag: {flag: True})
        assert build_precision(tier("baseline", precision=name), torch.device("cpu")).switches[0].active == (
            name == other
        )
