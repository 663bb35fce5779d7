"""Types and bounds of the parameters in config/config.yaml, and the sections that each stage reads."""

from typing import Annotated, Any, Literal, TypeVar, get_type_hints

from pydantic import BaseModel, Field, create_model

DTED = "faze"  # the only workload that is not a user's class
RENDERED = {"mpiifacegaze": "laptop", "gazecapture": "phone"}  # layout -> people rendered in that layout
CONTROLS = ("rounding", "seed")  # runs that differ from the baseline only by chance; used like tier names
BLOCKS = tuple(f"{part}.block{number}" for part in ("encoder", "decoder") for number in (1, 2, 3, 4))
T = TypeVar("T")


class Section(BaseModel, frozen=True, extra="forbid", strict=True, allow_inf_nan=False):
    pass


Name = Annotated[str, Field(pattern=r"^\w[\w-]*$")]  # also the name of a folder
Several = Annotated[tuple[T, ...], Field(strict=False)]
Some = Annotated[tuple[T, ...], Field(strict=False, min_length=1)]
Count = Annotated[int, Field(ge=0)]
Positive = Annotated[int, Field(ge=1)]
NonNegative = Annotated[float, Field(ge=0)]
Share = Annotated[float, Field(ge=0, le=1)]


class Synthetic(Section):
    seed: Count
    laptop_people: Positive
    phone_train_people: Positive
    phone_val_people: Positive
    phone_test_people: Positive
    frames_per_person: Positive
    phone_train_frames: Positive | None


class DataSet(Section):
    name: Name
    layout: Literal["mpiifacegaze", "mpiigaze", "gazecapture", "manifest", "strips"]
    path: str | None = None
    supplementary: str | None = None
    splits: str = "stated"
    folds: Annotated[int, Field(ge=3)] | None = None


class Fold(Section):  # the people in this fold are the test people, and those in the next fold are the val people
    number: Count
    folds: Positive


class NormalizedCamera(Section):
    focal_length_px: Annotated[float, Field(ge=1)]
    distance_mm: Annotated[float, Field(ge=1)]
    width_px: Positive
    height_px: Positive
    center_mm: Annotated[tuple[float, float, float], Field(strict=False)] = (0.0, 0.0, 0.0)


class Preprocess(NormalizedCamera):
    compatibility: Literal["none", "two_step"]
    datasets: Several[DataSet]

    def camera(self) -> NormalizedCamera:
        return NormalizedCamera(**self.model_dump(include=set(NormalizedCamera.model_fields)))


class Landmarks(Section):
    model: str


class Data(Section):
    min_entries: Annotated[int, Field(ge=2)]
    memory_gib: NonNegative
    workers: Count


class Augment(Section):
    flip: bool
    color_scale: Share


class Run(Section):
    tiers: Some[str] | Literal["auto"]
    seeds: Some[Count]
    controls: Several[Literal[CONTROLS]]


class Engine(Section):
    device: Literal["auto", "cpu", "cuda"]
    precision: Literal["fp32", "fp16", "bf16"]
    keep_fp32: Several[str]
    force_low: Several[str]
    tf32: bool
    force: bool
    parallel: Literal["single", "dp", "ddp"]
    processes: Count
    sync_batchnorm: bool
    optimizer: str
    optimizer_options: dict[str, Any]
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


class Model(Section):
    growth: Positive
    blocks: Annotated[int, Field(ge=1, le=4)]
    image_height_px: Positive
    image_width_px: Positive
    z_app: Positive
    z_gaze: Positive
    z_head: Positive
    decoder_channels: Positive
    normalize_axis: Annotated[int, Field(ge=0, le=3)]
    backprop_gaze: bool


class Loss(Section):
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


class Train(Section):
    pairs: Count
    global_batch: Positive
    base_lr: NonNegative
    head_lr: NonNegative
    frozen: Several[Literal[("encoder", "decoder", "gaze_head", *BLOCKS)]]
    warmup_pairs: Count
    decay_share: Share
    momentum: Share
    weight_decay: NonNegative
    clip_norm: NonNegative
    log_every_pairs: Positive
    validate_every_pairs: Positive
    checkpoint_every_pairs: Positive
    start: str | None
    threads: Positive


class Encode(Section):
    batch: Positive


WITHOUT_CODES = ("offset", "affine", "bayes")  # these learners need only estimates and head poses


