"""What of a person is not of the layout of strips, as `faze.data.store.strips` describes it."""

import h5py
import numpy as np

from faze.data.store.layout import SPLITS, text_of

BY_SAMPLE = ("file_name", "frame_index", "origin", "validity")


def fault_of(group: h5py.Group | h5py.Dataset, of: str) -> str:
    """Say what of a person is not of this layout, "" where all is; `of` names the person in the sentence."""
    for name in ("pixels", "labels"):
        if not isinstance(group, h5py.Group) or name not in group:
            return f"no {name}{of}"
    pixels, labels = group["pixels"], group["labels"]
    if pixels.ndim != 4 or pixels.shape[3] != 3 or pixels.dtype != np.uint8:
        return f"pixels{of} are {pixels.dtype} {pixels.shape}, not uint8 (N, H, W, 3)"
    if labels.shape != (len(pixels), 4):
        return f"labels{of} have shape {labels.shape}, not ({len(pixels)}, 4)"
    for name in BY_SAMPLE:
        if name in group and group[name].shape != (len(pixels),):
            return f"{name}{of} has shape {group[name].shape}, not ({len(pixels)},): one per strip"
    if (split := text_of(group, "split", "train")) not in SPLITS:
        return f"split {split!r}{of} is not in {SPLITS}"
    return ""
