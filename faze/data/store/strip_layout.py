"""The layout of strips, schema version 2.

The file's attributes: schema `strips`, schema_version, dataset, and the names `origins` and `validities`, to whose
positions the samples refer. A person's attributes: split, device (the camera), checksum (over pixels, then labels) and
checksum_of_samples (over name, split, device and the arrays by sample).
A person's arrays, by sample: pixels (H, W, 3) uint8 RGB; labels: gaze pitch, yaw, head pitch, yaw, float32 rad;
file_name (bytes), frame_index int64, origin uint8, validity uint8.

Read too: version 1, which has of these file_name at most, and the released code's files of pixels and labels alone.
"""

from collections.abc import Iterator

import h5py
import numpy as np
from numpy.typing import NDArray

from faze.data.store.foreign import array_fault, text_attribute
from faze.data.store.layout import SPLITS, group_fault

VERSION = 2
VALIDITIES = ("valid", "off_screen", "unknown_screen")  # valid: the gaze target lies on the screen
PIECE = 256  # strips that are read or written at once: 12 MiB
BY_SAMPLE = {"file_name": "SO", "frame_index": "iu", "origin": "u", "validity": "u"}  # kinds of numpy's types


def fault_of(file: h5py.File, person: str, of: str) -> str:
    """Say what of a person is not of this layout, "" where all is; `of` names the person in the sentence."""
    if fault := group_fault(file, person):
        return f"{fault}{of}"
    group = file[person]
    # Pixels are read piece by piece, and there are as many as labels.
    if fault := array_fault(group, "pixels", "uif", PIECE // 4) or array_fault(group, "labels", "f"):
        return f"{fault}{of}"
    pixels, labels = group["pixels"], group["labels"]
    if pixels.ndim != 4 or pixels.shape[3] != 3 or pixels.dtype != np.uint8 or 0 in pixels.shape[1:]:
        return f"pixels{of} are {pixels.dtype} {pixels.shape}, not uint8 (N, H, W, 3)"
    if labels.shape != (len(pixels), 4):
        return f"labels{of} have shape {labels.shape}, not ({len(pixels)}, 4)"
    for name, kinds in BY_SAMPLE.items():
        if name in group and (fault := array_fault(group, name, kinds)):
            return f"{fault}{of}"
        if name in group and group[name].shape != (len(pixels),):
            return f"{name}{of} has shape {group[name].shape}, not ({len(pixels)},): one per strip"
    if (split := text_attribute(group.attrs, "split", "train")) not in SPLITS:
        return f"split {split!r}{of} is not in {SPLITS}"
    return ""


def cut(pixels: NDArray[np.uint8] | h5py.Dataset) -> Iterator[NDArray[np.uint8]]:
    """Give strips (N, H, W, 3) piece by piece."""
    for first in range(0, len(pixels), PIECE):
        yield pixels[first : first + PIECE]
