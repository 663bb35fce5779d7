"""A video file that browsers play."""

import contextlib
import itertools
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from faze.base.errors import UserError
from faze.redirection.walk import Picture


def write_video(path: Path, frames: Iterator[Picture], fps: int) -> None:
    """Write H.264 in mp4, in the pixel format and byte order that browsers play while loading.

    Raises:
        UserError: the encoder is not installed.
    """
    try:
        import imageio_ffmpeg  # only here: the training core does without
    except ImportError:
        raise UserError("walks need imageio-ffmpeg, which brings its own encoder: pip install imageio-ffmpeg") from None
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
