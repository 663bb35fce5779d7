"""The baseline that every learner must beat to matter: a person's mean angular offset, taken off the estimate."""

from collections.abc import Mapping

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from faze.base.geometry import pitchyaw_from_vector, vector_from_pitchyaw, wrapped
from faze.fewshot.interface import ClosedForm
from faze.fewshot.learner_file import Learned
from faze.fewshot.person_codes import PersonCodes, Seen


class Offset(ClosedForm):
    """The mean, over the k samples, of estimate minus truth in pitch and yaw is subtracted from gaze_hat."""

    name = "offset"

    def fit(self, person: PersonCodes, support: NDArray[np.int64], learned: Learned) -> dict[str, Tensor]:
        """Compute offset_rad (2,), pitch and yaw."""
        offset = pitchyaw_from_vector(person.gaze_hat[support]) - pitchyaw_from_vector(person.gaze[support])
        offset[:, 1] = wrapped(offset[:, 1])
        return {"offset_rad": torch.from_numpy(offset.mean(axis=0))}

    def estimate(self, correction: Mapping[str, Tensor], seen: Seen) -> NDArray[np.float64]:
        """Subtract the offset."""
        return vector_from_pitchyaw(pitchyaw_from_vector(seen.gaze_hat) - correction["offset_rad"].numpy())
