"""The parameters of faze, section by section: their types and bounds.

What each means, its unit and its only default stand in config/config.yaml; `faze.config.validation` checks them. The
parameters of the data stand in `faze.config.data_parameters`.
"""

from dataclasses import dataclass
from typing import Annotated, Literal, get_args

from faze.config.check import MayBeEmpty, Range
from faze.config.data_parameters import (
    Augment,
    Count,
    Data,
    Landmarks,
    NonNegative,
    Positive,
    Preprocess,
    Share,
    Synthetic,
)

# Of DT-ED, between its codes and its images; `faze.engine.precision` knows their functions.
AutocastOperation = Literal[
    "conv", "conv_transpose", "linear", "instance_norm", "leaky_relu", "relu", "avg_pool", "mean"
]


# Trainings of the baseline that nothing but chance tells from it. They stand where a tier's name does.
Control = Literal["rounding", "seed"]
CONTROLS = get_args(Control)


@dataclass(frozen=True)
class Run:
    """Which rungs and seeds are trained."""

    tiers: list[str]
    seeds: list[Count]
    controls: Annotated[list[Control], MayBeEmpty()]


@dataclass(frozen=True)
class Engine:
    """The switches of one tier; meanings and units in config.yaml."""

    device: Literal["auto", "cpu", "cuda"]
    precision: Literal["fp32", "fp16", "bf16"]
    tf32: bool
    force: bool
    keep_fp32: Annotated[list[AutocastOperation], MayBeEmpty()]
    force_low: Annotated[list[AutocastOperation], MayBeEmpty()]
    parallel: Literal["single", "dp", "ddp"]
    processes: Count
    bucket_mib: NonNegative
    optimizer: Literal["sgd", "fused_sgd", "adamw", "lamb", "lars", "novograd"]
    foreach: bool
    set_to_none: bool
    cudnn_benchmark: bool
    channels_last: bool
    compile: Literal["eager", "default", "max-autotune-no-cudagraphs"]
    fused_norm: bool
    recompute: bool
    checkpointing: bool
    accumulate: Positive
    allocator: Literal["default", "keep"]
    pin: bool
    resident: bool
    graphs: bool


@dataclass(frozen=True)
class Model:
    """DT-ED."""

    growth: Positive
    blocks: Annotated[int, Range(1, 4)]
    image_height_px: Positive
    image_width_px: Positive
    z_app: Positive
    z_gaze: Positive
    z_head: Positive
    decoder_channels: Positive
    normalize_axis: Annotated[int, Range(0, 3)]
    backprop_gaze: bool


@dataclass(frozen=True)
class ImageSize:
    """What of DT-ED the estimator knows: the size of its images."""

    image_height_px: Positive
    image_width_px: Positive


@dataclass(frozen=True)
class Loss:
    """Weights of the loss terms, and the pairs over which they compare samples."""

    reconstruction_l1: NonNegative
    embedding_consistency: NonNegative
    gaze_angle: NonNegative
    triplet_angular: NonNegative
    triplet_euclidean: NonNegative
    all_equal: NonNegative
    gaze_mse: NonNegative
    triplet_margin: float
    ramp_pairs: Count
    chunk_pairs: Positive


@dataclass(frozen=True)
class Train:
    """Schedule, counted in pairs."""

    pairs: Positive
    global_batch: Positive
    base_lr: NonNegative
    head_lr: NonNegative
    warmup_pairs: Count
    decay_share: Share
    momentum: Share
    weight_decay: NonNegative
    clip_norm: NonNegative
    log_every_pairs: Positive
    validate_every_pairs: Positive
    checkpoint_every_pairs: Positive
    lr_scaling: Literal["linear", "sqrt", "none"]


@dataclass(frozen=True)
class TrainSection(Train):
    """The whole section `train`: a benchmark measures with the threads that it is given itself."""

    threads: Positive


