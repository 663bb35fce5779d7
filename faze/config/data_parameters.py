"""The parameters of the data: made-up people, raw frames, strips, what of them trains; see faze.config.parameters."""

from dataclasses import dataclass
from typing import Annotated, Literal

from faze.config.check import Range

Count = Annotated[int, Range(0)]
Positive = Annotated[int, Range(1)]
NonNegative = Annotated[float, Range(0)]
Share = Annotated[float, Range(0, 1)]


@dataclass(frozen=True)
class Synthetic:
    """Rendered people."""

    seed: Count
    people: Literal["measured", "simple"]
    mpiigaze_people: Positive
    gazecapture_train_people: Positive
    gazecapture_val_people: Positive
    gazecapture_test_people: Positive
    frames_per_person: Positive
    gazecapture_train_frames: Positive | None
    jpeg_quality: Annotated[int, Range(1, 100)]
    kappa_spread_deg: NonNegative
    bias_deg: NonNegative


@dataclass(frozen=True)
class Preprocess:
    """Raw frames -> normalised eye strips."""

    mpiifacegaze: str | None
    mpiifacegaze_supplementary: str | None
    gazecapture: str | None
    gazecapture_supplementary: str | None
    gazecapture_split: str | None
    off_screen: Literal["keep", "exclude"]
    focal_length_px: Annotated[float, Range(1)]
    distance_mm: Annotated[float, Range(1)]
    width_px: Positive
    height_px: Positive
    compatibility: Literal["none", "two_step"]


RAW = {"mpiigaze": "mpiifacegaze", "gazecapture": "gazecapture"}  # data set -> its key above, and its raw folder
RAW_PATHS = ("", "_supplementary", "_split")  # endings of the keys that point to a data set's files


@dataclass(frozen=True)
class StripCamera:
    """What a training knows of the section `preprocess`: through which camera it sees the strips."""

    focal_length_px: Annotated[float, Range(1)]
    width_px: Positive


@dataclass(frozen=True)
class Landmarks:
    """Head pose of raw GazeCapture."""

    python: str | None
    model: str | None


@dataclass(frozen=True)
class Data:
    """Which stored entries train."""

    min_entries: Annotated[int, Range(2)]
    memory_gib: NonNegative
    workers: Count | Literal["auto"]


@dataclass(frozen=True)
class Augment:
    """Random changes of the pairs that train."""

    flip: bool
    jitter_px: NonNegative
    zoom: Annotated[float, Range(0, 0.5)]
    color_scale: Share
