"""The parameters of faze, section by section: their types and bounds, and the sections of each stage.

The meaning, unit and default of each parameter are in config/config.yaml; `faze.config.validation` checks the values.
"""

from dataclasses import dataclass
from typing import Annotated, Any, Literal, get_args

from faze.config.check import MayBeEmpty, Range

Count = Annotated[int, Range(0)]
Positive = Annotated[int, Range(1)]
NonNegative = Annotated[float, Range(0)]
Share = Annotated[float, Range(0, 1)]


@dataclass(frozen=True)
class Synthetic:
    """Rendered people."""

    seed: Count
    people: Literal["measured", "simple"]
    mpiigaze_people: Positive
    gazecapture_train_people: Positive
    gazecapture_val_people: Positive
    gazecapture_test_people: Positive
    frames_per_person: Positive
    gazecapture_train_frames: Positive | None
    jpeg_quality: Annotated[int, Range(1, 100)]
    kappa_spread_deg: NonNegative
    bias_deg: NonNegative


@dataclass(frozen=True)
class DataSet:
    """An entry of `preprocess.datasets`."""

    name: str
    layout: Literal["mpiifacegaze", "mpiigaze", "gazecapture", "manifest", "strips"]
    path: str | None = None
    supplementary: str | None = None
    splits: str = "stated"
    folds: Annotated[int, Range(3)] | None = None


@dataclass(frozen=True)
class Fold:
    """A fold of the people: its people are the test people, and those of the next fold the val people."""

    number: Count
    folds: Positive


RENDERED_LAYOUTS = ("mpiifacegaze", "gazecapture")  # the layouts in which faze renders people


@dataclass(frozen=True)
class NormalizedCamera:
    """The part of the `preprocess` section on which training depends: the virtual camera of the strips."""

    focal_length_px: Annotated[float, Range(1)]
    distance_mm: Annotated[float, Range(1)]
    width_px: Positive
    height_px: Positive


@dataclass(frozen=True)
class Preprocess(NormalizedCamera):
    """The part of the `preprocess` section on which the strips of every data set depend."""

    off_screen: Literal["keep", "exclude"]
    compatibility: Literal["none", "two_step"]


@dataclass(frozen=True)
class PreprocessSection(Preprocess):
    """The complete `preprocess` section."""

    datasets: list[DataSet]


@dataclass(frozen=True)
class Landmarks:
    """Estimation of head poses."""

    python: str | None
    model: str | None


@dataclass(frozen=True)
class Data:
    """The stored entries used for training."""

    min_entries: Annotated[int, Range(2)]
    memory_gib: NonNegative
    workers: Count | Literal["auto"]


@dataclass(frozen=True)
class Augment:
    """Random augmentation of training pairs."""

    flip: bool
    jitter_px: NonNegative
    zoom: Annotated[float, Range(0, 0.5)]
    color_scale: Share


# Operations of DT-ED; `faze.engine.precision` maps them to functions.
AutocastOperation = Literal[
    "conv", "conv_transpose", "linear", "instance_norm", "leaky_relu", "relu", "avg_pool", "mean"
]


# Training runs that differ from the baseline only by chance. Their names are used like those of tiers.
Control = Literal["rounding", "seed"]
CONTROLS = get_args(Control)


@dataclass(frozen=True)
class Run:
    """The tiers and seeds to train."""

    tiers: list[str] | Literal["auto"]
    seeds: list[Count]
    controls: Annotated[list[Control], MayBeEmpty()]


@dataclass(frozen=True)
class AutoTiers:
    """The tiers that run.tiers: auto trains on each device."""

    cpu: list[str]
    cuda: list[str]


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
    sync_batchnorm: bool
    optimizer: Literal["sgd", "fused_sgd", "adamw", "fused_adamw", "lamb", "nvlamb", "lars", "novograd"]
    loss_scalers: Literal["each", "shared"]
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
    """The network, DT-ED."""

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
    """The part of the `model` section on which the estimator depends."""

    image_height_px: Positive
    image_width_px: Positive


@dataclass(frozen=True)
class Loss:
    """Weights of the loss terms, and the number of pairs over which they compare samples."""

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

    def reached(self, backprop_gaze: bool) -> dict[str, bool]:
        """Return whether any term reaches each of PARTS; with backprop_gaze, the gaze terms reach the encoder."""
        gaze = bool(self.gaze_angle or self.gaze_mse)
        embedding = bool(self.embedding_consistency or self.triplet_angular or self.triplet_euclidean or self.all_equal)
        decoder = bool(self.reconstruction_l1)
        return {"encoder": decoder or embedding or (gaze and backprop_gaze), "decoder": decoder, "gaze_head": gaze}


PARTS = ("encoder", "decoder", "gaze_head")  # of DT-ED, with learning rates of their own


@dataclass(frozen=True)
class Train:
    """The training schedule, counted in pairs."""

    pairs: Count
    global_batch: Positive
    base_lr: NonNegative
    head_lr: NonNegative
    encoder_lr_factor: NonNegative
    decoder_lr_factor: NonNegative
    frozen: Annotated[list[str], MayBeEmpty()]
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
    """The complete `train` section. The benchmark needs neither `start` nor `threads`."""

    start: str | None
    threads: Positive


