"""The atlas: a strip decoded at every gaze and head pose of a grid, for the interactive part of the report.

As in a walk, the strip is encoded once and its codes are turned to the front; then one of the two codes is rotated. A
sheet contains all pictures of one code. Rows start at the highest pitch and columns at the highest yaw, so that the
eyes in each picture look towards its position in the sheet.
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
from faze.redirection.estimator import GazeHeadEstimator, estimate
from faze.redirection.walk import Picture, frontal, pictures, turned

STEPS = 15  # along each axis
CODES = ("gaze", "head")
MAX_WIDTH_PX = 128  # of a picture, since a page has sixteen sheets
WEBP_QUALITY = 75
INDEX = "atlas.json"


@dataclass(frozen=True, eq=False)
class Sheet:
    """All pictures for one person and one code."""

    dataset: str
    person: str
    code: str
    picture: Picture  # (STEPS H, STEPS W, 3)
    seen_deg: NDArray[np.float64]  # (STEPS, STEPS, 2) estimated pitch and yaw


def grid(range_deg: float) -> NDArray[np.float64]:
    """Return the requested pitch and yaw of every picture in a sheet, (STEPS, STEPS, 2) degrees."""
    angles_deg = np.linspace(-range_deg, range_deg, STEPS)
    return np.stack(np.meshgrid(angles_deg[::-1], angles_deg[::-1], indexing="ij"), -1)


@torch.inference_mode()
def atlas_sheets(
    dted: DTED, estimator: GazeHeadEstimator, strips: StripStore, person: str, range_deg: float
) -> list[Sheet]:
    """Decode a person's first strip at every angle and return its two sheets, one per code.

    Args:
        dted: trained network.
        estimator: estimates how far gaze and head have turned.
        strips: the store.
        person: name of the person.
        range_deg: both axes go from -range to +range.

    Raises:
        UserError: the network's output is not finite, for example because its training diverged.
    """
    _, _, front = frontal(dted, strips, person)
    rotations = rotation_from_pitchyaw(torch.from_numpy(np.radians(grid(range_deg)).reshape(-1, 2)), torch)
    sheets = []
    for number, code in enumerate(CODES):
        decoded = torch.cat([dted.decode(turned(front, code, row)) for row in rotations.split(STEPS)])
        seen = np.degrees(estimate(estimator, decoded)[:, 2 * number : 2 * number + 2])
        tiles = np.stack([_small(tile) for tile in pictures(decoded, person)])
        height, width = tiles.shape[1:3]
        sheet = tiles.reshape(STEPS, STEPS, height, width, 3).swapaxes(1, 2).reshape(STEPS * height, STEPS * width, 3)
        sheets.append(Sheet(strips.dataset, person, code, sheet, seen.reshape(STEPS, STEPS, 2)))
    return sheets


def write_atlas(folder: Path, sheets: Sequence[Sheet], range_deg: float) -> None:
    """Write the sheets and an index that lists them with the estimated angles."""
    rows = []
    for sheet in sheets:
        name = f"atlas_{sheet.dataset}_{sheet.person}_{sheet.code}.webp"
        content = cv2.cvtColor(sheet.picture, cv2.COLOR_RGB2BGR)
        if not cv2.imwrite(str(folder / name), content, [cv2.IMWRITE_WEBP_QUALITY, WEBP_QUALITY]):
            raise OSError(f"{folder / name} cannot be written")
        row = {"dataset": sheet.dataset, "person": sheet.person, "code": sheet.code, "sheet": name}
        rows.append(row | {"seen_deg": sheet.seen_deg.round(1).tolist()})
    index = {"steps": STEPS, "range_deg": range_deg, "sheets": rows}
    (folder / INDEX).write_text(json.dumps(index), encoding="utf-8")


def _small(tile: Picture) -> Picture:
    """Shrink a picture to a width of at most MAX_WIDTH_PX."""
    height, width = tile.shape[:2]
    if width <= MAX_WIDTH_PX:
        return tile
    return cv2.resize(tile, (MAX_WIDTH_PX, round(height * MAX_WIDTH_PX / width)), interpolation=cv2.INTER_AREA)
