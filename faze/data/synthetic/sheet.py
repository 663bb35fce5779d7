"""Many strips on one picture, to be looked at."""

import numpy as np
from numpy.typing import NDArray


def contact_sheet(strips: NDArray[np.uint8], columns: int, gap_px: int = 2) -> NDArray[np.uint8]:
    """Lay strips out row by row.

    Args:
        strips: (N, H, W, 3).
        columns: strips in one row; the last row may be shorter.
        gap_px: black between them.

    Returns:
        (rows x (H + gap) - gap, columns x (W + gap) - gap, 3).
    """
    count, height, width, channels = strips.shape
    rows = -(-count // columns)
    sheet = np.zeros((rows * (height + gap_px), columns * (width + gap_px), channels), np.uint8)
    for position, strip in enumerate(strips):
        top, left = position // columns * (height + gap_px), position % columns * (width + gap_px)
        sheet[top : top + height, left : left + width] = strip
    return sheet[: sheet.shape[0] - gap_px, : sheet.shape[1] - gap_px]
