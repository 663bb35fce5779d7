"""Annotation of rendered frames: FAZE's, the files of MPIIFaceGaze and GazeCapture, and the ground truth.

As in the real data sets, the annotated head pose is that of a generic face model. N frames; camera frame, mm or px.
"""

import io
import itertools
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import cv2
import h5py
import numpy as np
from numpy.typing import NDArray
from scipy.io import savemat

from faze.base.files import whole_file
from faze.base.geometry import pitchyaw_from_vector
from faze.data.normalization.pose import INNER_EYE_CORNERS_6_MM, INNER_EYE_CORNERS_14_MM, normalize_poses
from faze.data.synthetic.person import Role, SyntheticPerson
from faze.data.synthetic.scene import Scene
from faze.data.synthetic.setting import Camera, Setting


@dataclass(frozen=True, eq=False)
class PersonFrames:
    """One person's frames before they are rendered."""

    role: Role
    person: SyntheticPerson
    setting: Setting
    scene: Scene
    rooms: NDArray  # (N,) room of each frame
    file_names: list[str]  # relative to the data set's folder

    @property
    def cameras(self) -> list[Camera]:
        """Return the camera of each frame."""
        return [self.setting.screens[index].camera for index in self.scene.screen]


def rotation_vectors(rotation: NDArray) -> NDArray:
    """Convert (N, 3, 3) rotation matrices to (N, 3) rotation vectors, rad."""
    return np.stack([cv2.Rodrigues(matrix)[0].ravel() for matrix in rotation])


def head_pose(scene: Scene, inner_eye_corners_mm: NDArray) -> NDArray:
    """Compute (N, 6) annotated rotation vectors and translations of a face model with (2, 3) inner eye corners."""
    translation = scene.annotated_origin_mm - scene.annotated_rotation @ np.mean(inner_eye_corners_mm, axis=0)
    return np.column_stack([rotation_vectors(scene.annotated_rotation), translation])


def project_head_points(frames: PersonFrames, points_mm: NDArray) -> NDArray:
    """Project points of the true head to pixels: (P, 3) in the head frame -> (N, P, 2)."""
    scene = frames.scene
    points = points_mm @ np.swapaxes(scene.rotation, 1, 2) + scene.origin_mm[:, None]
    return np.stack([camera.project(p) for camera, p in zip(frames.cameras, points, strict=True)])


def supplementary(frames: PersonFrames) -> dict[str, NDArray]:
    """Annotate a person's frames as FAZE does, under its published names."""
    return {
        "file_name": np.array([name.encode() for name in frames.file_names]),
        "camera_parameters": np.stack([camera.parameters for camera in frames.cameras]),
        "distortion_parameters": np.stack([camera.distortion for camera in frames.cameras]),
        "head_pose": head_pose(frames.scene, INNER_EYE_CORNERS_14_MM),
        "3d_gaze_target": frames.scene.target_mm,
    }


def truth(frames: PersonFrames) -> dict[str, NDArray]:
    """Collect the ground truth: a person's kappa and bias, and the scene of every frame without the bias.

    `labels` are (N, 4) gaze and head pitch, yaw without the bias, in the normalised camera of the annotated labels.
    """
    scene, person = frames.scene, frames.person
    return {
        "file_name": np.array([name.encode() for name in frames.file_names]),
        "labels": _true_labels(scene),
        "gaze_target_mm": scene.true_target_mm,
        "head_rotation_vector": rotation_vectors(scene.rotation),
        "gaze_origin_mm": scene.origin_mm,
        "eye_centres_mm": person.eye_centres_mm @ np.swapaxes(scene.rotation, 1, 2) + scene.origin_mm[:, None],
        "optical_axes": np.einsum("nij,nej->nei", scene.rotation, scene.optical_in_head),
        "kappa_rad": person.kappa_rad,
        "head_bias_rad": person.head_bias_rad,
    }


