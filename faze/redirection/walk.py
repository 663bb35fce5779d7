"""Latent walks (paper figure 5): one strip, decoded at gaze directions and head poses that the person never had.

The strip is encoded once and frontalised; then the gaze code turns from -range to +range while the head looks straight,
and the other way round. Also the pictures of it: a contact sheet and a video.

Shapes: S steps of a walk; H x W pixels, RGB.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import cv2
import numpy as np
import torch
from numpy.typing import NDArray

from faze.base.errors import UserError
from faze.data.network_input import from_network, to_network
from faze.data.store.strips import StripStore
from faze.model.dted import DTED, rotation_from_pitchyaw

Picture = NDArray[np.uint8]  # (..., H, W, 3) RGB

# Name of a walk -> (the code that turns, the place of its angle in (pitch, yaw)).
WALKS = {"gaze yaw": ("gaze", 1), "gaze pitch": ("gaze", 0), "head yaw": ("head", 1), "head pitch": ("head", 0)}

SHEET_STEPS = 7  # of a walk that the contact sheet shows
SHEET_TILE_PX, VIDEO_TILE_PX = 192, 384  # widths
GAP_PX, LINE_PX, LABEL_PX, TEXT_BASELINE_PX = 6, 22, 92, 16


@dataclass(frozen=True, eq=False)
class PersonWalk:
    """The walks of one strip."""

    dataset: str
    person: str
    input: Picture  # (H, W, 3), as the network sees it
    reconstruction: Picture  # (H, W, 3)
    angles_deg: NDArray[np.float64]  # (S,)
    steps: Mapping[str, Picture]  # by walk, (S, H, W, 3)


def walk_rotations(axis: int, range_deg: float, steps: int) -> tuple[NDArray[np.float64], torch.Tensor]:
    """Rotations of one walk, in the latent frame.

    Args:
        axis: 0 turns the pitch, 1 the yaw.
        range_deg: from -range to +range.
        steps: S, both ends included.

    Returns:
        (S,) degrees and (S, 3, 3).
    """
    angles_deg = np.linspace(-range_deg, range_deg, steps)
    pitchyaw = np.zeros((steps, 2))
    pitchyaw[:, axis] = np.radians(angles_deg)
    return angles_deg, rotation_from_pitchyaw(torch.from_numpy(pitchyaw))


def first_people(strips: StripStore, count: int) -> list[str]:
    """The first people of the split test, whom no training saw; of all, where there is no such split."""
    return (strips.persons("test") or strips.persons())[:count]


@torch.inference_mode()
def walk_person(dted: DTED, strips: StripStore, person: str, *, range_deg: float, steps: int) -> PersonWalk:
    """Walk from a person's first strip.

    Raises:
        UserError: the network gives no numbers, as after a training that diverged.
    """
    like = dted.fc_enc.weight
    pixels = torch.from_numpy(strips.pixels(person, slice(1))).to(like.device)
    image = to_network(pixels, dted.model.image_height_px, dted.model.image_width_px)
    label = torch.from_numpy(strips.labels(person)[:1]).to(like)
    codes = dted.encode(image)
    frontal = codes.turn(rotation_from_pitchyaw(label[:, :2]), rotation_from_pitchyaw(label[:, 2:]))
    walked = {}
    for name, (code, axis) in WALKS.items():
        angles_deg, rotations = walk_rotations(axis, range_deg, steps)
        turned = {"gaze": frontal.gaze, "head": frontal.head}
        turned[code] = turned[code] @ rotations.to(like).mT
        everywhere = {key: value.expand(steps, -1, -1) for key, value in turned.items()}
        walked[name] = _pictures(dted.decode(codes._replace(app=codes.app.expand(steps, -1), **everywhere)), person)
    reconstruction = _pictures(dted.decode(codes), person)[0]
    return PersonWalk(strips.dataset, person, _pictures(image, person)[0], reconstruction, angles_deg, walked)


def contact_sheet(walks: Sequence[PersonWalk]) -> Picture:
    """One block per person: the input and its reconstruction at the left, a row per walk, a column per angle."""
    return np.concatenate([_block(walk) for walk in walks])


def video_frames(walk: PersonWalk) -> Iterator[Picture]:
    """Frames of even size, there and back so that they loop: input and reconstruction above the four walks."""
    width, height = _tile_size(walk, VIDEO_TILE_PX)
    row_px = LINE_PX + height + GAP_PX
    background = _canvas(LINE_PX + 3 * row_px + GAP_PX, 2 * (width + GAP_PX) + GAP_PX)
    _write(background, f"{walk.dataset} {walk.person}", 0, GAP_PX, bold=True)

    def put(canvas: Picture, place: int, caption: str, image: Picture) -> None:
        top, left = LINE_PX + place // 2 * row_px, GAP_PX + place % 2 * (width + GAP_PX)
        _write(canvas, caption, top, left)
        _paste(canvas, image, top + LINE_PX, left, width, height)

    put(background, 0, "input", walk.input)
    put(background, 1, "reconstruction", walk.reconstruction)
    there = list(range(len(walk.angles_deg)))
    for step in there + there[-2:0:-1]:
        frame = background.copy()
        for place, (name, pictures) in enumerate(walk.steps.items(), start=2):
            put(frame, place, f"{name}  {_degrees(walk.angles_deg[step])}", pictures[step])
        yield frame


def write_video(path: Path, frames: Iterator[Picture], fps: int) -> None:
    """Write H.264 in mp4, in the pixel format and byte order that browsers play while loading.

    Raises:
        UserError: the encoder is not installed.
    """
    try:
        import imageio_ffmpeg  # only here: the training core does without
    except ImportError:
        raise UserError("walks need imageio-ffmpeg, which brings its own encoder: pip install imageio-ffmpeg") from None
    frame = next(frames)
    writer = imageio_ffmpeg.write_frames(
        str(path),
        (frame.shape[1], frame.shape[0]),
        fps=fps,
        codec="libx264",
        pix_fmt_out="yuv420p",
        macro_block_size=2,
        quality=None,
        output_params=["-crf", "18", "-threads", "1", "-movflags", "+faststart"],
    )
    writer.send(None)
    try:
        while frame is not None:
            writer.send(np.ascontiguousarray(frame))
            frame = next(frames, None)
    finally:
        writer.close()


def write_picture(path: Path, picture: Picture) -> None:
    """Write a PNG."""
    if not cv2.imwrite(str(path), cv2.cvtColor(picture, cv2.COLOR_RGB2BGR)):
        raise OSError(f"{path}: cannot be written")


def _pictures(images: torch.Tensor, person: str) -> Picture:
    if not images.isfinite().all():
        raise UserError(
            f"the trained network's pictures of person {person} are not numbers: its training diverged; "
            "train again with a lower train.base_lr"
        )
    return from_network(images).cpu().numpy()


def _block(walk: PersonWalk) -> Picture:
    """One person's part of the contact sheet."""
    width, height = _tile_size(walk, SHEET_TILE_PX)
    count = len(walk.angles_deg)
    chosen = np.unique(np.linspace(0, count - 1, min(count, SHEET_STEPS)).round().astype(int))
    tile_left = GAP_PX + width + 2 * GAP_PX + LABEL_PX
    # As wide for every walk, so that blocks fit under each other.
    canvas = _canvas(LINE_PX + len(WALKS) * (height + GAP_PX) + 2 * GAP_PX, tile_left + len(chosen) * (width + GAP_PX))
    _write(canvas, f"{walk.dataset} {walk.person}", 0, GAP_PX, bold=True)
    for row, (caption, image) in enumerate({"input": walk.input, "reconstruction": walk.reconstruction}.items()):
        top = LINE_PX + row * (LINE_PX + height + GAP_PX)
        _write(canvas, caption, top, GAP_PX)
        _paste(canvas, image, top + LINE_PX, GAP_PX, width, height)
    for column, step in enumerate(chosen):
        left = tile_left + column * (width + GAP_PX)
        _write(canvas, _degrees(walk.angles_deg[step]), 0, left, middle_of=width)
        for row, pictures in enumerate(walk.steps.values()):
            _paste(canvas, pictures[step], LINE_PX + row * (height + GAP_PX), left, width, height)
    for row, name in enumerate(walk.steps):
        top = LINE_PX + row * (height + GAP_PX) + (height - LINE_PX) // 2
        _write(canvas, name, top, tile_left - LABEL_PX)
    return canvas