@dataclass(frozen=True)
class Encode:
    """Codes of every stored strip."""

    batch: Positive


MOST_HIDDEN = 4096  # the compiled kernel of few-shot learning has networks on its stack
META_LEARNERS = frozenset({"maml", "fomaml", "meta_sgd", "reference"})  # who learn from tasks


@dataclass(frozen=True)
class Fewshot:
    """Meta-training and adaptation: what both of a learner's stages know."""

    shots: list[Positive]
    seed: Count
    draws: Literal["random", "grid"]
    init: Literal["random", "gaze_head"]
    hidden: Annotated[int, Range(1, MOST_HIDDEN)]
    query_entries: Positive
    meta_query: Positive
    tasks: Positive
    outer_steps: Positive
    outer_lr: NonNegative
    inner_lr: NonNegative
    inner_steps: Positive
    validate_every_steps: Positive
    repeats: Positive
    adapt_steps: Positive
    adapt_lr: NonNegative
    record_steps: Annotated[list[Positive], MayBeEmpty()]
    stopping: Literal["fixed", "validation"]


@dataclass(frozen=True)
class FewshotAdapt(Fewshot):
    """With what adaptation alone knows, and no learner is trained anew for."""

    min_entries: Positive
    predictions: bool


@dataclass(frozen=True)
class FewshotSection(FewshotAdapt):
    """The whole section `fewshot`: one learner more runs nothing of the others again."""

    learners: list[
        Literal["maml", "fomaml", "meta_sgd", "reference", "none", "offset", "affine", "kappa", "bayes", "gp"]
    ]


@dataclass(frozen=True)
class Walk:
    """Latent walks."""

    people: Positive
    range_deg: Annotated[float, Range(0, 90)]
    frames: Annotated[int, Range(2)]
    fps: Positive


@dataclass(frozen=True)
class Estimator:
    """The estimator that judges redirected strips."""

    seed: Count
    channels: Positive
    strips: Positive
    batch: Annotated[int, Range(2)]
    lr: NonNegative
    weight_decay: NonNegative
    blur_px: NonNegative


@dataclass(frozen=True)
class Redirect:
    """Redirected strips."""

    strips: Annotated[int, Range(2)]
    seed: Count


@dataclass(frozen=True)
class Benchmark:
    """Timed steps."""

    warmup_steps: Positive
    warmup_blocks: Annotated[int, Range(3)]
    steady_share: Share
    block_steps: Positive
    blocks: Annotated[int, Range(2)]
    rounds: Positive
    leave_one_out: bool
    paper_width: bool


@dataclass(frozen=True)
class Evaluate:
    """Intervals and the equivalence test."""

    confidence: Annotated[float, Range(0.5, 0.9999)]
    resamples: Annotated[int, Range(100)]
    margin_deg: NonNegative
    learner_margin_deg: NonNegative
    seed: Count


@dataclass(frozen=True)
class Sweep:
    """Trainings of the first tier with other values; `faze.config.sweep` makes points of it."""

    grid: dict[str, list[object]]
    sobol: dict[str, list[object]]
    points: Annotated[int, Range(0, 1000)]


@dataclass(frozen=True)
class Report:
    """The page."""

    title: str
    note: str


@dataclass(frozen=True)
class Tracking:
    """MLflow."""

    experiment: str
    uri: str | None


SECTIONS: dict[str, type] = {
    "run": Run,
    "synthetic": Synthetic,
    "preprocess": Preprocess,
    "landmarks": Landmarks,
    "data": Data,
    "augment": Augment,
    "model": Model,
    "loss": Loss,
    "train": TrainSection,
    "encode": Encode,
    "fewshot": FewshotSection,
    "walk": Walk,
    "estimator": Estimator,
    "redirect": Redirect,
    "benchmark": Benchmark,
    "evaluate": Evaluate,
    "sweep": Sweep,
    "report": Report,
    "tracking": Tracking,
}
