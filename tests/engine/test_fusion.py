"""Fused and compiled steps are the same experiment, and report where they cannot act.

The Triton kernels run on a GPU if there is one, and otherwise in Triton's interpreter (tests/conftest.py).
"""

import os
import platform
import weakref
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.distributed as dist
from torch import nn
from trajectory import STEPS, bare_model, losses, setup, tier

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
@pytest.mark.parametrize("dtype", [torch.float64, torch.float16, torch.bfloat16])
def test_fused_norm_is_the_stock_pair_in_the_same_layout(dtype, layout):
    """Precision is lost only by rounding the input, the output and the gradient, since sums are in float32."""
    x, grad = planes(dtype, layout, (2, 3, 64, 96))
    y = activate(x.requires_grad_(), fused=True)
    y.backward(grad)
    close = 1e-12 if dtype == torch.float64 else 2 * torch.finfo(dtype).eps
    for found, wanted in zip((y, x.grad), stock(x.detach(), grad), strict=True):
        assert found.dtype == dtype and found.is_contiguous(memory_format=layout)
        assert (found.double() - wanted).abs().max() < close * wanted.abs().max()


def test_the_gradient_of_fused_norm_is_that_of_its_values():
    x = planes(torch.float64, torch.contiguous_format)[0].requires_grad_()
    assert torch.autograd.gradcheck(lambda x: activate(x, fused=True), x)


@pytest.mark.parametrize(("fused", "kept"), [(False, 2), (True, 1)])
def test_fused_norm_keeps_what_the_convolution_reads_and_nothing_else(fused, kept):
    conv = nn.Conv2d(5, 4, 3, bias=False, dtype=torch.float64)
    x = planes(torch.float64, torch.contiguous_format)[0].requires_grad_() * 1
    size, given, storages = x.numel(), weakref.ref(x), {}

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        if tensor.numel() >= size and tensor is not conv.weight:
            storages[tensor.untyped_storage().data_ptr()] = tensor
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        y = conv(activate(x, fused=fused))
    del x
    assert len(storages) == kept and (given() is None) == fused and y.requires_grad


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


# --- torch.compile -------------------------------------------------------------------------------------------------


@pytest.fixture
def process_group() -> Iterator[None]:
    """Set up DistributedDataParallel in one process, so that its hooks and buckets are in the graph."""
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()


@pytest.mark.compiled
def test_compiled_step_gives_the_baseline(process_group, monkeypatch):
    """One test covers everything that the tier `fused_norm` compiles, with one layer per dense block: it takes long."""
    monkeypatch.setattr("faze.model.densenet.LAYERS", 1)
    expected = losses(tier("baseline"), steps=STEPS, dtype=torch.float64)
    engine = tier("ddp", precision="fp32", compile="default", fused_norm=True, channels_last=True, accumulate=2)
    found = losses(engine, steps=STEPS, dtype=torch.float64)
    np.testing.assert_allclose(found, expected, rtol=1e-10)
    assert found != expected  # it did act


def test_compiling_leaves_the_names_of_the_weights():
    plain, compiled = (setup(tier("baseline", compile=m)).step for m in ("eager", "default"))
    assert compiled.model._compiled_call_impl is not None
    assert list(bare_model(compiled).state_dict()) == list(bare_model(plain).state_dict())


class Breaking(nn.Linear):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        torch._dynamo.graph_break()
        return super().forward(x)


def test_a_graph_break_is_an_error():
    module = Breaking(2, 2)
    assert set_compile(module, "default", device=CPU, replicas=1, recompute=False).active
    with pytest.raises(torch._dynamo.exc.Unsupported):
        module(torch.ones(1, 2))


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
    for wanted, acted in ((True, "torch operations"), (False, "false")):
        assert set_fused_norm(plain, wanted, CPU).acted == acted
        assert all(part.fused_norm == wanted for part in plain)
    recompute = set_fused_norm(nn.Sequential(Part(True)), True, CPU)
    assert not recompute.active and "recompute" in recompute.reason
    nowhere = set_fused_norm(nn.Linear(2, 2), True, CPU)
    assert not nowhere.active and "no part of the model" in nowhere.reason