@dataclass(frozen=True)
class Threads:
    """The part of the `train` section that workloads other than DT-ED use."""

    threads: Positive


@dataclass(frozen=True)
class Encode:
    """Codes of every stored strip."""

    batch: Positive


MOST_HIDDEN = 4096  # the compiled kernel has networks on its stack
META_LEARNERS = frozenset({"maml", "fomaml", "meta_sgd", "reference"})  # learners that are trained on tasks


@dataclass(frozen=True)
class Fewshot:
    """The part of the `fewshot` section on which meta-training and adaptation depend."""

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
    """The same, plus the keys used only by adaptation; changing these does not re-run meta-training."""

    min_entries: Positive
    predictions: bool


@dataclass(frozen=True)
class FewshotSection(FewshotAdapt):
    """The complete `fewshot` section. Adding a learner re-runs none of the others."""

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
    """The estimator that evaluates redirected strips."""

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
    """The timing of steps."""

    warmup_steps: Positive
    warmup_blocks: Annotated[int, Range(3)]
    steady_share: Share
    block_steps: Positive
    blocks: Annotated[int, Range(2)]
    rounds: Positive
    leave_one_out: bool
    paper_width: Annotated[list[str], MayBeEmpty()]


@dataclass(frozen=True)
class Evaluate:
    """Confidence intervals and the equivalence test."""

    confidence: Annotated[float, Range(0.5, 0.9999)]
    resamples: Annotated[int, Range(100)]
    margin_deg: NonNegative
    learner_margin_deg: NonNegative
    seed: Count


@dataclass(frozen=True)
class Confidence:
    """The part of the `evaluate` section that workloads other than DT-ED use."""

    confidence: Annotated[float, Range(0.5, 0.9999)]


@dataclass(frozen=True)
class Sweep:
    """Training runs of the first tier with other parameter values (`faze.config.tiers`)."""

    grid: dict[str, list[object]]
    sobol: dict[str, list[object]]
    points: Annotated[int, Range(0, 1000)]


@dataclass(frozen=True)
class Report:
    """The report page."""

    title: str
    note: str


@dataclass(frozen=True)
class Tracking:
    """The MLflow store."""

    experiment: str
    uri: str | None


SECTIONS: dict[str, type] = {
    "run": Run,
    "auto_tiers": AutoTiers,
    "synthetic": Synthetic,
    "preprocess": PreprocessSection,
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

# The parameters on which each stage depends: a change of any other does not re-run it. These are sections, some of
# them in part, one data set (dataset) or the names of all (datasets), a fold of the people (fold), and the switches of
# one tier (engine) or of several by name (engines, leave_one_out).
STAGES: dict[str, dict[str, Any]] = {
    "synthesise": {"synthetic": Synthetic},
    "preprocess": {"preprocess": Preprocess, "dataset": DataSet},
    "train": {
        **{"preprocess": NormalizedCamera, "data": Data, "fold": Fold | None, "augment": Augment},
        **{"model": Model, "loss": Loss, "engine": Engine, "train": TrainSection},
    },
    "encode": {"fold": Fold | None, "model": Model, "encode": Encode},
    "meta_train": {"fewshot": Fewshot},
    "adapt": {"fewshot": FewshotAdapt},
    "walk": {"walk": Walk},
    "estimator": {"fold": Fold | None, "model": ImageSize, "estimator": Estimator},
    "oracle": {"synthetic": Synthetic, "preprocess": Preprocess, "dataset": DataSet, "redirect": Redirect},
    "redirect": {"fold": Fold | None, "redirect": Redirect},
    "benchmark": {
        "workload": str,
        # Of DT-ED only: null for other workloads.
        **{"preprocess": NormalizedCamera | None, "data": Data | None, "fold": Fold | None, "augment": Augment | None},
        **{"model": Model | None, "loss": Loss | None, "train": Train | None, "benchmark": Benchmark},
        **{"engines": dict[str, Engine], "leave_one_out": dict[str, Engine]},
    },
    "evaluate": {"run": Run, "datasets": list[str], "fewshot": FewshotSection, "evaluate": Evaluate},
    "compare": {"run": Run, "points": dict[str, dict[str, dict[str, object]]], "evaluate": Evaluate},
    "report": {"run": Run, "report": Report},
    "track": {"run": Run, "tracking": Tracking},
    "prove_workload": {"workload": str, "engines": dict[str, Engine]},
    "train_workload": {"workload": str, "engine": Engine, "train": Threads},
    "report_workload": {"workload": str, "run": Run, "evaluate": Confidence},
}
PER_RUN = frozenset(
    {"train", "train_workload", "encode", "meta_train", "adapt", "walk", "redirect"}
)  # parameters of a tier and a seed
PER_FOLD = frozenset({"train", "encode", "meta_train", "adapt"})  # of these, a part runs for each fold of the people
PER_DATASET = frozenset({"preprocess", "oracle"})
SHARED = frozenset({"synthesise", "preprocess", "estimator", "oracle"})  # outputs are the same in every ablation
