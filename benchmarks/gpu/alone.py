"""Changes from the baseline to prove every value of every switch on its own: the rows of docs/switches.md."""

LOW = {"precision": "bf16"}
DDP = {"parallel": "ddp", "processes": 0}
FUSED = {"optimizer": "fused_sgd"}

# Compared with the baseline on one device.
SAME: dict[str, dict] = {
    "precision-fp16": {"precision": "fp16"},
    "precision-bf16": LOW,
    "force": LOW | {"force": True},
    "tf32": {"tf32": True},
    "keep_fp32": LOW | {"keep_fp32": ("conv",)},
    "force_low": LOW | {"force_low": ("mean", "avg_pool")},
    "parallel-dp": {"parallel": "dp"},
    "parallel-ddp": DDP,
    "processes": DDP | {"processes": 1},
    "sync_batchnorm": DDP | {"sync_batchnorm": True},
    "optimizer-fused_sgd": FUSED,
    "loss_scalers": {"loss_scalers": "shared", "precision": "fp16"},
    "set_to_none": {"set_to_none": True},
    "cudnn_benchmark": {"cudnn_benchmark": True},
    "channels_last": {"channels_last": True},
    "fused_norm": {"fused_norm": True},
    "recompute": {"recompute": True},
    "checkpointing": {"checkpointing": True},
    "accumulate": {"accumulate": 2},
    "allocator": {"allocator": "keep"},
    "pin-false": {"pin": False},
    "resident": {"resident": True},
    "graphs": {"graphs": True} | FUSED,
    "graphs-part": {"graphs": True},  # the optimiser stays outside
    "graphs-fp16": {"graphs": True, "precision": "fp16"} | FUSED,
    "graphs-ddp": {"graphs": True} | FUSED | DDP,
    "compile": {"compile": "default"},
}
# Another experiment than the baseline, or the baseline itself: compared with the same engine on the CPU.
OTHERWISE: dict[str, dict] = {
    "device": {},
    "optimizer-adamw": {"optimizer": "adamw"},
    "optimizer-fused_adamw": {"optimizer": "fused_adamw"},
    "optimizer-lamb": {"optimizer": "lamb"},
    "optimizer-nvlamb": {"optimizer": "nvlamb"},
    "optimizer-lars": {"optimizer": "lars"},
    "optimizer-novograd": {"optimizer": "novograd"},
}
LAST: dict[str, dict] = {"compile-max": {"compile": "max-autotune-no-cudagraphs"}}  # takes minutes
