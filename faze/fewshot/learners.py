"""All few-shot learners, by their names in the config."""

from faze.fewshot.fine_tuning import GazeHead, MetaLearner
from faze.fewshot.gaussian_process import GaussianProcess
from faze.fewshot.interface import Learner
from faze.fewshot.linear_residual import Affine, Bayes
from faze.fewshot.offset import Kappa, Offset

LEARNERS: dict[str, Learner] = {
    **{rule: MetaLearner(rule) for rule in ("maml", "fomaml", "meta_sgd", "reference")},
    "none": GazeHead(),
    "offset": Offset(),
    "affine": Affine(),
    "kappa": Kappa(),
    "bayes": Bayes(),
    "gp": GaussianProcess(),
}
