"""Every few-shot learner by its name in the config."""

from faze.fewshot.fine_tuning import GazeHead, MetaLearner
from faze.fewshot.interface import Learner
from faze.fewshot.offset import Offset

LEARNERS: dict[str, Learner] = {
    **{rule: MetaLearner(rule) for rule in ("maml", "fomaml", "meta_sgd", "reference")},
    "none": GazeHead(),
    "offset": Offset(),
}