def _true_labels(scene: Scene) -> NDArray:
    corners = np.zeros((len(scene), 2, 3))  # the head frame's origin is the gaze origin
    vectors = rotation_vectors(scene.annotated_rotation)
    poses, _ = normalize_poses(vectors, scene.annotated_origin_mm, corners, scene.target_mm)
    gaze = poses.rotation @ (scene.true_target_mm - scene.origin_mm)[..., None]
    head = poses.rotation @ scene.rotation[..., 2:]
    return np.column_stack([pitchyaw_from_vector(vectors[..., 0]) for vectors in (-gaze, head)])


def write_arrays(path: Path, people: Mapping[str, Mapping[str, NDArray]]) -> None:
    """Write arrays by person and name to an HDF5 file."""
    content = io.BytesIO()  # HDF5 crashes when it closes a file on a full disk
    with h5py.File(content, "w") as file:
        for person, arrays in people.items():
            for name, array in arrays.items():
                file[f"{person}/{name}"] = array
    with whole_file(path) as temporary:
        temporary.write_bytes(content.getvalue())


# MPIIFaceGaze's 6-point face model: four eye corners and two mouth corners, mm.
FACE_MODEL_6_MM = np.array(
    [[-45.0968, -0.4838, 2.397], *INNER_EYE_CORNERS_6_MM, [45.0968, -0.4838, 2.397]]
    + [[-26.2996, 68.595, 0.0], [26.2996, 68.595, 0.0]]
)
_MAT_TEXT = b"MATLAB 5.0 MAT-file".ljust(116)
_CELLS = 25  # of GazeCapture's face grid, along each side
_FACE_MM, _EYE_MM = 165.0, 48.0  # sides of the boxes around face and eyes


def name_mpiifacegaze(rng: np.random.Generator, person_id: str, rooms: NDArray) -> list[str]:
    """Return the names of a person's frames; each room counts as one day."""
    days = np.sort(rng.choice(np.arange(1, 40), rooms.max() + 1, replace=False))
    numbers = [itertools.count(1) for _ in days]
    return [f"{person_id}/day{days[room]:02d}/{next(numbers[room]):04d}.jpg" for room in rooms.tolist()]


def write_mpiifacegaze(root: Path, frames: PersonFrames, rng: np.random.Generator) -> None:
    """Write pXX/pXX.txt and pXX/Calibration/*.mat."""
    person_id, scene = frames.role.person_id, frames.scene
    folder = root / person_id
    (folder / "Calibration").mkdir(parents=True, exist_ok=True)
    landmarks = np.concatenate([frames.person.corners_mm, frames.person.mouth_mm])
    from_origin = FACE_MODEL_6_MM.mean(axis=0) - INNER_EYE_CORNERS_6_MM.mean(axis=0)
    columns = [
        scene.target_units,
        np.round(project_head_points(frames, landmarks).reshape(len(scene), 12)),
        head_pose(scene, INNER_EYE_CORNERS_6_MM),
        scene.annotated_origin_mm + scene.annotated_rotation @ from_origin,  # the model's centre
        scene.target_mm,
    ]
    values = " ".join(["{:.0f}"] * 14 + ["{:.9f}"] * 3 + ["{:.6f}"] * 9)
    lines = [
        f"{name.removeprefix(person_id + '/')} {values.format(*numbers)} {rng.choice(['left', 'right'])}\n"
        for name, numbers in zip(frames.file_names, np.column_stack(columns), strict=True)
    ]
    (folder / f"{person_id}.txt").write_text("".join(lines), encoding="utf-8")
    _write_calibration(folder / "Calibration", frames)


def _write_calibration(folder: Path, frames: PersonFrames) -> None:
    screen = frames.setting.screens[0]
    camera = {"cameraMatrix": screen.camera.matrix, "distCoeffs": screen.camera.distortion[None]}
    (width_mm, height_mm), (width, height) = screen.size_mm, screen.size_units
    sizes = {"width_pixel": width, "height_pixel": height, "width_mm": width_mm, "height_mm": height_mm}
    pose = {"rvecs": rotation_vectors(screen.rotation[None]).T, "tvecs": screen.translation_mm[:, None]}
    for name, contents in (("Camera", camera), ("screenSize", sizes), ("monitorPose", pose)):
        file = io.BytesIO()
        savemat(file, contents)
        # scipy writes the date into the header: without it, the same people give the same bytes.
        (folder / f"{name}.mat").write_bytes(_MAT_TEXT + file.getvalue()[len(_MAT_TEXT) :])


