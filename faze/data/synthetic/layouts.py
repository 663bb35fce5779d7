"""The annotation of rendered frames, in the formats of FAZE, MPIIFaceGaze and GazeCapture, and the ground truth.

As in real data sets, annotated head poses are poses of a generic face model. Shapes: N frames; camera frame, mm or px.
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
    """Compute the annotated rotation vectors and translations (N, 6) of a face model with inner eye corners (2, 3)."""
    translation = scene.annotated_origin_mm - scene.annotated_rotation @ np.mean(inner_eye_corners_mm, axis=0)
    return np.column_stack([rotation_vectors(scene.annotated_rotation), translation])


def project_head_points(frames: PersonFrames, points_mm: NDArray) -> NDArray:
    """Project points on the true head to pixels: (P, 3) in the head frame -> (N, P, 2)."""
    scene = frames.scene
    points = points_mm @ np.swapaxes(scene.rotation, 1, 2) + scene.origin_mm[:, None]
    return np.stack([camera.project(p) for camera, p in zip(frames.cameras, points, strict=True)])


def supplementary(frames: PersonFrames) -> dict[str, NDArray]:
    """Return FAZE's annotation of a person's frames, using the published array names."""
    return {
        "file_name": np.array([name.encode() for name in frames.file_names]),
        "camera_parameters": np.stack([camera.parameters for camera in frames.cameras]),
        "distortion_parameters": np.stack([camera.distortion for camera in frames.cameras]),
        "head_pose": head_pose(frames.scene, INNER_EYE_CORNERS_14_MM),
        "3d_gaze_target": frames.scene.target_mm,
    }


def truth(frames: PersonFrames) -> dict[str, NDArray]:
    """Return the ground truth: a person's kappa and head pose bias, and each frame's scene without annotation errors.

    `labels` (N, 4) are the true gaze pitch, yaw, head pitch, yaw, relative to the annotation's normalised camera.
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
    """Write each person's named arrays to an HDF5 file."""
    content = io.BytesIO()  # HDF5 crashes when it closes a file on a full disk
    with h5py.File(content, "w") as file:
        for person, arrays in people.items():
            for name, array in arrays.items():
                file[f"{person}/{name}"] = array
    with whole_file(path) as temporary:
        temporary.write_bytes(content.getvalue())


# The middle of MPIIFaceGaze's face model, relative to the midpoint of its inner eye corners.
_FACE_CENTRE_MM = np.array([0.0, 22.3812, 2.397])
_MAT_TEXT = b"MATLAB 5.0 MAT-file".ljust(116)


def name_mpiifacegaze(rng: np.random.Generator, person_id: str, rooms: NDArray) -> list[str]:
    """Return the file names of a person's frames, treating each room as a different day."""
    days = np.sort(rng.choice(np.arange(1, 40), rooms.max() + 1, replace=False))
    numbers = [itertools.count(1) for _ in days]
    return [f"{person_id}/day{days[room]:02d}/{next(numbers[room]):04d}.jpg" for room in rooms.tolist()]


def write_mpiifacegaze(root: Path, frames: PersonFrames, rng: np.random.Generator) -> None:
    """Write a person's annotation to pXX/pXX.txt and pXX/Calibration/Camera.mat."""
    person_id, scene = frames.role.person_id, frames.scene
    folder = root / person_id
    (folder / "Calibration").mkdir(parents=True, exist_ok=True)
    landmarks = np.concatenate([frames.person.corners_mm, frames.person.mouth_mm])
    columns = [
        scene.target_units,
        np.round(project_head_points(frames, landmarks).reshape(len(scene), 12)),
        head_pose(scene, INNER_EYE_CORNERS_6_MM),
        scene.annotated_origin_mm + scene.annotated_rotation @ _FACE_CENTRE_MM,
        scene.target_mm,
    ]
    values = " ".join(["{:.0f}"] * 14 + ["{:.9f}"] * 3 + ["{:.6f}"] * 9)
    lines = [
        f"{name.removeprefix(person_id + '/')} {values.format(*numbers)} {rng.choice(['left', 'right'])}\n"
        for name, numbers in zip(frames.file_names, np.column_stack(columns), strict=True)
    ]
    (folder / f"{person_id}.txt").write_text("".join(lines), encoding="utf-8")
    camera, file = frames.setting.screens[0].camera, io.BytesIO()
    savemat(file, {"cameraMatrix": camera.matrix, "distCoeffs": camera.distortion[None]})
    # scipy writes the date into the header. Replace the header, so that the same people give the same bytes.
    (folder / "Calibration/Camera.mat").write_bytes(_MAT_TEXT + file.getvalue()[len(_MAT_TEXT) :])


def write_gazecapture(root: Path, frames: PersonFrames) -> None:
    """Write a person's annotation to NNNNN/*.json, with the arrays that faze reads."""
    folder = root / frames.role.person_id
    folder.mkdir(parents=True, exist_ok=True)
    detected = {"IsValid": [1] * len(frames.scene)}
    # Right and up as seen by the user; the camera looks in the opposite direction.
    right_cm, up_cm = (-frames.scene.target_mm[:, :2] / 10).T.tolist()
    arrays = dict.fromkeys(("appleFace", "appleLeftEye", "appleRightEye"), detected) | {
        "frames": [Path(name).name for name in frames.file_names],
        "dotInfo": {"XCam": right_cm, "YCam": up_cm, "Time": [1.0] * len(frames.scene)},
        "info": {"Dataset": frames.role.split, "DeviceName": frames.setting.device},
    }
    for name, contents in arrays.items():
        (folder / f"{name}.json").write_text(json.dumps(contents), encoding="utf-8")
