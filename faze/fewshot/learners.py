"""All few-shot learners, by their names in the config."""

from faze.fewshot.fine_tuning import GazeHead, MetaLearner
from faze.fewshot.interface import Learner
from faze.fewshot.offset import Kappa, Offset
from faze.fewshot.residual_model import Affine, Bayes, GaussianProcess

LEARNERS: dict[str, Learner] = {
    **{rule: MetaLearner(rule) for rule in ("maml", "fomaml", "meta_sgd", "reference")},
    "none": GazeHead(),
    "offset": Offset(),
    "affine": Affine(),
    "kappa": Kappa(),
    "bayes": Bayes(),
    "gp": GaussianProcess(),
}
