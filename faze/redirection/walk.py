"""Latent walks (figure 5 of the paper): one strip, decoded at gaze directions and head poses that were never recorded.

The strip is encoded once, and its codes are rotated to frontal. Then the gaze code is rotated from -range to +range
while the head code stays frontal, and vice versa. Walks are drawn as videos and as contact sheets.

Shapes: S steps of a walk; H x W pixels, RGB.
"""

from pathlib import Path

import av
import cv2
import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray

from faze.base.geometry import rotation_from_pitchyaw
from faze.config.parameters import Walk
from faze.data.network_input import from_network, to_network
from faze.data.pairs import open_people
from faze.data.strips import StripStore
from faze.evaluation.diagnostics import by_variant
from faze.model.dted import DTED, Codes
from faze.redirection.estimator import GazeHeadEstimator, estimate

Picture = NDArray[np.uint8]  # (H, W, 3) RGB
# Name of a walk -> (the code that turns, the index of its angle in (pitch, yaw)).
WALKS = {"gaze yaw": ("gaze", 1), "gaze pitch": ("gaze", 0), "head yaw": ("head", 1), "head pitch": ("head", 0)}
FPS = 15  # frames per second of the videos
SHEET_STEPS = 7  # steps of each walk on a contact sheet
VIDEO_PX, SHEET_PX = 384, 208  # width of a picture
GAP_PX, CAPTION_PX = 6, 22


def choose_people(pairs: Path, count: int) -> dict[str, list[str]]:
    """Choose people from each data set at evenly spaced ranks of the gaze error after redirection, smallest first."""
    people = by_variant(pd.read_parquet(pairs)).sort_values("gaze_error_deg", kind="stable")
    people, chosen = people[people["variant"] == "redirected"], {}
    for dataset, rows in people.groupby("dataset"):
        ranks = np.linspace(0, len(rows) - 1, min(count, len(rows))).round().astype(int)
        chosen[dataset] = rows["person"].iloc[ranks].tolist()
    return chosen


def walk_rotations(axis: int, range_deg: float, steps: int) -> tuple[NDArray[np.float64], torch.Tensor]:
    """Return angles (S,), from -range to +range in degrees, and rotations (S, 3, 3) in pitch (axis 0) or yaw (1)."""
    angles_deg = np.linspace(-range_deg, range_deg, steps)
    pitchyaw = np.zeros((steps, 2))
    pitchyaw[:, axis] = np.radians(angles_deg)
    return angles_deg, rotation_from_pitchyaw(torch.from_numpy(pitchyaw), torch)


@torch.inference_mode()
def walk_person(
    dted: DTED, estimator: GazeHeadEstimator, store: StripStore, person: str, walk: Walk
) -> tuple[dict[str, Picture], pd.DataFrame]:
    """Decode walks from a person's first strip.

    Return the strip and its reconstruction, keyed by caption, and a table with a row per walk and step: dataset,
    person, walk, the requested and estimated angles (asked_deg, seen_deg), and the picture.
    """
    people = open_people(store, estimator.size)
    names = [each.name for each in people.persons]
    first = people.person_indices()[names.index(person)][:1]
    image = to_network(people.gather(first).to(dted.fc_enc.weight.device))
    codes, angles = dted.encode(image), people.labels[first].to(image)
    front = codes.turn(*(rotation_from_pitchyaw(part, torch) for part in angles.split(2, 1)))
    tables = []
    for name, (code, axis) in WALKS.items():
        asked_deg, rotations = walk_rotations(axis, walk.range_deg, walk.frames)
        turned = front._replace(**{code: getattr(front, code) @ rotations.to(image).mT})
        decoded = dted.decode(Codes(*(part.expand(walk.frames, *part.shape[1:]) for part in turned)))
        seen_deg = np.degrees(estimate(estimator, decoded)[:, axis + 2 * (code == "head")])
        table = pd.DataFrame({"dataset": store.dataset, "person": person, "walk": name, "asked_deg": asked_deg})
        tables.append(table.assign(seen_deg=seen_deg, picture=list(from_network(decoded).cpu().numpy())))
    strip, reconstruction = from_network(torch.cat([image, dted.decode(codes)])).cpu().numpy()
    return {f"{store.dataset} {person}": strip, "reconstruction": reconstruction}, pd.concat(tables)


def draw_frames(strips: dict[str, Picture], walks: pd.DataFrame) -> list[Picture]:
    """Draw the output of `walk_person` as the frames of a video that loops forward and back."""
    top, frames = np.hstack([_panel(*strip, VIDEO_PX) for strip in strips.items()]), []
    for _, step in walks.groupby(level=0):
        panels = _step_panels(step, VIDEO_PX)
        frames.append(np.vstack([top, np.hstack(panels[:2]), np.hstack(panels[2:])]))
    return frames + frames[-2:0:-1]


def draw_sheet(strips: dict[str, Picture], walks: pd.DataFrame) -> Picture:
    """Draw the output of `walk_person` as the person's part of the contact sheet, one row per walk."""
    left, rows = [_panel(*strip, SHEET_PX) for strip in strips.items()], []
    left += [np.full_like(left[0], 255)] * 2
    for first, (_, steps) in zip(left, walks.groupby("walk", sort=False), strict=True):
        shown = np.linspace(0, len(steps) - 1, min(SHEET_STEPS, len(steps))).round().astype(int)
        rows.append(np.hstack([first, *_step_panels(steps.iloc[shown], SHEET_PX)]))
    return np.vstack(rows)


def _step_panels(steps: pd.DataFrame, width_px: int) -> list[Picture]:
    panels = []
    for step in steps.itertuples():
        caption = f"{step.walk} {round(step.asked_deg):+d}°, seen {round(step.seen_deg):+d}°"
        panels.append(_panel(caption, step.picture, width_px))
    return panels


def _panel(caption: str, picture: Picture, width_px: int) -> Picture:
    """Draw a picture, resized to the given width, below its caption; the panel's height and width are even."""
    height_px = 2 * round(width_px * picture.shape[0] / picture.shape[1] / 2)
    panel = np.full((CAPTION_PX + height_px + GAP_PX, width_px + GAP_PX, 3), 255, np.uint8)
    panel[CAPTION_PX:-GAP_PX, :width_px] = cv2.resize(picture, (width_px, height_px), interpolation=cv2.INTER_CUBIC)
    cv2.putText(panel, caption, (0, 16), cv2.FONT_HERSHEY_SIMPLEX, 0.45, (40, 40, 40), 1, cv2.LINE_AA)
    return panel


def write_video(path: Path, frames: list[Picture]) -> None:
    """Write an H.264 mp4 that browsers can play while loading."""
    with av.open(str(path), "w", options={"movflags": "faststart"}) as file:
        # x264's mbtree reads uninitialised memory (with AVX-512), so the same frames would yield different files.
        options = {"crf": "18", "x264-params": "mbtree=0"}
        stream = file.add_stream("libx264", FPS, options, pix_fmt="yuv420p", thread_count=1)
        stream.height, stream.width = frames[0].shape[:2]
        for frame in frames:
            file.mux(stream.encode(av.VideoFrame.from_ndarray(frame)))
        file.mux(stream.encode())
