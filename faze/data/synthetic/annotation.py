"""The annotation of rendered frames, and their ground truth, which is kept separately.

The annotated head pose is that of a generic face model fitted to the person, as in the real data sets. The annotated
gaze origin is the midpoint of the model's inner eye corners.

Shapes: N frames. Coordinates are in the camera frame, in mm, or in px.
"""

import io
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import cv2
import h5py
import numpy as np
from numpy.typing import NDArray

from faze.base.files import whole_file
from faze.base.geometry import pitchyaw_from_vector
from faze.data.normalization.pose import INNER_EYE_CORNERS_14_MM, normalize_poses
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
    labels = np.empty((len(scene), 4))
    for row, rotation in enumerate(poses.rotation):
        gaze = scene.true_target_mm[row] - scene.origin_mm[row]
        labels[row, :2] = pitchyaw_from_vector(-rotation @ gaze)
        labels[row, 2:] = pitchyaw_from_vector(rotation @ scene.rotation[row, :, 2])
    return labels


def write_supplementary(path: Path, people: Iterable[PersonFrames]) -> None:
    """Write FAZE's annotation of people."""
    _write_hdf5(path, {frames.role.person_id: supplementary(frames) for frames in people})


def write_truth(path: Path, people: Iterable[PersonFrames]) -> None:
    """Write the ground truth of people."""
    _write_hdf5(path, {frames.role.person_id: truth(frames) for frames in people})


def _write_hdf5(path: Path, people: Mapping[str, Mapping[str, NDArray]]) -> None:
    """Write arrays by person and name."""
    content = io.BytesIO()  # HDF5 crashes when it closes a file on a full disk
    with h5py.File(content, "w") as file:
        for person, arrays in people.items():
            for name, array in arrays.items():
                file[f"{person}/{name}"] = array
    with whole_file(path) as temporary:
        temporary.write_bytes(content.getvalue())
