"""Estimate the head pose and camera that GazeCapture lacks, in the format of FAZE's supplementary file.

The head pose is estimated by PnP from landmarks that MediaPipe's face mesh detects, with 13 of the 14 points of FAZE's
face model; the 14th point has no corresponding landmark. The intrinsics are estimated from the device. The gaze target
is the data set's own. The annotation of each recording is written to a separate file, so that a killed run can resume.

MediaPipe runs in a separate environment (envs/landmarks.yaml) with its own cv2. No test checks that the mesh is found
on GazeCapture's faces, because faze contains no real faces.

devices.csv contains the focal length of each of GazeCapture's 15 devices, in px for a frame whose longer side is 640
px. Neither the data set nor the manufacturer specifies it. It is computed from the 35 mm equivalent focal length (35 mm
film has a diagonal of 43.27 mm): focal_px = equivalent_mm / 43.27 mm x 800 px, where 800 px is the diagonal of the
frame. The equivalents are commonly quoted values and were not measured; expect an accuracy of about 10 %. The principal
point is assumed to be in the middle of the frame, the lens to have no distortion, and the frame to cover the whole 4:3
sensor.
"""

import csv
import functools
import hashlib
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import as_completed
from importlib import resources
from pathlib import Path

import cv2
import numpy as np
from numpy.typing import NDArray

from faze.base.code_hash import fingerprint
from faze.base.errors import UserError
from faze.base.process_pool import worker_processes
from faze.base.progress import Progress
from faze.data.normalization.images import read_image
from faze.data.normalization.pose import INNER_EYE_CORNERS_14_MM, UnusableFrame
from faze.data.readers import OUTSIDE, is_inside
from faze.data.readers.gazecapture import Recording, read_recording
from faze.data.store.supplementary import Supplementary, read_supplementary, write_supplementary

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
        *INNER_EYE_CORNERS_14_MM,
        [46.10241652, -1.37859726, 3.06603861],
    ]
)
OUTER_EYE_CORNERS = (9, 12)
# Largest difference of a face from the model: root mean square, as a fraction of the distance of the outer eye corners.
MAX_ERROR_SHARE = 0.08

# (H, W, 3) uint8 BGR frame -> (13, 2) px of the points of FACE_MODEL_MM, pixel centres at integers; None: no face.
Detector = Callable[[NDArray[np.uint8]], NDArray | None]


def estimate_pose(landmarks_px: NDArray, camera: NDArray) -> NDArray:
    """Find the head pose that projects the face model onto the landmarks.

    Args:
        landmarks_px: (13, 2) positions of the points of FACE_MODEL_MM.
        camera: (4,) fx fy cx cy, px; without distortion.

    Returns:
        (6,) rotation vector (rad) and translation (mm), head -> camera.

    Raises:
        UnusableFrame: No pose in front of the camera fits.
    """
    if landmarks_px.shape != (len(FACE_MODEL_MM), 2) or not np.isfinite(landmarks_px).all():
        raise UnusableFrame(f"expected {len(FACE_MODEL_MM)} finite landmark positions")
    fx, fy, cx, cy = camera
    lens = np.array([[fx, 0, cx], [0, fy, cy], [0, 0, 1.0]]), np.zeros(5)
    points = np.asarray(landmarks_px, np.float64)
    try:
        found, rotation, translation = cv2.solvePnP(FACE_MODEL_MM, points, *lens, flags=cv2.SOLVEPNP_SQPNP)
        if found:
            rotation, translation = cv2.solvePnPRefineLM(FACE_MODEL_MM, points, *lens, rotation, translation)
    except cv2.error:
        found = False
    pose = np.concatenate([rotation.ravel(), translation.ravel()]) if found else np.full(6, np.nan)
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


# Vertices of the mesh of 468 that correspond to FACE_MODEL_MM, in its order: bridge of the nose (168, 197, 5), its tip
# (4), below the nose (98, 97, 2, 326, 327), and the eye corners (33, 133, 362, 263).
VERTICES = (168, 197, 5, 4, 98, 97, 2, 326, 327, 33, 133, 362, 263)


