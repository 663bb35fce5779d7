"""The learner with two numbers per person: the mean angular offset."""

from collections.abc import Mapping

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from faze.base.geometry import pitchyaw_difference, pitchyaw_from_vector, vector_from_pitchyaw
from faze.fewshot.interface import ClosedForm
from faze.fewshot.learner_file import Learned
from faze.fewshot.person_codes import PersonCodes, Seen


class Offset(ClosedForm):
    """A learner that subtracts the mean error of the k samples (estimate - truth, in pitch and yaw) from gaze_hat."""

    name = "offset"

    def fit(self, person: PersonCodes, support: NDArray[np.int64], learned: Learned) -> dict[str, Tensor]:
        """Compute offset_rad (2,): pitch and yaw."""
        estimate, truth = (pitchyaw_from_vector(vectors[support]) for vectors in (person.gaze_hat, person.gaze))
        return {"offset_rad": torch.from_numpy(pitchyaw_difference(estimate, truth).mean(axis=0))}

    def estimate(self, correction: Mapping[str, Tensor], seen: Seen) -> NDArray[np.float64]:
        """Subtract the offset."""
        return vector_from_pitchyaw(pitchyaw_from_vector(seen.gaze_hat) - correction["offset_rad"].numpy())
