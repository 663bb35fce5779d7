"""Switches: what acts on a CPU, and what says why it does not."""

import dataclasses
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from trajectory import TRAIN, tier

from faze import engine
from faze.config.tiers import resolve_tier
from faze.config.yaml_files import read_yaml
from faze.engine import memory
from faze.engine.convolution import set_channels_last
from faze.engine.optim import build_optimizer
from faze.engine.parallel import World, count_processes, pick_device
from faze.engine.step import Step
from faze.engine.wrap import build_wrap, check_chunks

CONFIG = read_yaml(Path(__file__).resolve().parents[2] / "config" / "config.yaml")
CPU = World(0, 1, torch.device("cpu"))


class Line(torch.nn.Module):
    """One weight; its loss is the squared distance to the target."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.tensor(1.0))

    def forward(self, batch):
        return {"near": (self.weight - batch["target"]).square().mean(), "small": self.weight.abs()}


def make(tier: str, *, clip_norm: float = 0.0, **switches) -> Step:
    return engine.build(
        lambda precision: Line(),
        lambda module: [{"params": list(module.parameters()), "lr": 0.1}],
        engine=dataclasses.replace(resolve_tier(CONFIG["tiers"], tier), device="cpu", **switches),
        train=dataclasses.replace(TRAIN, momentum=0.0, weight_decay=0.0, clip_norm=clip_norm),
        world=CPU,
    )


def test_step_descends_the_weighted_sum():
    step = make("baseline")
    losses = step({"target": torch.tensor([3.0])}, {"near": 1.0, "small": 0.5})
    assert losses["loss"] == pytest.approx(4.0 + 0.5)
    assert step.model.weight.item() == pytest.approx(1.0 - 0.1 * (-4.0 + 0.5))


@pytest.mark.parametrize(("clip_norm", "moved"), [(0.0, 0.4), (1.0, 0.1), (100.0, 0.4)])
def test_clipping_shortens_only_longer_gradients(clip_norm, moved):
    step = make("baseline", clip_norm=clip_norm)
    step({"target": torch.tensor([3.0])}, {"near": 1.0, "small": 0.0})  # a gradient of -4
    assert step.model.weight.item() == pytest.approx(1.0 + moved)


def test_clipping_measures_the_gradient_without_the_loss_scale():
    step = make("amp", clip_norm=2.0, force=True)
    step.scaler.load_state_dict(step.scaler.state_dict() | {"scale": 1024.0})
    step({"target": torch.tensor([3.0])}, {"near": 1.0, "small": 0.0})
    assert step.model.weight.item() == pytest.approx(1.2, rel=1e-4)


def test_clipping_leaves_a_step_that_overflows_to_the_scaler():
    step = make("amp", clip_norm=2.0, force=True)
    step({"target": torch.tensor([float("inf")])}, {"near": 1.0, "small": 0.0})
    assert step.model.weight.item() == 1.0
    assert step.scaler.get_scale() < 65536.0


@pytest.mark.parametrize(("set_to_none", "left"), [(True, True), (False, False)])
def test_gradients_are_freed_only_if_asked(set_to_none, left):
    step = make("baseline", set_to_none=set_to_none)
    step({"target": torch.tensor([3.0])}, {"near": 1.0, "small": 0.0})
    assert (step.model.weight.grad is None) == left


def test_every_switch_is_reported_once_and_inactive_ones_say_why():
    switches = {s.switch: s for s in make("baseline", precision="fp16", cudnn_benchmark=True, tf32=True).switches}
    names = {
        "precision",
        "tf32",
        "cudnn_benchmark",
        "channels_last",
        "recompute",
        "parallel",
        "accumulate",
        "optimizer",
    }
    names |= {"processes", "bucket_mib", "force", "keep_fp32", "force_low"}
    names |= {"checkpointing", "allocator", "graphs"}
    names |= {"compile", "fused_norm"}
    assert set(switches) == names
    assert not switches["cudnn_benchmark"].active and "CUDA" in switches["cudnn_benchmark"].reason
    assert not switches["tf32"].active
    assert not switches["parallel"].active and "DataParallel" in switches["parallel"].reason
    assert switches["optimizer"].active
    if not torch.cpu._is_amx_fp16_supported():
        assert not switches["precision"].active and switches["precision"].acted == "fp32"


def test_channels_last_leaves_the_recompute_layers_their_planes():
    conv = torch.nn.Conv2d(2, 2, 3)
    assert set_channels_last(conv, True, recompute=False).active
    assert conv.weight.is_contiguous(memory_format=torch.channels_last)
    recompute = set_channels_last(conv, True, recompute=True)
    assert conv.weight.is_contiguous() and recompute.acted == "false" and "recompute" in recompute.reason


def test_baseline_turns_off_what_today_is_on_by_default():
    torch.backends.cudnn.allow_tf32 = True
    group = make("baseline").optimizer.param_groups[0]
    assert (group["foreach"], group["fused"]) == (False, False)
    assert not torch.backends.cudnn.allow_tf32 and not torch.backends.cudnn.benchmark


def test_cudnn_search_is_set_for_its_tier_alone_and_marked_inactive_on_a_cpu(monkeypatch):
    """On a CPU its code is the baseline's, so that no comparison of losses says anything: a GPU proves it.

    Seen red: a flag that the next tier finds set; one that is never set; a switch that says it acts on a CPU.
    """
    monkeypatch.setattr(torch.backends.cudnn, "benchmark", False)
    [switch] = [s for s in make("baseline", cudnn_benchmark=True).switches if s.switch == "cudnn_benchmark"]
    assert torch.backends.cudnn.benchmark
    assert (switch.wanted, switch.acted, switch.active) == ("true", "false", False) and "CUDA" in switch.reason
    make("baseline")
    assert not torch.backends.cudnn.benchmark


def test_the_rung_autotune_is_the_one_above_it_with_cudnn_search():
    """All that a CPU can show of it, with the test above."""
    autotune, above = (resolve_tier(CONFIG["tiers"], rung) for rung in ("autotune", "fused_sgd"))
    assert autotune == dataclasses.replace(above, cudnn_benchmark=True) != above


def test_fused_sgd_without_apex_is_torchs():
    weight = torch.nn.Parameter(torch.ones(3))
    settings = {"momentum": 0.9, "weight_decay": 0.0, "foreach": False, "device": torch.device("cpu")}
    optimizer, switch = build_optimizer("fused_sgd", [{"params": [weight], "lr": 0.1}], **settings)
    assert optimizer.param_groups[0]["fused"] and switch.acted == "torch SGD, fused"


def test_fused_sgd_skips_an_overflow_in_its_first_step(monkeypatch):
    """Torch makes its momentum of whatever lies in memory, here made visible, and fills it in the first step."""
    monkeypatch.setattr(torch, "empty_like", lambda like: torch.full_like(like, float("nan")))
    weight = torch.nn.Parameter(torch.ones(3))
    settings = {"momentum": 0.9, "weight_decay": 0.0, "foreach": False, "device": torch.device("cpu")}
    optimizer, _ = build_optimizer("fused_sgd", [{"params": [weight], "lr": 0.1}], **settings)
    scaler = torch.amp.GradScaler("cpu", init_scale=4.0)
    for gradient in (float("inf"), 1.0):
        scaler.scale((weight * gradient).sum()).backward()
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
    assert weight.tolist() == pytest.approx([1.0 - 0.1 * 1.9] * 3)


def test_bf16_without_kernels_is_inactive_and_with_force_acts(monkeypatch):
    monkeypatch.setattr(torch.cpu, "_is_avx512_bf16_supported", lambda: False)
    [idle] = [s for s in make("baseline", precision="bf16").switches if s.switch == "precision"]
    assert not idle.active and idle.acted == "fp32" and "bf16" in idle.reason
    forced = make("baseline", precision="bf16", force=True)
    [acting] = [s for s in forced.switches if s.switch == "precision"]
    assert acting.active and acting.acted == "bf16 autocast" and not forced.scaler.is_enabled()


def test_recompute_says_so_where_nothing_has_a_recompute_way():
    [recompute] = [s for s in make("baseline", recompute=True).switches if s.switch == "recompute"]
    assert not recompute.active and "no part" in recompute.reason


@pytest.mark.parametrize(
    ("switches", "words"),
    [
        ({"bucket_mib": 1.0}, "DistributedDataParallel"),
        ({"keep_fp32": ("mean",)}, "no operation is in low precision"),
        ({"force_low": ("mean",)}, "no operation is in low precision"),
        ({"checkpointing": True}, "no part of the model"),
        ({"checkpointing": True, "recompute": True}, "recompute layers"),
    ],
)
def test_switch_that_cannot_act_here_says_why(switches, words):
    name = next(iter(switches))
    [switch] = [s for s in make("baseline", parallel="single", **switches).switches if s.switch == name]
    assert not switch.active and words in switch.reason
    assert switch.acted == {"bucket_mib": "0.0", "keep_fp32": "none", "force_low": "none"}.get(name, "false")
    [idle] = [s for s in make("baseline", parallel="single").switches if s.switch == name]
    assert idle.active and idle.wanted == idle.acted == switch.acted


def test_ddp_takes_its_options(monkeypatch):
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "lo")
    # No file to meet at: one process alone has been seen to wait for ever, https://github.com/pytorch/pytorch/issues/31467
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    try:
        wrap = build_wrap(tier("ddp", bucket_mib=0.5), CPU)
        plain = build_wrap(tier("ddp"), CPU).module(Line())
        module = wrap.module(Line())
        assert (module.bucket_bytes_cap, plain.bucket_bytes_cap) == (2**19, 25 * 2**20)
        assert plain.bucket_bytes_cap_default
        del plain, module  # freed after their group, they have been seen to wait for ever
    finally:
        dist.destroy_process_group()
    assert all(switch.active for switch in wrap.switches)


@pytest.mark.parametrize(("wanted", "kept"), [("default", True), ("keep", False)])
def test_memory_that_is_kept_or_not_from_the_start_says_so(wanted, kept, monkeypatch):
    monkeypatch.setattr(memory, "keeps_memory", lambda: kept)
    [switch] = [s for s in make("baseline", allocator=wanted).switches if s.switch == "allocator"]
    assert not switch.active and switch.acted == ("keep" if kept else "default")
    monkeypatch.setattr(memory, "keeps_memory", lambda: not kept)
    [switch] = [s for s in make("baseline", allocator=wanted).switches if s.switch == "allocator"]
    assert switch.active and switch.acted == wanted


def test_accumulated_parts_are_the_big_step():
    batch = {"target": torch.tensor([3.0, 5.0, -1.0, 2.0])}
    whole, parts = make("baseline"), make("baseline", accumulate=2)
    assert (whole.shares, parts.shares) == (1, 2)
    once, twice = (step(batch, {"near": 1.0, "small": 0.5}) for step in (whole, parts))
    assert twice["loss"] == pytest.approx(once["loss"])
    assert parts.model.weight.item() == pytest.approx(whole.model.weight.item())
    with pytest.raises(ValueError, match=r"4 pairs .*accumulate 3"):
        make("baseline", accumulate=3)(batch, {"near": 1.0, "small": 0.5})


def test_chunks_must_be_whole_in_every_process():
    check_chunks(2048, 256, 8)
    with pytest.raises(ValueError, match=r"global_batch 2048 .*16 processes.*chunk_pairs 256"):
        check_chunks(2048, 256, 16)


def test_cuda_that_is_not_there_is_one_sentence(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert pick_device("auto").type == "cpu"
    with pytest.raises(ValueError, match=r"engine\.device"):
        pick_device("cuda")


def test_processes_default_to_two_on_a_cpu():
    climbed = dataclasses.replace(resolve_tier(CONFIG["tiers"], "ddp"), device="cpu")
    assert count_processes(climbed) == 2
    assert count_processes(dataclasses.replace(climbed, processes=3)) == 3
    assert count_processes(dataclasses.replace(climbed, parallel="single")) == 1


def test_more_processes_than_gpus_are_refused(monkeypatch):
    """Seen red: torch's error about a device's number, reported as ours."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    climbed = resolve_tier(CONFIG["tiers"], "ddp")
    assert [count_processes(dataclasses.replace(climbed, processes=number)) for number in (0, 1)] == [1, 1]
    with pytest.raises(ValueError, match=r"engine\.processes 2: each needs a GPU of its own, and 1 can be seen here"):
        count_processes(dataclasses.replace(climbed, processes=2))