def open_detector(model: Path | None) -> Detector:
    """Create a detector.

    Args:
        model: Face Landmarker task file; None: the face mesh in the package.

    Raises:
        UserError: MediaPipe is not installed, does not work, or lacks the model; the message contains the remedy.
    """
    try:
        detect = _open_mesh() if model is None else _open_task(model)
        detect(np.zeros((64, 64, 3), np.uint8))  # some errors occur only at the first frame
    except (UserError, MemoryError):
        raise
    except Exception as error:  # with other versions of protobuf or numpy, MediaPipe may raise any error
        reason = " ".join(f"{type(error).__name__}: {error}".split())[:300]
        raise UserError(
            f"MediaPipe cannot be used in this environment ({reason}): run `faze landmarks` with the Python of the "
            "environment envs/landmarks.yaml (set landmarks.python to its path)"
        ) from None
    return detect


def _open_mesh() -> Detector:
    import mediapipe  # only this environment has it

    if not hasattr(mediapipe, "solutions"):
        raise UserError(
            f"MediaPipe {mediapipe.__version__} contains no face mesh: install the version pinned in "
            "envs/landmarks.yaml, or set landmarks.model to a Face Landmarker file"
        )
    mesh = mediapipe.solutions.face_mesh.FaceMesh(static_image_mode=True, max_num_faces=1)

    def detect(image: NDArray[np.uint8]) -> NDArray | None:
        found = mesh.process(_rgb(image)).multi_face_landmarks or ()
        return _in_px([face.landmark for face in found], image)

    return detect


def _open_task(model: Path) -> Detector:
    import mediapipe
    from mediapipe.tasks.python import BaseOptions, vision

    if not model.is_file():
        raise UserError(f"{model}: no such file; landmarks.model is a MediaPipe Face Landmarker file")
    options = vision.FaceLandmarkerOptions(base_options=BaseOptions(model_asset_path=str(model)))
    try:
        landmarker = vision.FaceLandmarker.create_from_options(options)
    except (RuntimeError, ValueError) as error:
        raise UserError(f"{model}: not a MediaPipe Face Landmarker file ({error})") from None

    def detect(image: NDArray[np.uint8]) -> NDArray | None:
        rgb = mediapipe.Image(image_format=mediapipe.ImageFormat.SRGB, data=_rgb(image))
        return _in_px(landmarker.detect(rgb).face_landmarks, image)

    return detect


def _rgb(image: NDArray[np.uint8]) -> NDArray[np.uint8]:
    return np.ascontiguousarray(image[:, :, ::-1])


def _in_px(faces: Sequence, image: NDArray[np.uint8]) -> NDArray | None:
    """Compute the first face's landmarks, (13, 2) px from the centre of the first pixel; None if there is no face.

    MediaPipe's coordinates are fractions of width and height, relative to the frame's corner.
    """
    if not faces:
        return None
    shares = np.array([[faces[0][vertex].x, faces[0][vertex].y] for vertex in VERTICES])
    return shares * [image.shape[1], image.shape[0]] - 0.5


_LONGER_SIDE_PX = 640


@functools.cache
def _focal_lengths_px() -> dict[str, float]:
    with resources.files("faze.data.landmarks").joinpath("devices.csv").open(encoding="utf-8") as file:
        return {row["device"].casefold(): float(row["focal_px"]) for row in csv.DictReader(file)}


def check_device(device: str) -> None:
    """Raise a UserError if the camera of a device is unknown."""
    if device.casefold() not in _focal_lengths_px():
        raise UserError(f"the camera of device {device!r} is unknown: faze's devices.csv does not list it")


def estimate_camera(device: str, width_px: int, height_px: int) -> NDArray:
    """Estimate fx fy cx cy in px of a device's front camera, in any orientation; raise a UserError if it is unknown."""
    check_device(device)
    focal_px = _focal_lengths_px()[device.casefold()] * max(width_px, height_px) / _LONGER_SIDE_PX
    return np.array([focal_px, focal_px, (width_px - 1) / 2, (height_px - 1) / 2])


