"""Fused and compiled steps are the same experiment, and report where they cannot act.

The Triton kernels run on a GPU if there is one, and otherwise in Triton's interpreter (tests/conftest.py).
"""

import os
import platform
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.distributed as dist
from torch import nn
from trajectory import STEPS, bare_model, losses, setup, tier, trained
from weight_changes import assert_alike

from faze.engine.execution import set_compile, set_fused_norm
from faze.engine.switches import Switch
from faze.model.norm_act import EPSILON, SLOPE, activate

CPU = torch.device("cpu")
LAYOUTS = [torch.contiguous_format, torch.channels_last]


def planes(dtype: torch.dtype, layout: torch.memory_format, shape=(2, 5, 6, 8)) -> tuple[torch.Tensor, torch.Tensor]:
    """Return an input that is far from mean 0 and standard deviation 1, and an output gradient."""
    random = torch.Generator().manual_seed(0)
    x, grad = (torch.randn(shape, generator=random, dtype=torch.float64) for _ in range(2))
    return (3 * x + 5).to(dtype).contiguous(memory_format=layout), grad.to(dtype)


def stock(x: torch.Tensor, grad: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the result and gradient of torch's own two operations in float64."""
    x = x.double().requires_grad_()
    y = activate(x)
    y.backward(grad.double())
    return y.detach(), x.grad


# --- InstanceNorm and LeakyReLU as one operation -------------------------------------------------------------------


@pytest.mark.parametrize("layout", LAYOUTS)
def test_fused_norm_is_the_stock_pair_in_the_same_layout(layout):
    x, grad = planes(torch.float64, layout)
    x.requires_grad_()
    y = activate(x, fused=True)
    y.backward(grad)
    expected = stock(x.detach(), grad)
    for found, wanted in zip((y.detach(), x.grad), expected, strict=True):
        torch.testing.assert_close(found, wanted, rtol=1e-12, atol=1e-12)
    assert y.is_contiguous(memory_format=layout) and x.grad.is_contiguous(memory_format=layout)
    assert torch.autograd.gradcheck(lambda x: activate(x, fused=True), x.detach().requires_grad_())


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_fused_norm_sums_low_precision_in_float32(layout, dtype):
    """Precision is lost only by rounding the input, the output and the gradient."""
    x, grad = planes(dtype, layout, (2, 3, 64, 96))
    x.requires_grad_()
    y = activate(x, fused=True)
    y.backward(grad)
    rounding = torch.finfo(dtype).eps
    for found, wanted in zip((y, x.grad), stock(x.detach(), grad), strict=True):
        assert found.dtype == dtype
        assert (found.double() - wanted).abs().max() < 2 * rounding * wanted.abs().max()


@pytest.mark.parametrize(("fused", "kept"), [(False, 2), (True, 1)])
def test_fused_norm_keeps_what_the_convolution_reads_and_nothing_else(fused, kept):
    conv = nn.Conv2d(5, 4, 3, bias=False, dtype=torch.float64)
    x, _ = planes(torch.float64, torch.contiguous_format)
    storages = {}

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        if tensor.numel() >= x.numel() and tensor is not conv.weight:
            storages[tensor.untyped_storage().data_ptr()] = tensor
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        conv(activate(x.requires_grad_(), fused=fused))
    assert len(storages) == kept


@pytest.mark.skipif(platform.machine() != "x86_64", reason="the test extra has Triton for x86_64 only")
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("shape", [(2, 5, 3, 7), (1, 70, 4, 6), (2, 3, 64, 50)])
def test_triton_kernels_are_the_stock_pair(dtype, layout, shape, monkeypatch):
    """Planes are shorter or longer than a tile, channels do not fill a tile, and the gradient has another layout."""
    from faze.model import fused_norm_triton as kernels

    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    x, grad = (tensor.to(device) for tensor in planes(dtype, layout, shape))
    monkeypatch.setattr("torch.empty_like", lambda like: torch.full_like(like, torch.nan))
    y, scale = kernels.forward(x.flatten(2), EPSILON, SLOPE)
    by_x = kernels.backward(grad.flatten(2), y, scale, SLOPE)
    close = 1e-12 if dtype == torch.float64 else 2 * torch.finfo(dtype).eps
    for found, wanted in zip((y, by_x), stock(x, grad), strict=True):
        assert (found.view_as(wanted).double() - wanted).abs().max() < close * wanted.abs().max()


FUSED = [{}, {"channels_last": True}, {"accumulate": 2}]


@pytest.mark.parametrize("switches", FUSED)
def test_fused_norm_gives_the_baseline(switches, baseline_float64, baseline_float32):
    engine = tier("baseline", fused_norm=True, **switches)
    found = losses(engine, steps=STEPS, dtype=torch.float64)
    np.testing.assert_allclose(found, baseline_float64, rtol=1e-10)
    assert found != baseline_float64  # it did act
    np.testing.assert_allclose(losses(engine, steps=5, dtype=torch.float32), baseline_float32, rtol=1e-6)


def test_forced_bf16_with_fused_norm_moves_the_weights_as_the_baseline_does(trained_float32):
    """Regression: the fused operation had no gradient."""
    engine = tier("baseline", precision="bf16", fused_norm=True, force=True)
    assert_alike(trained(engine, steps=5, dtype=torch.float32).moved, trained_float32.moved, "bf16")


# --- torch.compile -------------------------------------------------------------------------------------------------


@pytest.fixture
def shallow(monkeypatch) -> None:
    """Build a network with one layer per dense block: every kind of operation, and a third of the kernels."""
    monkeypatch.setattr("faze.model.densenet.LAYERS", 1)


@pytest.fixture
def process_group() -> Iterator[None]:
    """Set up DistributedDataParallel in one process, so that its hooks and buckets are in the graph."""
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()


@pytest.mark.compiled
@pytest.mark.parametrize(("dtype", "steps", "rtol"), [(torch.float64, STEPS, 1e-10), (torch.float32, 5, 1e-6)])
def test_compiled_step_gives_the_baseline(shallow, process_group, dtype, steps, rtol):
    """One test covers everything that the tier `fused_norm` compiles, since compiling takes a long time."""
    expected = losses(tier("baseline"), steps=steps, dtype=dtype)
    engine = tier("ddp", precision="fp32", compile="default", fused_norm=True, channels_last=True, accumulate=2)
    found = losses(engine, steps=steps, dtype=dtype)
    np.testing.assert_allclose(found, expected, rtol=rtol)
    assert found != expected  # it did act


def test_compiling_leaves_the_names_of_the_weights():
    plain, compiled = (setup(tier("baseline", compile=m)).step for m in ("eager", "default"))
    assert compiled.model._compiled_call_impl is not None
    assert list(bare_model(compiled).state_dict()) == list(bare_model(plain).state_dict())


# --- where they have no effect ---------------------------------------------------------------------------------------


def compiled(device: torch.device = CPU, *, replicas: int = 1, recompute: bool = False) -> Switch:
    module = nn.Linear(2, 2)
    switch = set_compile(module, "default", device=device, replicas=replicas, recompute=recompute)
    assert (module._compiled_call_impl is not None) == switch.active == (switch.acted != "eager")
    return switch


def test_compile_gives_the_reason_if_it_is_inactive(monkeypatch, tmp_path):
    assert "DataParallel" in compiled(replicas=2).reason
    assert "recompute" in compiled(recompute=True).reason
    assert "Triton" in compiled(torch.device("cuda")).reason
    for variable in ("TORCHDYNAMO_DISABLE", "TORCH_COMPILE_DISABLE"):
        with monkeypatch.context() as patch:  # regression: the log said that the step was compiled
            patch.setenv(variable, "1")
            assert f"{variable}=1" in compiled().reason
    with monkeypatch.context() as patch:
        patch.setenv("PATH", str(tmp_path))
        patch.delenv("CXX", raising=False)
        assert "C++ compiler" in compiled().reason
    monkeypatch.setattr("sysconfig.get_path", lambda name: "/no/such/folder")
    assert "header" in compiled().reason


def test_libraries_of_a_killed_compiler_are_compiled_again(tmp_path, monkeypatch):
    """Regression: torch.compile failed with "file too short" in every later training run."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("TORCHINDUCTOR_CACHE_DIR", raising=False)
    whole = Path(torch._C.__file__).read_bytes()
    folder = tmp_path / ".cache" / "faze" / "inductor" / "ab"
    folder.mkdir(parents=True)
    contents = {"whole": whole, "empty": b"", "cut": whole[: len(whole) // 2], "headless": bytes(len(whole))}
    for name, content in contents.items():
        (folder / f"{name}.so").write_bytes(content)
        os.utime(folder / f"{name}.so", (1, 1))
    compiled()
    assert [path.stem for path in folder.iterdir()] == ["whole"]


class Part(nn.Module):
    fused_norm = False

    def __init__(self, recompute: bool) -> None:
        super().__init__()
        self.recompute = recompute


def test_fused_norm_reports_where_it_acts():
    plain = nn.Sequential(Part(False), Part(False))
    assert set_fused_norm(plain, True, CPU).acted == "torch operations" and all(part.fused_norm for part in plain)
    set_fused_norm(plain, False, CPU)
    assert not any(part.fused_norm for part in plain)
    mixed = set_fused_norm(nn.Sequential(Part(True), Part(False), Part(True)), True, CPU)
    assert mixed.acted == "torch operations, in 1 of 3 parts; the others are recompute layers"
    recompute = set_fused_norm(nn.Sequential(Part(True)), True, CPU)
    assert not recompute.active and "recompute" in recompute.reason
    nowhere = set_fused_norm(nn.Linear(2, 2), True, CPU)
    assert not nowhere.active and "no part of the model" in nowhere.reason
