"""Operations with their own number format, and a scaler that counts skipped steps."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from trajectory import tier

from faze.engine.precision import FUNCTIONS, OperationFormats, Scaler, build_precision

IMAGE, KERNEL = torch.randn(1, 4, 8, 8), torch.randn(4, 4, 3, 3)
CALLS = {
    "conv": lambda dtype: F.conv2d(IMAGE.to(dtype), KERNEL.to(dtype)),
    "conv_transpose": lambda dtype: F.conv_transpose2d(IMAGE.to(dtype), KERNEL.to(dtype)),
    "linear": lambda dtype: F.linear(IMAGE.to(dtype), torch.ones(5, 8, dtype=dtype), torch.zeros(5, dtype=dtype)),
    "instance_norm": lambda dtype: F.instance_norm(IMAGE.to(dtype)),
    "leaky_relu": lambda dtype: F.leaky_relu(IMAGE.to(dtype), 0.01, inplace=True),
    "relu": lambda dtype: F.relu(IMAGE.to(dtype)),
    "avg_pool": lambda dtype: F.avg_pool2d(IMAGE.to(dtype), 2),
    "mean": lambda dtype: IMAGE.to(dtype).mean(dim=(2, 3)),
}


@pytest.mark.parametrize("name", sorted(FUNCTIONS))
def test_operation_is_kept_and_forced(name):
    with torch.autocast("cpu", torch.bfloat16), OperationFormats([name], [], torch.bfloat16, "cpu"):
        assert CALLS[name](torch.bfloat16).dtype == torch.float32
    with torch.autocast("cpu", torch.bfloat16), OperationFormats([], [name], torch.bfloat16, "cpu"):
        assert CALLS[name](torch.float32).dtype == torch.bfloat16


def precision(name: str, **lists):
    return build_precision(tier("baseline", precision=name, force=True, **lists), torch.device("cpu"))


def test_autocast_enters_the_lists():
    with precision("bf16", keep_fp32=("linear",), force_low=("avg_pool",)).autocast():
        assert F.linear(IMAGE, torch.ones(5, 8)).dtype == torch.float32
        assert F.avg_pool2d(IMAGE, 2).dtype == F.conv2d(IMAGE, KERNEL).dtype == torch.bfloat16
    assert precision("bf16").operations is None  # nothing to enter again


def overflow(scaler: Scaler, gradient: float) -> None:
    weight = nn.Parameter(torch.ones(()))
    scaler.scale(weight * gradient).backward()
    optimizer = torch.optim.SGD([weight], lr=0.1)
    scaler.step(optimizer)
    scaler.update()


def test_skipped_steps_are_counted():
    scaler = precision("fp16").scaler
    for gradient in (1.0, float("inf"), 1.0, float("nan")):
        overflow(scaler, gradient)
    assert scaler.skipped() == 2.0
    assert scaler.get_scale() == 65536.0 / 4
    off = precision("bf16").scaler
    overflow(off, float("inf"))
    assert off.skipped() == 0.0 and off.state_dict() == {}


def test_scale_growth_and_count_continue_from_a_file(tmp_path):
    scaler, again = precision("fp16").scaler, precision("fp16").scaler
    for gradient in (float("inf"), 1.0, 1.0):
        overflow(scaler, gradient)
    torch.save(scaler.state_dict(), tmp_path / "scaler.pt")
    again.load_state_dict(torch.load(tmp_path / "scaler.pt", weights_only=True))
    assert again.get_scale() == 32768.0 and again.skipped() == 1.0
    assert again.state_dict() == scaler.state_dict() and again.state_dict()["_growth_tracker"] == 2
    overflow(scaler, float("inf"))
    overflow(again, float("inf"))
    assert again.state_dict() == scaler.state_dict()
    assert again.skipped() == 2.0


@pytest.mark.parametrize("name", ["fp16", "bf16"])
def test_without_kernels_low_precision_is_inactive_unless_forced(name, no_low_precision, monkeypatch):
    idle = build_precision(tier("baseline", precision=name), torch.device("cpu"))
    assert idle.switches[0].acted == "fp32" and f"this CPU has no {name} kernels" in idle.switches[0].reason
    assert not idle.scaler.is_enabled()
    forced = precision(name)
    assert forced.switches[0].active and forced.switches[0].acted.startswith(f"{name} autocast")
    assert forced.scaler.is_enabled() == (name == "fp16")
    for variable in ("ONEDNN_MAX_CPU_ISA", "DNNL_MAX_CPU_ISA"):
        monkeypatch.delenv(variable, raising=False)
    flags = {"fp16": "amx_fp16", "bf16": "avx512_bf16"}
    for other, flag in flags.items():
        monkeypatch.setattr(torch.cpu, "get_capabilities", lambda flag=flag: {flag: True})
        assert build_precision(tier("baseline", precision=name), torch.device("cpu")).switches[0].active == (
            name == other
        )