class Fewshot(Section):
    shots: Some[Positive]
    seed: Count
    init: Literal["random", "gaze_head"]
    hidden: Annotated[int, Field(ge=1, le=4096)]
    query_entries: Positive
    meta_query: Positive
    tasks: Positive
    outer_steps: Positive
    outer_lr: NonNegative
    inner_lr: NonNegative
    validate_every_steps: Positive
    repeats: Positive
    adapt_steps: Positive
    adapt_lr: NonNegative
    min_entries: Positive
    learners: Some[Literal["maml", "fomaml", "reference", "none", "offset", "affine", "bayes"]]


class Walk(Section):
    people: Positive
    range_deg: Annotated[float, Field(ge=0, le=90)]
    frames: Annotated[int, Field(ge=2)]


class Estimator(Section):
    channels: Positive
    strips: Positive
    batch: Annotated[int, Field(ge=2)]
    lr: NonNegative


class Redirect(Section):
    strips: Annotated[int, Field(ge=2)]


class Benchmark(Section):
    warmup_steps: Positive
    warmup_blocks: Annotated[int, Field(ge=3)]
    block_steps: Positive
    blocks: Annotated[int, Field(ge=2)]
    rounds: Positive


class Evaluate(Section):
    confidence: Annotated[float, Field(ge=0.5, le=0.9999)]
    resamples: Annotated[int, Field(ge=100)]
    margin_deg: NonNegative
    learner_margin_deg: NonNegative


class Report(Section):
    title: str
    note: str


class Tracking(Section):
    experiment: str
    uri: str | None


class Given(Section):
    network: str  # as for --model (faze.gaze.network)


class Tier(Section):
    on: str | None = None  # the tier that this tier builds on; None: the previous tier in the list
    train: bool = True  # False: only the benchmark measures it
    given: Given | None = None  # another project's network, which is neither trained nor measured


_switches = {name: (kind | None, None) for name, kind in get_type_hints(Engine, include_extras=True).items()}
Change = create_model("Change", __base__=Tier, **_switches)  # a tier with the switches that it sets


class Config(Section):
    name: Name
    workload: Annotated[str, Field(pattern=rf"^({DTED}|[\w.-]+:\w+)$")]
    run: Run
    auto_tiers: dict[Literal["cpu", "cuda"], Some[str]]
    tiers: dict[Name, Change]
    synthetic: Synthetic
    preprocess: Preprocess
    landmarks: Landmarks
    data: Data
    augment: Augment
    model: Model
    loss: Loss
    train: Train
    encode: Encode
    fewshot: Fewshot
    walk: Walk
    estimator: Estimator
    redirect: Redirect
    benchmark: Benchmark
    evaluate: Evaluate
    report: Report
    tracking: Tracking


# The sections on which each stage depends: a change to any other section does not re-run the stage. Of TRAINING, a
# user's class depends only on `train`. `preprocess` excludes the data sets: `dataset` is one data set, and `datasets`
# lists all names. `engine` contains the switches of one tier, `baseline` those of the first, `engines` those of all.
# `networks` are those of other projects, by tier.
TRAINING = ("preprocess", "data", "fold", "augment", "model", "loss", "train")
STAGES: dict[str, tuple[str, ...]] = {
    "synthesise": ("synthetic",),
    "preprocess": ("preprocess", "dataset"),
    "train": (*TRAINING, "workload", "engine"),
    "encode": ("fold", "encode"),
    "estimate": ("preprocess", "dataset", "encode", "given"),
    "meta_train": ("fewshot",),
    "adapt": ("fewshot",),
    "walk": ("walk",),
    "estimator": ("fold", "model", "estimator"),
    "redirect": ("fold", "redirect"),
    "benchmark": (*TRAINING, "workload", "benchmark", "engines"),
    "measure": (*TRAINING, "workload", "benchmark", "engines"),
    "evaluate": ("run", "networks", "datasets", "fewshot", "evaluate"),
    "report": ("workload", "run", "evaluate", "report"),
    "track": ("workload", "run", "networks", "datasets", "fewshot", "tracking"),
    "answer": (*TRAINING, "workload", "baseline", "datasets", "run", "fewshot", "tracking"),
    "prove": (*TRAINING, "workload", "baseline", "engine"),
}
KINDS: dict[str, Any] = {name: field.annotation for name, field in Config.model_fields.items()}
KINDS |= {
    "given": Given | None,
    "networks": dict[str, str],
    "dataset": DataSet,
    "datasets": Some[str],
    "fold": Fold | None,
}
KINDS |= {"baseline": Engine, "engine": Engine, "engines": dict[str, Engine]}
