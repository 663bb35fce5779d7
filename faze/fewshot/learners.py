"""All few-shot learners, by their names in the config."""

from faze.fewshot.fine_tuning import FineTuned
from faze.fewshot.interface import Learner
from faze.fewshot.residual import Affine, Bayes, Offset

LEARNERS: dict[str, Learner] = {
    **{rule: FineTuned(rule) for rule in ("maml", "fomaml", "reference", "none")},
    "offset": Offset(),
    "affine": Affine(),
    "bayes": Bayes(),
}
