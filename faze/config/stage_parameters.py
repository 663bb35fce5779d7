"""What each stage may know of the parameters: a change of anything else cannot re-run it.

Sections of the config, some of them in part, and the switches of its tier or of several tiers by name.
"""

from typing import Any

from faze.config.data_parameters import Augment, Data, Preprocess, StripCamera, Synthetic
from faze.config.parameters import (
    Benchmark,
    Encode,
    Engine,
    Estimator,
    Evaluate,
    Fewshot,
    FewshotAdapt,
    FewshotSection,
    ImageSize,
    Loss,
    Model,
    Redirect,
    Report,
    Run,
    Tracking,
    Train,
    TrainSection,
    Walk,
)

STAGES: dict[str, dict[str, Any]] = {
    "synthesise": {"synthetic": Synthetic},
    "preprocess": {"preprocess": Preprocess},
    "train": {
        **{"preprocess": StripCamera, "data": Data, "augment": Augment},
        **{"model": Model, "loss": Loss, "engine": Engine, "train": TrainSection},
    },
    "encode": {"model": Model, "encode": Encode},
    "meta_train": {"fewshot": Fewshot},
    "adapt": {"fewshot": FewshotAdapt},
    "walk": {"walk": Walk},
    "estimator": {"model": ImageSize, "estimator": Estimator},
    "oracle": {"synthetic": Synthetic, "preprocess": Preprocess, "redirect": Redirect},
    "redirect": {"redirect": Redirect},
    "benchmark": {
        **{"preprocess": StripCamera, "data": Data, "augment": Augment},
        **{"model": Model, "loss": Loss, "train": Train, "benchmark": Benchmark},
        **{"engines": dict[str, Engine], "leave_one_out": dict[str, Engine]},
    },
    "evaluate": {"run": Run, "fewshot": FewshotSection, "evaluate": Evaluate},
    "compare": {"run": Run, "points": dict[str, dict[str, dict[str, object]]], "evaluate": Evaluate},
    "report": {"run": Run, "report": Report},
    "track": {"run": Run, "tracking": Tracking},
}
PER_RUN = frozenset({"train", "encode", "meta_train", "adapt", "walk", "redirect"})  # parameters of a tier and a seed
PER_DATASET = frozenset({"preprocess", "oracle"})
SHARED = frozenset({"synthesise", "preprocess", "estimator", "oracle"})  # outputs are the same in every ablation
