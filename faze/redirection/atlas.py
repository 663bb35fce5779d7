"""The atlas: a strip decoded at every gaze, and at every head pose, of a grid, for a page on which a reader moves them.

As in a walk, the strip is encoded once and turned to the front; then one code turns. A sheet has all pictures of one
code: rows go down from the highest pitch, columns right from the highest yaw, so that eyes look where the picture lies.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import cv2
import numpy as np
import torch
from numpy.typing import NDArray

from faze.base.geometry import rotation_from_pitchyaw
from faze.data.store.strips import StripStore
from faze.model.dted import DTED
from faze.redirection.estimator import GazeHeadEstimator
from faze.redirection.estimator_training import estimate
from faze.redirection.walk import Picture, frontal, pictures, turned

STEPS = 15  # along each axis
CODES = ("gaze", "head")
WIDEST_PX = 128  # of a picture: sixteen sheets are one page's
WEBP_QUALITY = 75
INDEX = "atlas.json"


@dataclass(frozen=True, eq=False)
class Sheet:
    """All pictures of one person and code."""

    dataset: str
    person: str
    code: str
    picture: Picture  # (STEPS H, STEPS W, 3)
    seen_deg: NDArray[np.float64]  # (STEPS, STEPS, 2) pitch and yaw that the estimator sees


def grid(range_deg: float) -> NDArray[np.float64]:
    """Give the pitch and yaw of every picture of a sheet, (STEPS, STEPS, 2) degrees."""
    angles_deg = np.linspace(-range_deg, range_deg, STEPS)
    return np.stack(np.meshgrid(angles_deg[::-1], angles_deg[::-1], indexing="ij"), -1)


@torch.inference_mode()
def atlas_sheets(
    dted: DTED, judging: GazeHeadEstimator, strips: StripStore, person: str, range_deg: float
) -> list[Sheet]:
    """Decode both sheets of a person's first strip.

    Args:
        dted: trained network.
        judging: sees how far gaze and head have turned.
        strips: store.
        person: whose.
        range_deg: from -range to +range, both axes.

    Raises:
        UserError: the network gives no numbers, as after a training that diverged.
    """
    _, _, front = frontal(dted, strips, person)
    rotations = rotation_from_pitchyaw(torch.from_numpy(np.radians(grid(range_deg)).reshape(-1, 2)), torch)
    sheets = []
    for number, code in enumerate(CODES):
        decoded = torch.cat([dted.decode(turned(front, code, row)) for row in rotations.split(STEPS)])
        seen = np.degrees(estimate(judging, decoded)[:, 2 * number : 2 * number + 2])
        tiles = np.stack([_small(tile) for tile in pictures(decoded, person)])
        height, width = tiles.shape[1:3]
        sheet = tiles.reshape(STEPS, STEPS, height, width, 3).swapaxes(1, 2).reshape(STEPS * height, STEPS * width, 3)
        sheets.append(Sheet(strips.dataset, person, code, sheet, seen.reshape(STEPS, STEPS, 2)))
    return sheets


def write_atlas(folder: Path, sheets: Sequence[Sheet], range_deg: float) -> None:
    """Write the sheets, and an index of them with the angles that were seen."""
    rows = []
    for sheet in sheets:
        name = f"atlas_{sheet.dataset}_{sheet.person}_{sheet.code}.webp"
        content = cv2.cvtColor(sheet.picture, cv2.COLOR_RGB2BGR)
        if not cv2.imwrite(str(folder / name), content, [cv2.IMWRITE_WEBP_QUALITY, WEBP_QUALITY]):
            raise OSError(f"{folder / name}: cannot be written")
        whose = {"dataset": sheet.dataset, "person": sheet.person, "code": sheet.code}
        rows.append(whose | {"sheet": name, "seen_deg": sheet.seen_deg.round(1).tolist()})
    index = {"steps": STEPS, "range_deg": range_deg, "sheets": rows}
    (folder / INDEX).write_text(json.dumps(index), encoding="utf-8")


def _small(tile: Picture) -> Picture:
    height, width = tile.shape[:2]
    if width <= WIDEST_PX:
        return tile
    return cv2.resize(tile, (WIDEST_PX, round(height * WIDEST_PX / width)), interpolation=cv2.INTER_AREA)
