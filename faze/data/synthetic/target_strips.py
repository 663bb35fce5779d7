"""Render people again: gaze and head pose of one of their frames, and everything else of another.

What a perfect redirection of the one frame to the other would show.
"""

import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from faze.config.parameters import Synthetic
from faze.data.normalization.pose import INNER_EYE_CORNERS_14_MM
from faze.data.preparation.strip_maker import StripMaker
from faze.data.readers import Frame
from faze.data.store.supplementary import Supplementary
from faze.data.synthetic.layouts import supplementary
from faze.data.synthetic.people import Role, jpeg, renderer_of, sample_frames


def render_target_strips(
    role: Role, synthetic: Synthetic, maker: StripMaker, rest: Sequence[str], turned: Sequence[str]
) -> tuple[NDArray[np.uint8], NDArray[np.float32], list[int]]:
    """Render frames of a person again and normalise them.

    Args:
        role: who.
        synthetic: the configuration that the person was rendered with.
        maker: makes strips of frames.
        rest: N names of the frames that room, light, lids, noise and sharpness are taken from.
        turned: N names of those that gaze, head pose, place and camera are taken from.

    Returns:
        strips (M, H, W, 3) RGB, their labels (M, 4), and which of the N they are. Left out are those whose frames the
        person does not have, as where a fault was planted, and those that give no strip.
    """
    frames = sample_frames(role, synthetic)
    row_of = {name: row for row, name in enumerate(frames.file_names)}
    known = [n for n, names in enumerate(zip(rest, turned, strict=True)) if all(name in row_of for name in names)]
    a, b = (np.array([row_of[names[n]] for n in known], np.int64) for names in (rest, turned))
    scene = replace(frames.scene[b], aperture=frames.scene.aperture[a])
    annotated = supplementary(replace(frames, scene=scene, file_names=[frames.file_names[row] for row in b]))
    renderer = renderer_of(role, frames, synthetic.seed)
    pixels = np.empty((len(known), maker.camera.height_px, maker.camera.width_px, 3), np.uint8)
    labels, reasons = np.empty((len(known), 4), np.float32), []
    with tempfile.TemporaryDirectory() as folder:  # strips are made of files
        path = Path(folder) / "frame.jpg"
        for row, chance in enumerate(a.tolist()):
            image = renderer.render(scene, row, int(frames.rooms[chance]), chance)
            path.write_bytes(jpeg(frames, synthetic, image))
            here = slice(row, row + 1)
            reasons += maker.make([_frame(annotated, row, path, role)], pixels[here], labels[here])
    good = [row for row, reason in enumerate(reasons) if not reason]
    return pixels[good], labels[good], [known[row] for row in good]


def _frame(annotated: Supplementary, row: int, path: Path, role: Role) -> Frame:
    fx, fy, cx, cy = annotated.camera_parameters[row]
    return Frame(
        person_id=role.person_id,
        image_path=path,
        file_name=annotated.file_names[row],
        camera_matrix=np.array([[fx, 0, cx], [0, fy, cy], [0, 0, 1]]),
        distortion=annotated.distortion_parameters[row],
        rotation_vector=annotated.head_pose[row, :3],
        translation_mm=annotated.head_pose[row, 3:],
        gaze_target_mm=annotated.gaze_target_mm[row],
        inner_eye_corners_mm=INNER_EYE_CORNERS_14_MM,
        split=role.split,
    )
