"""Latent walks (paper figure 5): one strip, decoded at gaze directions and head poses that the person never had.

The strip is encoded once and frontalised; then the gaze code turns from -range to +range while the head looks straight,
and the other way round. How a walk is drawn is another module's: faze.redirection.drawing.

Shapes: S steps of a walk; H x W pixels, RGB.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray

from faze.base.errors import UserError
from faze.base.geometry import rotation_from_pitchyaw
from faze.data.network_input import from_network, to_network
from faze.data.store.strips import StripStore
from faze.model.dted import DTED, Codes
from faze.redirection.estimator import GazeHeadEstimator
from faze.redirection.estimator_training import estimate

Picture = NDArray[np.uint8]  # (..., H, W, 3) RGB

# Name of a walk -> (the code that turns, the place of its angle in (pitch, yaw)).
WALKS = {"gaze yaw": ("gaze", 1), "gaze pitch": ("gaze", 0), "head yaw": ("head", 1), "head pitch": ("head", 0)}


@dataclass(frozen=True, eq=False)
class PersonWalk:
    """The walks of one strip."""

    dataset: str
    person: str
    input: Picture  # (H, W, 3), as the network sees it
    reconstruction: Picture  # (H, W, 3)
    angles_deg: NDArray[np.float64]  # (S,) asked
    steps: Mapping[str, Picture]  # by walk, (S, H, W, 3)
    seen_deg: Mapping[str, NDArray[np.float64]]  # by walk, (S,) the angle that turns, as the estimator sees it


def walk_rotations(axis: int, range_deg: float, steps: int) -> tuple[NDArray[np.float64], torch.Tensor]:
    """Compute the rotations of one walk, in the latent frame.

    Args:
        axis: 0 turns the pitch, 1 the yaw.
        range_deg: from -range to +range.
        steps: S, both ends included.

    Returns:
        (S,) degrees and (S, 3, 3).
    """
    angles_deg = np.linspace(-range_deg, range_deg, steps)
    pitchyaw = np.zeros((steps, 2))
    pitchyaw[:, axis] = np.radians(angles_deg)
    return angles_deg, rotation_from_pitchyaw(torch.from_numpy(pitchyaw), torch)


def spread_people(errors: pd.Series, count: int) -> list[str]:
    """Name people from the best redirected to the worst, evenly: of three, the one in the middle too.

    Args:
        errors: redirection error of each person, by name.
        count: how many, if there are as many.
    """
    names = errors.sort_values(kind="stable").index
    ranks = np.linspace(0, len(names) - 1, min(count, len(names))).round().astype(int)
    return [str(names[rank]) for rank in ranks]


@torch.inference_mode()
def walk_person(
    dted: DTED, judging: GazeHeadEstimator, strips: StripStore, person: str, *, range_deg: float, steps: int
) -> PersonWalk:
    """Walk from a person's first strip.

    Args:
        dted: trained network.
        judging: sees how far gaze and head have turned.
        strips: store.
        person: whose.
        range_deg: from -range to +range.
        steps: S, both ends included.

    Raises:
        UserError: the network gives no numbers, as after a training that diverged.
    """
    image, codes, front = frontal(dted, strips, person)
    walked, seen = {}, {}
    for name, (code, axis) in WALKS.items():
        angles_deg, rotations = walk_rotations(axis, range_deg, steps)
        decoded = dted.decode(turned(front, code, rotations))
        walked[name] = pictures(decoded, person)
        seen[name] = np.degrees(estimate(judging, decoded)[:, axis + 2 * (code == "head")])
    reconstruction = pictures(dted.decode(codes), person)[0]
    return PersonWalk(strips.dataset, person, pictures(image, person)[0], reconstruction, angles_deg, walked, seen)


def frontal(dted: DTED, strips: StripStore, person: str) -> tuple[torch.Tensor, Codes, Codes]:
    """Encode a person's first strip: the image (1, 3, H, W), its codes, and these turned to the front by its labels."""
    like = dted.fc_enc.weight
    pixels = torch.from_numpy(strips.pixels(person, slice(1))).to(like.device)
    image = to_network(pixels, dted.model.image_height_px, dted.model.image_width_px)
    label = torch.from_numpy(strips.labels(person)[:1]).to(like)
    codes = dted.encode(image)
    rotations = (rotation_from_pitchyaw(angles, torch) for angles in label.split(2, 1))
    return image, codes, codes.turn(*rotations)


def turned(front: Codes, code: str, rotations: torch.Tensor) -> Codes:
    """Turn one code of a strip (of "gaze", "head") by each of (S, 3, 3) rotations: S codes."""
    codes = front._replace(**{code: getattr(front, code) @ rotations.to(front.app).mT})
    return Codes(*(part.expand(len(rotations), *part.shape[1:]) for part in codes))


def pictures(images: torch.Tensor, person: str) -> Picture:
    """Make pictures (S, H, W, 3) of what a network decoded.

    Raises:
        UserError: it holds what is not a number.
    """
    if not images.isfinite().all():
        raise UserError(
            f"the trained network's pictures of person {person} are not numbers: its training diverged; "
            "train again with a lower train.base_lr"
        )
    return from_network(images).cpu().numpy()
