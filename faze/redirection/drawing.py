"""Draw latent walks as videos and as one contact sheet."""

import contextlib
import itertools
from collections.abc import Iterator, Sequence
from pathlib import Path

import cv2
import numpy as np

from faze.base.errors import UserError
from faze.redirection.walk import WALKS, PersonWalk, Picture

SHEET_STEPS = 7  # of each walk that the contact sheet shows
SHEET_TILE_PX, VIDEO_TILE_PX = 192, 384  # widths
GAP_PX, LINE_PX, LABEL_PX, TEXT_BASELINE_PX = 6, 22, 92, 16


def contact_sheet(walks: Sequence[PersonWalk]) -> Picture:
    """Draw one block per person: input and reconstruction on the left, then a row per walk and a column per angle.

    The requested angle is written above each column, the estimated angle below each picture.
    """
    return np.concatenate([_block(walk) for walk in walks])


def video_frames(walk: PersonWalk) -> Iterator[Picture]:
    """Draw frames of even size, forward and back so that they loop: input and reconstruction above the four walks."""
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
    """Write a PNG."""
    if not cv2.imwrite(str(path), cv2.cvtColor(picture, cv2.COLOR_RGB2BGR)):
        raise OSError(f"{path} cannot be written")


def write_video(path: Path, frames: Iterator[Picture], fps: int) -> None:
    """Write an H.264 mp4 in the pixel format and byte order that browsers play while loading.

    Raises:
        UserError: the encoder is not installed.
    """
    try:
        import imageio_ffmpeg  # not needed elsewhere
    except ImportError:
        raise UserError("walks need imageio-ffmpeg, which includes an encoder: pip install imageio-ffmpeg") from None
    first = next(frames)
    writer = imageio_ffmpeg.write_frames(
        str(path),
        (first.shape[1], first.shape[0]),
        fps=fps,
        codec="libx264",
        pix_fmt_out="yuv420p",
        macro_block_size=2,
        quality=None,
        output_params=["-crf", "18", "-threads", "1", "-movflags", "+faststart"],
    )
    writer.send(None)
    with contextlib.closing(writer):
        for frame in itertools.chain([first], frames):
            writer.send(np.ascontiguousarray(frame))


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
    """Write a line of text, centred in a width of `middle_of` px if that is given."""
    font, scale, grey = (cv2.FONT_HERSHEY_DUPLEX if bold else cv2.FONT_HERSHEY_SIMPLEX), 0.5, (40, 40, 40)
    if middle_of:
        left += (middle_of - cv2.getTextSize(text, font, scale, 1)[0][0]) // 2
    cv2.putText(canvas, text, (left, top + TEXT_BASELINE_PX), font, scale, grey, 1, cv2.LINE_AA)


def _degrees(angle_deg: float) -> str:
    rounded = round(angle_deg)
    return f"{rounded:+d}\N{DEGREE SIGN}" if rounded else "0\N{DEGREE SIGN}"