def _tile_size(walk: PersonWalk, width: int) -> tuple[int, int]:
    height = round(width * walk.input.shape[0] / walk.input.shape[1])
    return width, height + height % 2


def _canvas(height: int, width: int) -> Picture:
    return np.full((height + height % 2, width + width % 2, 3), 255, np.uint8)


def _paste(canvas: Picture, image: Picture, top: int, left: int, width: int, height: int) -> None:
    canvas[top : top + height, left : left + width] = cv2.resize(image, (width, height), interpolation=cv2.INTER_CUBIC)


def _write(canvas: Picture, text: str, top: int, left: int, *, bold: bool = False, middle_of: int = 0) -> None:
    """Write a line of text; centred over `middle_of` px if that is given."""
    font, scale, grey = (cv2.FONT_HERSHEY_DUPLEX if bold else cv2.FONT_HERSHEY_SIMPLEX), 0.5, (40, 40, 40)
    if middle_of:
        left += (middle_of - cv2.getTextSize(text, font, scale, 1)[0][0]) // 2
    cv2.putText(canvas, text, (left, top + TEXT_BASELINE_PX), font, scale, grey, 1, cv2.LINE_AA)


def _degrees(angle_deg: float) -> str:
    rounded = round(angle_deg)
    return f"{rounded:+d}\N{DEGREE SIGN}" if rounded else "0\N{DEGREE SIGN}"
