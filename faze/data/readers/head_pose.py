"""Head pose of GazeCapture's frames from landmarks that a detector finds: what FAZE's supplementary file has measured.

Thirteen of the 14 points of FAZE's face model (the last has no landmark) are laid onto the landmarks by PnP with
estimated intrinsics (devices.csv). The gaze target is the data set's own. All of it goes into a supplementary
annotation whose origin is `estimated`.
"""

from collections.abc import Callable
from pathlib import Path

import cv2
import numpy as np
from numpy.typing import NDArray

from faze.base.errors import UserError
from faze.data.normalization.frame import read_image
from faze.data.normalization.pose import UnusableFrame
from faze.data.readers import is_inside
from faze.data.readers.devices import check_device, estimate_camera
from faze.data.readers.recording import Recording, read_recording
from faze.data.store.supplementary import Supplementary

# FAZE's face model, head frame, mm, from faze_preprocess (swook/faze_preprocess, MIT licence): bridge of the nose from
# above to its tip (4), below the nose from the image's left to right (5), eye corners from left to right (4).
FACE_MODEL_MM = np.array(
    [
        [0.05832857, -7.60688782, -15.69785643],
        [-0.10377414, 8.64764404, -22.13105822],
        [-0.24472262, 23.37460136, -31.45995176],
        [-0.37655398, 35.09374356, -36.40296197],
        [-12.36220503, 46.71208954, -14.98328161],
        [-7.14245749, 49.0878067, -18.29475546],
        [-0.20381828, 50.27907181, -19.5088048],
        [6.80970144, 49.12047958, -18.35101175],
        [12.06582785, 46.73353767, -15.02448034],
        [-46.25580263, -1.64848328, 2.87227488],
        [-19.0150342, 1.5302906, -3.10160017],
        [19.16842031, 1.49678993, -2.83671331],
        [46.10241652, -1.37859726, 3.06603861],
    ]
)
OUTER_EYE_CORNERS = (9, 12)
# A face differs from the model: by this share of the distance of its outer eye corners, as root of the mean square.
MAX_ERROR_SHARE = 0.08

# (H, W, 3) uint8 BGR frame -> (13, 2) px of the points of FACE_MODEL_MM, pixel centres at integers; None: no face.
Detector = Callable[[NDArray[np.uint8]], NDArray | None]


def annotate(raw: Path, person: str, detect: Detector) -> Supplementary:
    """FAZE's annotation of a recording, estimated; entries that have none say why.

    Args:
        raw: folder of the recordings.
        person: which one.
        detect: finds the landmarks of a frame.

    Returns:
        one entry per frame of frames.json; a single one without file name where the recording is not whole or its
        device is not known.
    """
    try:
        recording = read_recording(raw / person)
        if recording.targets_mm is None or not (raw / person / "screen.json").exists():
            raise UserError("dotInfo.json or screen.json: No such file or directory")
        check_device(recording.device)
        if not recording.names:
            raise UserError("frames.json: lists no frame")
    except ValueError as error:
        return _entries([""], [_nothing()], [str(error)])
    names = [f"{person}/frames/{name}" for name in recording.names]
    numbers, reasons = [], []
    for row, name in enumerate(names):
        try:
            numbers.append(_annotate_frame(raw, name, recording, row, detect))
            reasons.append("")
        except UnusableFrame as reason:
            numbers.append(_nothing())
            reasons.append(str(reason))
    return _entries(names, numbers, reasons)


def estimate_pose(landmarks_px: NDArray, camera: NDArray) -> NDArray:
    """Lay the face model onto landmarks.

    Args:
        landmarks_px: (13, 2) of FACE_MODEL_MM.
        camera: (4,) fx fy cx cy, px; without distortion.

    Returns:
        (6,) rotation vector (rad) and translation (mm), head -> camera.

    Raises:
        UnusableFrame: no pose before the camera fits.
    """
    if landmarks_px.shape != (len(FACE_MODEL_MM), 2) or not np.isfinite(landmarks_px).all():
        raise UnusableFrame(f"landmarks are not {len(FACE_MODEL_MM)} points")
    fx, fy, cx, cy = camera
    lens = np.array([[fx, 0, cx], [0, fy, cy], [0, 0, 1.0]]), np.zeros(5)
    points = np.asarray(landmarks_px, np.float64)
    try:
        found, rotation, translation = cv2.solvePnP(FACE_MODEL_MM, points, *lens, flags=cv2.SOLVEPNP_SQPNP)
        if found:
            rotation, translation = cv2.solvePnPRefineLM(FACE_MODEL_MM, points, *lens, rotation, translation)
    except cv2.error:
        found = False
    pose = np.concatenate([rotation.ravel(), translation.ravel()]) if found else _nothing()[:6]
    if not np.isfinite(pose).all():
        raise UnusableFrame("no head pose fits the landmarks")
    if (FACE_MODEL_MM @ cv2.Rodrigues(pose[:3])[0][2] + pose[5] <= 0).any():
        raise UnusableFrame("head pose is behind the camera")
    seen = cv2.projectPoints(FACE_MODEL_MM, pose[:3], pose[3:], *lens)[0].reshape(-1, 2)
    error_px = np.sqrt(np.mean(np.sum((seen - points) ** 2, axis=1)))
    left, right = points[list(OUTER_EYE_CORNERS)]
    if error_px > MAX_ERROR_SHARE * np.linalg.norm(right - left):
        raise UnusableFrame(f"landmarks are not those of a face: {error_px:.1f} px from the face model")
    return pose


def _annotate_frame(raw: Path, name: str, recording: Recording, row: int, detect: Detector) -> NDArray:
    """(13,) camera, head pose and target of a frame."""
    if recording.faults[row]:
        raise UnusableFrame(recording.faults[row])
    if not is_inside(name):
        raise UnusableFrame("path leads out of the data folder")
    image = read_image(raw / name)
    camera = estimate_camera(recording.device, image.shape[1], image.shape[0])
    landmarks_px = detect(image)
    if landmarks_px is None:
        raise UnusableFrame("no face found")
    return np.concatenate([camera, estimate_pose(landmarks_px, camera), recording.targets_mm[row]])


def _nothing() -> NDArray:
    return np.full(13, np.nan)


def _entries(names: list[str], numbers: list[NDArray], reasons: list[str]) -> Supplementary:
    table = np.stack(numbers)
    return Supplementary(
        file_names=names,
        camera_parameters=table[:, :4],
        distortion_parameters=np.zeros((len(names), 5)),
        head_pose=table[:, 4:10],
        gaze_target_mm=table[:, 10:],
        reasons=reasons,
        origin="estimated",
    )
