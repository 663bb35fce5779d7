"""A detector that knows where the face is, in place of MediaPipe, and what it needs to run."""

import contextlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import cv2
import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from small_model import MODEL

from faze.gaze import estimator
from faze.model.dted import DTED


def install(patch: pytest.MonkeyPatch, find: Callable[[NDArray[np.uint8]], Sequence[NDArray]]) -> None:
    """Let `faze gaze` and `faze calibrate` find the landmarks of each face by a function of the frame."""

    @contextlib.contextmanager
    def open_faces(model: Path, most: int) -> Iterator:
        yield lambda image: list(find(image))[:most] if image.max() > 20 else []

    patch.setattr(estimator, "open_faces", open_faces)


def small_network() -> DTED:
    """Return an untrained network."""
    torch.manual_seed(0)
    return DTED(MODEL.model_copy(update={"image_height_px": 64, "image_width_px": 256})).eval()


def picture(seed: int) -> NDArray[np.uint8]:
    """Return a frame (480, 640, 3) with coarse noise."""
    coarse = np.random.default_rng(seed).integers(0, 256, (12, 16, 3), np.uint8)
    return cv2.resize(coarse, (640, 480), interpolation=cv2.INTER_CUBIC)
