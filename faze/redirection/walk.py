"""Latent walks (paper figure 5): one strip, decoded at gaze directions and head poses that were never recorded.

The strip is encoded once and turned to the front. Then the gaze code turns from -range to +range while the head code
stays frontal, and vice versa. Walks are drawn as videos and as one contact sheet.

Shapes: S steps of a walk; H x W pixels, RGB.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import cv2
import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray

from faze.base.errors import UserError
from faze.base.files import whole_folder
from faze.base.geometry import rotation_from_pitchyaw
from faze.base.progress import Progress
from faze.config.parameters import Walk
from faze.data.network_input import from_network, to_network
from faze.data.pairs import open_people
from faze.data.strips import StripStore, read_store
from faze.engine.precision import exact
from faze.evaluation.redirected_angles import REDIRECTED, by_variant
from faze.model.dted import DTED, Codes
from faze.redirection.estimator import GazeHeadEstimator, estimate

SHEET, ANGLES = "contact_sheet.png", "angles.csv"
FPS = 15  # of the videos
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
        axis: 0 for pitch, 1 for yaw.
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
    dted: DTED, estimator: GazeHeadEstimator, store: StripStore, person: str, *, range_deg: float, steps: int
) -> PersonWalk:
    """Decode the walks of a person's first strip.

    Args:
        dted: trained network.
        estimator: estimates how far gaze and head have turned.
        store: the store.
        person: name of the person.
        range_deg: walks go from -range to +range.
        steps: S, both ends included.

    Raises:
        UserError: the network's output is not finite, for example because its training diverged.
    """
    image, codes, front = frontal(dted, store, person)
    walked, seen = {}, {}
    for name, (code, axis) in WALKS.items():
        angles_deg, rotations = walk_rotations(axis, range_deg, steps)
        decoded = dted.decode(turned(front, code, rotations))
        walked[name] = pictures(decoded, person)
        seen[name] = np.degrees(estimate(estimator, decoded)[:, axis + 2 * (code == "head")])
    reconstruction = pictures(dted.decode(codes), person)[0]
    return PersonWalk(store.dataset, person, pictures(image, person)[0], reconstruction, angles_deg, walked, seen)


def frontal(dted: DTED, store: StripStore, person: str) -> tuple[torch.Tensor, Codes, Codes]:
    """Encode a person's first strip.

    Returns:
        The image (1, 3, H, W), its codes, and the same codes rotated to frontal by its labels.
    """
    like = dted.fc_enc.weight
    people = open_people(store, (dted.model.image_height_px, dted.model.image_width_px))
    names = [person.name for person in people.persons]
    first = people.person_indices()[names.index(person)][:1]
    image, label = to_network(people.gather(first).to(like.device)), people.labels[first].to(like)
    codes = dted.encode(image)
    rotations = (rotation_from_pitchyaw(angles, torch) for angles in label.split(2, 1))
    return image, codes, codes.turn(*rotations)


def turned(front: Codes, code: str, rotations: torch.Tensor) -> Codes:
    """Turn one code of a strip, "gaze" or "head", by each of S rotations (S, 3, 3); return the S resulting codes."""
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


SHEET_STEPS = 7  # of each walk that the contact sheet shows
SHEET_TILE_PX, VIDEO_TILE_PX = 192, 384  # widths
GAP_PX, LINE_PX, LABEL_PX, TEXT_BASELINE_PX = 6, 22, 92, 16


def contact_sheet(walks: Sequence[PersonWalk]) -> Picture:
    """Draw one block per person: input and reconstruction on the left, then a row per walk and a column per angle.

    The requested angle is written above each column, the estimated angle below each picture.
    """
    return np.concatenate([_block(walk) for walk in walks])


def video_frames(walk: PersonWalk) -> Iterator[Picture]:
    """Draw frames, with even width and height, that loop forward and back: input and reconstruction above the walks."""
    width, height = size = _tile_size(walk, VIDEO_TILE_PX)
    row_px = LINE_PX + height + GAP_PX
    background = _canvas(LINE_PX + 3 * row_px + GAP_PX, 2 * (width + GAP_PX) + GAP_PX)
    _write(background, f"{walk.dataset} {walk.person}", 0, GAP_PX, bold=True)
    corners = [(LINE_PX + row * row_px, GAP_PX + column * (width + GAP_PX)) for row in range(3) for column in range(2)]
    _put(background, corners[0], "input", walk.input, size)
    _put(background, corners[1], "reconstruction", walk.reconstruction, size)
    steps = list(range(len(walk.angles_deg)))
    for step in steps + steps[-2:0:-1]:
        frame = background.copy()
        for corner, (name, pictures) in zip(corners[2:], walk.steps.items(), strict=True):
            requested, seen = _degrees(walk.angles_deg[step]), _degrees(walk.seen_deg[name][step])
            _put(frame, corner, f"{name}  {requested}, seen {seen}", pictures[step], size)
        yield frame


def write_picture(path: Path, picture: Picture) -> None:
    """Write a picture as PNG."""
    if not cv2.imwrite(str(path), cv2.cvtColor(picture, cv2.COLOR_RGB2BGR)):
        raise OSError(f"{path} cannot be written")


def write_video(path: Path, frames: Iterator[Picture], fps: int) -> None:
    """Write an H.264 mp4 that browsers can play while loading."""
    import av  # not needed elsewhere

    with av.open(str(path), "w", options={"movflags": "faststart"}) as file:
        stream = file.add_stream("libx264", fps, {"crf": "18"}, pix_fmt="yuv420p", thread_count=1)
        for number, frame in enumerate(frames):
            if not number:
                stream.height, stream.width = (side + side % 2 for side in frame.shape[:2])
            file.mux(stream.encode(av.VideoFrame.from_ndarray(np.ascontiguousarray(frame))))
        file.mux(stream.encode())


def _block(walk: PersonWalk) -> Picture:
    """Draw one person's block of the contact sheet."""
    width, height = size = _tile_size(walk, SHEET_TILE_PX)
    count = len(walk.angles_deg)
    chosen = np.unique(np.linspace(0, count - 1, min(count, SHEET_STEPS)).round().astype(int))
    tile_left = GAP_PX + width + 2 * GAP_PX + LABEL_PX
    row_px = height + LINE_PX + GAP_PX
    canvas = _canvas(LINE_PX + len(WALKS) * row_px + GAP_PX, tile_left + len(chosen) * (width + GAP_PX))
    _write(canvas, f"{walk.dataset} {walk.person}", 0, GAP_PX, bold=True)
    _put(canvas, (LINE_PX, GAP_PX), "input", walk.input, size)
    _put(canvas, (2 * LINE_PX + height + GAP_PX, GAP_PX), "reconstruction", walk.reconstruction, size)
    _write(canvas, "requested", 0, tile_left - LABEL_PX)
    for column, step in enumerate(chosen):
        _write(canvas, _degrees(walk.angles_deg[step]), 0, tile_left + column * (width + GAP_PX), middle_of=width)
    for row, (name, pictures) in enumerate(walk.steps.items()):
        top = LINE_PX + row * row_px
        _write(canvas, name, top + (height - LINE_PX) // 2, tile_left - LABEL_PX)
        _write(canvas, "seen", top + height, tile_left - LABEL_PX)
        for column, step in enumerate(chosen):
            left = tile_left + column * (width + GAP_PX)
            _paste(canvas, pictures[step], (top, left), size)
            _write(canvas, _degrees(walk.seen_deg[name][step]), top + height, left, middle_of=width)
    return canvas


def _tile_size(walk: PersonWalk, width: int) -> tuple[int, int]:
    height = round(width * walk.input.shape[0] / walk.input.shape[1])
    return width, height + height % 2


def _canvas(height: int, width: int) -> Picture:
    return np.full((height + height % 2, width + width % 2, 3), 255, np.uint8)


def _put(canvas: Picture, corner: tuple[int, int], caption: str, image: Picture, size: tuple[int, int]) -> None:
    """Write a caption at (top, left) and paste the image below it, resized to (width, height)."""
    top, left = corner
    _write(canvas, caption, top, left)
    _paste(canvas, image, (top + LINE_PX, left), size)


def _paste(canvas: Picture, image: Picture, corner: tuple[int, int], size: tuple[int, int]) -> None:
    (top, left), (width, height) = corner, size
    canvas[top : top + height, left : left + width] = cv2.resize(image, size, interpolation=cv2.INTER_CUBIC)


def _write(canvas: Picture, text: str, top: int, left: int, *, bold: bool = False, middle_of: int = 0) -> None:
    """Write a line of text, centred in a width of `middle_of` px if given."""
    font, scale, grey = (cv2.FONT_HERSHEY_DUPLEX if bold else cv2.FONT_HERSHEY_SIMPLEX), 0.5, (40, 40, 40)
    if middle_of:
        left += (middle_of - cv2.getTextSize(text, font, scale, 1)[0][0]) // 2
    cv2.putText(canvas, text, (left, top + TEXT_BASELINE_PX), font, scale, grey, 1, cv2.LINE_AA)


def _degrees(angle_deg: float) -> str:
    rounded = round(angle_deg)
    return f"{rounded:+d}\N{DEGREE SIGN}" if rounded else "0\N{DEGREE SIGN}"


def choose_people(pairs: Path, count: int) -> dict[str, list[str]]:
    """Choose people from each data set by the baseline's error in redirected gaze."""
    people = by_variant(pd.read_parquet(pairs))
    people = people[people["variant"] == REDIRECTED].set_index("person")
    return {
        dataset: spread_people(rows["gaze_error_deg"], count) for dataset, rows in people.groupby("dataset", sort=False)
    }


def write_walks(
    dted: DTED,
    estimator: GazeHeadEstimator,
    stores: Sequence[Path],
    people: dict[str, list[str]],
    walk: Walk,
    out: Path,
) -> None:
    """Write a video of each person's walks, a sheet of all walks, and the requested and estimated angles."""
    progress = Progress("walk", sum(map(len, people.values())), "people")
    walks: list[PersonWalk] = []
    with whole_folder(out) as folder, exact(dted):
        for path in stores:
            store = read_store(path)
            for person in people.get(store.dataset, []):
                how = {"range_deg": walk.range_deg, "steps": walk.frames}
                walks.append(walk_person(dted, estimator, store, person, **how))
                write_video(folder / f"{store.dataset}_{person}.mp4", video_frames(walks[-1]), FPS)
                progress(len(walks))
        write_picture(folder / SHEET, contact_sheet(walks))
        angles(walks).to_csv(folder / ANGLES, index=False, float_format="%.4f")


def angles(walks: Sequence[PersonWalk]) -> pd.DataFrame:
    """Tabulate the requested and estimated angles of each walk."""
    return pd.concat(
        pd.DataFrame(
            {
                **{"dataset": walk.dataset, "person": walk.person, "walk": name},
                **{"asked_deg": walk.angles_deg, "seen_deg": seen},
            }
        )
        for walk in walks
        for name, seen in walk.seen_deg.items()
    )