def write_gazecapture(root: Path, frames: PersonFrames) -> None:
    """Write NNNNN/*.json."""
    folder = root / frames.role.person_id
    folder.mkdir(parents=True, exist_ok=True)
    for name, contents in {**_detected(frames), **_shown(frames)}.items():
        (folder / f"{name}.json").write_text(json.dumps(contents), encoding="utf-8")


def _detected(frames: PersonFrames) -> dict[str, list | dict]:
    """Compute the results of GazeCapture's detectors for each frame, and a summary of all frames."""
    scene, counts = frames.scene, ("TotalFrames", "NumFaceDetections", "NumEyeDetections")
    centres = np.array([[0.0, 28.0, 0.0], *frames.person.eye_centres_mm * [1, 1, 0]])
    pixels = project_head_points(frames, centres)  # face, the image's left eye, the right one
    scale = np.array([camera.parameters[0] for camera in frames.cameras]) / scene.origin_mm[:, 2]
    face = _boxes(pixels[:, 0], _FACE_MM * scale)
    # Eye boxes are relative to the face's box; GazeCapture's left eye is the person's, on the image's right.
    left, right = (_boxes(pixels[:, eye] - face[:, :2], _EYE_MM * scale) for eye in (2, 1))
    return {
        "frames": [Path(name).name for name in frames.file_names],
        "appleFace": _valid(face),
        "appleLeftEye": _valid(left),
        "appleRightEye": _valid(right),
        "faceGrid": _valid(_face_grid(face, frames)),
        "info": dict.fromkeys(counts, len(scene)) | {"Dataset": frames.role.split, "DeviceName": frames.setting.device},
    }


def _shown(frames: PersonFrames) -> dict[str, list | dict]:
    """Compute the dots, their screens, and the (absent) motion of the device."""
    screens = [frames.setting.screens[index] for index in frames.scene.screen]
    x, y = frames.scene.target_units.T.tolist()
    # Right and up for the user; the camera looks in the opposite direction.
    right_cm, up_cm = (-frames.scene.target_mm[:, :2] / 10).T.tolist()
    numbers, half = list(range(len(x))), [0.5] * len(x)  # each dot is shown for a second
    return {
        "dotInfo": {"DotNum": numbers, "XPts": x, "YPts": y, "XCam": right_cm, "YCam": up_cm, "Time": half},
        "screen": {
            "H": [screen.size_units[1] for screen in screens],
            "W": [screen.size_units[0] for screen in screens],
            "Orientation": [screen.orientation for screen in screens],
        },
        "motion": [{"DotNum": number, "Time": float(number)} for number in numbers],
    }


def _boxes(centres_px: NDArray, sides_px: NDArray) -> NDArray:
    """Compute squares (N, 4): left, top, width, height."""
    return np.round(np.column_stack([centres_px - sides_px[:, None] / 2, sides_px, sides_px]), 2)


def _face_grid(face: NDArray, frames: PersonFrames) -> NDArray:
    """Compute the face's box (N, 4) in cells of a 25 x 25 grid over the frame; indices start from 1."""
    sizes = np.array([[camera.width_px, camera.height_px] for camera in frames.cameras])
    first = np.clip(np.round(face[:, :2] / sizes * _CELLS) + 1, 1, _CELLS)
    cells = np.maximum(np.minimum(np.round(face[:, 2:] / sizes * _CELLS), _CELLS + 1 - first), 1)
    return np.column_stack([first, cells]).astype(int)


def _valid(boxes: NDArray) -> dict[str, list]:
    return {**dict(zip("XYWH", boxes.T.tolist(), strict=True)), "IsValid": [1] * len(boxes)}
