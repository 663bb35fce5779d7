"""Latent walks (paper figure 5): one strip, decoded at gaze directions and head poses that were never recorded.

The strip is encoded once and turned to the front. Then the gaze code turns from -range to +range while the head code
stays in front, and vice versa. `faze.redirection.drawing` draws the walks.

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
from faze.redirection.estimator import GazeHeadEstimator, estimate

Picture = NDArray[np.uint8]  # (..., H, W, 3) RGB

# Name of a walk -> (the code that turns, the index of its angle in (pitch, yaw)).
WALKS = {"gaze yaw": ("gaze", 1), "gaze pitch": ("gaze", 0), "head yaw": ("head", 1), "head pitch": ("head", 0)}


@dataclass(frozen=True, eq=False)
class PersonWalk:
    """The walks of one strip."""

    dataset: str
    person: str
    input: Picture  # (H, W, 3), as the network sees it
    reconstruction: Picture  # (H, W, 3)
    angles_deg: NDArray[np.float64]  # (S,) requested
    steps: Mapping[str, Picture]  # by walk, (S, H, W, 3)
    seen_deg: Mapping[str, NDArray[np.float64]]  # by walk, (S,) estimate of the angle that turns


def walk_rotations(axis: int, range_deg: float, steps: int) -> tuple[NDArray[np.float64], torch.Tensor]:
    """Compute the rotations of one walk from -range to +range, both included.

    Args:
        axis: 0 turns the pitch, 1 the yaw.
        range_deg: largest angle.
        steps: S.

    Returns:
        Angles (S,) in degrees and rotations (S, 3, 3).
    """
    angles_deg = np.linspace(-range_deg, range_deg, steps)
    pitchyaw = np.zeros((steps, 2))
    pitchyaw[:, axis] = np.radians(angles_deg)
    return angles_deg, rotation_from_pitchyaw(torch.from_numpy(pitchyaw), torch)


def spread_people(errors: pd.Series, count: int) -> list[str]:
    """Choose up to `count` people, evenly spaced by rank from the smallest error to the largest.

    Args:
        errors: redirection error of each person, by name.
        count: number of people.
    """
    names = errors.sort_values(kind="stable").index
    ranks = np.linspace(0, len(names) - 1, min(count, len(names))).round().astype(int)
    return [str(names[rank]) for rank in ranks]


@torch.inference_mode()
def walk_person(
    dted: DTED, estimator: GazeHeadEstimator, strips: StripStore, person: str, *, range_deg: float, steps: int
) -> PersonWalk:
    """Decode the walks of a person's first strip.

    Args:
        dted: trained network.
        estimator: estimates how far gaze and head have turned.
        strips: the store.
        person: name of the person.
        range_deg: walks go from -range to +range.
        steps: S, both ends included.

    Raises:
        UserError: the network's output is not finite, as after a training that diverged.
    """
    image, codes, front = frontal(dted, strips, person)
    walked, seen = {}, {}
    for name, (code, axis) in WALKS.items():
        angles_deg, rotations = walk_rotations(axis, range_deg, steps)
        decoded = dted.decode(turned(front, code, rotations))
        walked[name] = pictures(decoded, person)
        seen[name] = np.degrees(estimate(estimator, decoded)[:, axis + 2 * (code == "head")])
    reconstruction = pictures(dted.decode(codes), person)[0]
    return PersonWalk(strips.dataset, person, pictures(image, person)[0], reconstruction, angles_deg, walked, seen)


def frontal(dted: DTED, strips: StripStore, person: str) -> tuple[torch.Tensor, Codes, Codes]:
    """Encode a person's first strip.

    Returns:
        The image (1, 3, H, W), its codes, and its codes turned to the front according to its labels.
    """
    like = dted.fc_enc.weight
    pixels = torch.from_numpy(strips.pixels(person, slice(1))).to(like.device)
    image = to_network(pixels, dted.model.image_height_px, dted.model.image_width_px)
    label = torch.from_numpy(strips.labels(person)[:1]).to(like)
    codes = dted.encode(image)
    rotations = (rotation_from_pitchyaw(angles, torch) for angles in label.split(2, 1))
    return image, codes, codes.turn(*rotations)


def turned(front: Codes, code: str, rotations: torch.Tensor) -> Codes:
    """Turn one code of a strip, "gaze" or "head", by each of S rotations (S, 3, 3) and return S codes."""
    codes = front._replace(**{code: getattr(front, code) @ rotations.to(front.app).mT})
    return Codes(*(part.expand(len(rotations), *part.shape[1:]) for part in codes))


def pictures(images: torch.Tensor, person: str) -> Picture:
    """Convert decoded images to RGB pictures (S, H, W, 3); raise UserError if they are not finite."""
    if not images.isfinite().all():
        raise UserError(
            f"the network's images of person {person} are not finite: its training diverged; train again with a lower "
            "train.base_lr"
        )
    return from_network(images).cpu().numpy()
