"""What the estimator and the image metrics say of a person's redirected strips, as rows of a table.

| column | meaning |
|---|---|
| pair, variant | `faze.redirection.draws` |
| own_* | gaze_pitch, gaze_yaw, head_pitch, head_yaw of strip a, radians |
| wanted_* | the same, as the variant shall have them |
| seen_* | the same, as the estimator sees them in the picture |
| l1, psnr, ssim, ms_ssim | likeness to strip b, of variants that want its labels; nan for b itself and all others |

Everything that is said of redirection follows from these rows (`faze.evaluation.redirection`).
"""

from collections.abc import Iterator, Mapping

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from torch import Tensor

from faze.redirection.draws import VARIANTS, WANTS_B, Pairs, wanted_labels
from faze.redirection.estimator import GazeHeadEstimator
from faze.redirection.estimator_training import estimate
from faze.redirection.similarity import METRICS, similarity

ANGLES = ("gaze_pitch", "gaze_yaw", "head_pitch", "head_yaw")
OWN, WANTED, SEEN = (tuple(f"{kind}_{angle}" for angle in ANGLES) for kind in ("own", "wanted", "seen"))


def judge(
    judging: GazeHeadEstimator,
    pictures: Mapping[str, Tensor],
    of_pair: Mapping[str, NDArray],
    pairs: Pairs,
    labels: NDArray,
) -> pd.DataFrame:
    """Give a row per pair and variant.

    Args:
        judging: the estimator, in evaluation mode.
        pictures: variant -> (N, 3, H, W) in about [-1, 1], or fewer; `real` must be there.
        of_pair: variant -> numbers of its pairs, where there are fewer.
        pairs: of the person.
        labels: of the chosen strips, (N, 4) radians.
    """
    return pd.concat(_rows(judging, pictures, of_pair, pairs, labels), ignore_index=True)


def _rows(
    judging: GazeHeadEstimator,
    pictures: Mapping[str, Tensor],
    of_pair: Mapping[str, NDArray],
    pairs: Pairs,
    labels: NDArray,
) -> Iterator[pd.DataFrame]:
    everything = np.arange(len(labels))
    for variant in (variant for variant in VARIANTS if variant in pictures):
        made, rows = pictures[variant], of_pair.get(variant, everything)
        wanted, seen = wanted_labels(variant, pairs, labels)[rows], estimate(judging, made)
        table = pd.DataFrame({"pair": rows, "variant": variant})
        table[[*OWN, *WANTED, *SEEN]] = np.column_stack([labels[pairs.a[rows]], wanted, seen])
        if variant in WANTS_B and variant != "real":
            found = {name: of.cpu().numpy() for name, of in similarity(made, pictures["real"][rows]).items()}
        else:
            found = dict.fromkeys(METRICS, np.nan)
        yield table.assign(**found)