def identity_of(raw: Path, model: Path | None) -> str:
    """Hash everything on which the annotation depends, except the recordings' own files: 8 hex digits."""
    stat = model.stat() if model else None
    about = (
        str(raw.resolve()),
        fingerprint("faze.stages.landmarks"),
        stat and (str(model.resolve()), stat.st_size, stat.st_mtime_ns),
        getattr(sys.modules.get("mediapipe"), "__version__", ""),
    )
    return hashlib.sha256(repr(about).encode()).hexdigest()[:8]


def annotate_everybody(raw: Path, parts: Mapping[str, Path], model: Path | None, threads: int) -> None:
    """Write each recording's annotation to its file, unless the file exists.

    Args:
        raw: Folder of the recordings.
        parts: Output file of each recording.
        model: See `open_detector`.
        threads: Number of processes.
    """
    left = {person: part for person, part in parts.items() if not part.exists()}
    progress = Progress("landmarks", len(parts), "recordings")
    with worker_processes(threads, _start_process, model) as pool:
        futures = [pool.submit(_write_part, raw, person, part) for person, part in left.items()]
        for done, future in enumerate(as_completed(futures), start=len(parts) - len(left) + 1):
            future.result()
            progress(done)


def read_parts(parts: Mapping[str, Path], counts: Counter[str]) -> Iterator[tuple[str, Supplementary]]:
    """Read the annotation of every recording, and count the entries with and without a label.

    Raises:
        UserError: No frame of any recording has a label.
    """
    for person, part in parts.items():
        entries = read_supplementary(part, person)
        without = sum(map(bool, entries.reasons))
        counts.update({"with": len(entries.file_names) - without, "without": without})
        yield person, entries
    if not counts["with"]:
        raise UserError(f"no frame of any recording has a head pose ({counts['without']} entries)")


def _start_process(model: Path | None) -> None:
    global _detector
    _detector = functools.cache(lambda: open_detector(model))
    cv2.setNumThreads(1)


def _write_part(raw: Path, person: str, part: Path) -> None:
    write_supplementary(part, [(person, annotate(raw, person, _detector()))])


def annotate(raw: Path, person: str, detect: Detector) -> Supplementary:
    """Estimate an annotation like FAZE's for a recording; entries without one have a reason instead.

    Args:
        raw: Folder of the recordings.
        person: The recording's folder name.
        detect: Finds the landmarks of a frame.

    Returns:
        One entry per frame of frames.json; a single entry without a file name if the recording is incomplete or its
        device is unknown.
    """
    try:
        recording = read_recording(raw / person)
        if recording.targets_mm is None or not (raw / person / "screen.json").exists():
            raise UserError("dotInfo.json or screen.json: No such file or directory")
        check_device(recording.device)
        if not recording.names:
            raise UserError("frames.json: contains no frames")
    except UserError as error:
        return _entries([""], np.full((1, 13), np.nan), [str(error)])
    names = [f"{person}/frames/{name}" for name in recording.names]
    numbers, reasons = np.full((len(names), 13), np.nan), [""] * len(names)
    for row, name in enumerate(names):
        try:
            numbers[row] = _annotate_frame(raw, name, recording, row, detect)
        except UnusableFrame as unusable:
            reasons[row] = str(unusable)
    return _entries(names, numbers, reasons)


def _annotate_frame(raw: Path, name: str, recording: Recording, row: int, detect: Detector) -> NDArray:
    """Compute the (13,) numbers of a frame: camera, head pose and target."""
    if recording.faults[row]:
        raise UnusableFrame(recording.faults[row])
    if not is_inside(name):
        raise UnusableFrame(OUTSIDE)
    image = read_image(raw / name)
    camera = estimate_camera(recording.device, image.shape[1], image.shape[0])
    landmarks_px = detect(image)
    if landmarks_px is None:
        raise UnusableFrame("no face found")
    return np.concatenate([camera, estimate_pose(landmarks_px, camera), recording.targets_mm[row]])


def _entries(names: list[str], table: NDArray, reasons: list[str]) -> Supplementary:
    """Build the annotation of N frames from their (N, 13) numbers; a row of NaN is a frame without annotation."""
    return Supplementary(
        file_names=names,
        camera_parameters=table[:, :4],
        distortion_parameters=np.zeros((len(names), 5)),
        head_pose=table[:, 4:10],
        gaze_target_mm=table[:, 10:],
        reasons=reasons,
        label_source="estimated",
    )
