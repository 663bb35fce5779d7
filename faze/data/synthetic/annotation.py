"""What the data sets and FAZE's supplementary file annotate of each frame, and the truth that they do not know.

N frames; camera frame, mm, px. The annotated head pose is that of a generic face model laid onto the person: the
annotated gaze origin is the midpoint of the model's inner eye corners.
"""

from dataclasses import dataclass

import cv2
import numpy as np
from numpy.typing import NDArray

from faze.base.geometry import pitchyaw_from_vector
from faze.data.normalization.pose import INNER_EYE_CORNERS_6_MM, INNER_EYE_CORNERS_14_MM, normalize_poses
from faze.data.store.supplementary import Supplementary
from faze.data.synthetic.person import SyntheticPerson
from faze.data.synthetic.scene import Scene
from faze.data.synthetic.setting import Setting

# MPIIFaceGaze's 6-point face model: four eye corners and two mouth corners, mm.
FACE_MODEL_6_MM = np.array(
    [
        [-45.0968, -0.4838, 2.3970],
        *INNER_EYE_CORNERS_6_MM,
        [45.0968, -0.4838, 2.3970],
        [-26.2996, 68.5950, 0.0],
        [26.2996, 68.5950, 0.0],
    ]
)


@dataclass(frozen=True, eq=False)
class PersonFrames:
    """One person's frames before they are rendered."""

    person_id: str
    split: str
    person: SyntheticPerson
    setting: Setting
    scene: Scene
    rooms: NDArray  # (N,) in which room each frame is taken
    file_names: list[str]  # relative to the data set's folder

    @property
    def cameras(self) -> list:
        """List the camera of each frame."""
        return [self.setting.screens[index].camera for index in self.scene.screen]


def rotation_vectors(rotation: NDArray) -> NDArray:
    """Turn (N, 3, 3) rotations into (N, 3) rotation vectors, rad."""
    return np.stack([cv2.Rodrigues(matrix)[0].ravel() for matrix in rotation])


def head_pose(scene: Scene, inner_eye_corners_mm: NDArray) -> NDArray:
    """Compute (N, 6) annotated rotation vector, translation of the face model with these (2, 3) inner eye corners."""
    translation = scene.annotated_origin_mm - scene.annotated_rotation @ np.mean(inner_eye_corners_mm, axis=0)
    return np.column_stack([rotation_vectors(scene.annotated_rotation), translation])


def face_centres_mm(scene: Scene) -> NDArray:
    """Compute (N, 3) means of the 6-point model's landmarks, as MPIIFaceGaze annotates them."""
    offset = FACE_MODEL_6_MM.mean(axis=0) - INNER_EYE_CORNERS_6_MM.mean(axis=0)
    return scene.annotated_origin_mm + scene.annotated_rotation @ offset


def project_head_points(frames: PersonFrames, points_mm: NDArray) -> NDArray:
    """Project points of the true head to pixels: (P, 3) in the head frame -> (N, P, 2)."""
    scene = frames.scene
    points = points_mm @ np.swapaxes(scene.rotation, 1, 2) + scene.origin_mm[:, None]
    return np.stack([camera.project(p) for camera, p in zip(frames.cameras, points, strict=True)])


def landmarks_px(frames: PersonFrames) -> NDArray:
    """Compute (N, 6, 2) pixels of the person's own eye and mouth corners, in the order of the 6-point model."""
    return project_head_points(frames, np.concatenate([frames.person.corners_mm, frames.person.mouth_mm]))


def supplementary(frames: PersonFrames) -> Supplementary:
    """Annotate a person's frames as FAZE does."""
    return Supplementary(
        file_names=frames.file_names,
        camera_parameters=np.stack([camera.parameters for camera in frames.cameras]),
        distortion_parameters=np.stack([camera.distortion for camera in frames.cameras]),
        head_pose=head_pose(frames.scene, INNER_EYE_CORNERS_14_MM),
        gaze_target_mm=frames.scene.target_mm,
    )


def truth(frames: PersonFrames) -> dict[str, NDArray]:
    """Collect what nobody annotates: a person's angles kappa and biases, and every frame's scene without the biases.

    `labels` are (N, 4) gaze and head pitch, yaw without the biases, in the annotated ones' normalised camera.
    """
    scene, person = frames.scene, frames.person
    return {
        "file_name": np.array([name.encode() for name in frames.file_names]),
        "labels": _true_labels(scene),
        "gaze_target_mm": scene.true_target_mm,
        "head_rotation_vector": rotation_vectors(scene.rotation),
        "gaze_origin_mm": scene.origin_mm,
        "eye_centres_mm": scene.eye_centres_mm(person),
        "optical_axes": scene.optical,
        "kappa_rad": person.kappa_rad,
        "gaze_bias_rad": person.gaze_bias_rad,
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
