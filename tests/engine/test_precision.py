"""Operations with a number format of their own, and a scaler that counts what it skips.

Seen red once by breaking the code: autocast acting inside a listed operation, a function left out, steps counted that
were not skipped, scale or count forgotten at resume.
"""

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from trajectory import tier

from faze.config.parameters import AutocastOperation
from faze.engine.operations import FUNCTIONS, formats_of
from faze.engine.precision import Scaler, build_precision

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


def test_every_name_of_the_config_has_its_functions():
    assert set(FUNCTIONS) == set(AutocastOperation.__args__) == set(CALLS)


@pytest.mark.parametrize("name", CALLS)
def test_operation_is_kept_and_forced(name):
    with torch.autocast("cpu", torch.bfloat16), formats_of([name], [], torch.bfloat16, "cpu")():
        assert CALLS[name](torch.bfloat16).dtype == torch.float32
    with torch.autocast("cpu", torch.bfloat16), formats_of([], [name], torch.bfloat16, "cpu")():
        assert CALLS[name](torch.float32).dtype == torch.bfloat16


def test_modules_are_reached_and_other_operations_left_to_autocast():
    with torch.autocast("cpu", torch.bfloat16), formats_of(["conv"], [], torch.bfloat16, "cpu")():
        assert nn.Conv2d(4, 2, 3, bias=False)(IMAGE).dtype == torch.float32
        assert nn.Linear(8, 2)(IMAGE).dtype == torch.bfloat16


def precision(name: str, **lists):
    return build_precision(tier("baseline", precision=name, force=True, **lists), torch.device("cpu"))


def test_autocast_enters_the_lists():
    with precision("bf16", keep_fp32=("linear",)).autocast():
        assert F.linear(IMAGE, torch.ones(5, 8)).dtype == torch.float32
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
    assert scaler.counts() == {"train/skipped_steps": 2.0}
    assert scaler.get_scale() == 65536.0 / 4


def test_scaler_that_is_off_counts_nothing():
    scaler = precision("bf16").scaler
    overflow(scaler, float("inf"))
    assert scaler.counts() == {} and scaler.state_dict() == {}


def test_scale_growth_and_count_continue_from_a_file(tmp_path):
    scaler, again = precision("fp16").scaler, precision("fp16").scaler
    for gradient in (float("inf"), 1.0, 1.0):
        overflow(scaler, gradient)
    torch.save(scaler.state_dict(), tmp_path / "scaler.pt")
    again.load_state_dict(torch.load(tmp_path / "scaler.pt", weights_only=True))
    assert again.get_scale() == 32768.0
    overflow(scaler, float("inf"))
    overflow(again, float("inf"))
    assert again.state_dict() == scaler.state_dict()
    assert again.counts() == {"train/skipped_steps": 2.0}


@pytest.mark.parametrize("precision", ["fp16", "bf16"])
def test_a_processor_without_kernels_is_called_by_its_name(monkeypatch, precision):
    for name in ("_is_amx_fp16_supported", "_is_avx512_bf16_supported"):
        monkeypatch.setattr(torch.cpu, name, lambda: False)
    switches = build_precision(tier("baseline", precision=precision), torch.device("cpu")).switches
    (switch,) = (switch for switch in switches if switch.switch == "precision")
    assert switch.reason.startswith(f"this CPU has no {precision} kernels, autocast would be many times slower")
