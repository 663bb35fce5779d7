"""What of a person is not of the layout of strips, as `faze.data.store.strips` describes it."""

import h5py
import numpy as np

from faze.data.store.foreign import array_fault, text_attribute
from faze.data.store.layout import SPLITS, group_fault

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
