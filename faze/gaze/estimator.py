"""Estimate the gaze in camera frames by the chain that the frames of a manifest go through.

frame -> landmarks -> head pose -> strip -> code -> gaze in the normalised camera's frame -> gaze in the camera frame
"""

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import cv2
import numpy as np
import torch
from numpy.typing import NDArray

from faze.base.geometry import pitchyaw_from_vector
from faze.config.check import build, fields_of
from faze.config.parameters import Preprocess
from faze.config.validation import read_config
from faze.data.landmarks import estimate_head_pose
from faze.data.landmarks.detector import Detector, open_detector
from faze.data.network_input import shrink, to_network
from faze.data.normalization.pose import (
    INNER_EYE_CORNERS_14_MM,
    NormalizedCamera,
    UnusableFrame,
    normalize_poses,
)
from faze.data.normalization.warp import StripLookup, check_in_frame, look_up
from faze.gaze.sources import Lens, SourceFrame, frames_of
from faze.model.dted import DTED
from faze.model.weights import load_model

REMEDY = "pip install --no-deps mediapipe==1.2.3, and pass its Face Landmarker file (see docs/how-to/real-data.md)"
ANY_TARGET_MM = np.array([[0.0, 0.0, -1.0]])  # the virtual camera does not depend on the gaze target


@dataclass(frozen=True, eq=False)
class FaceGaze:
    """The gaze of a face in the camera frame: x right, y down, z away from the camera."""

    direction: NDArray[np.float64]  # (3,) unit vector from the gaze origin to the target
    origin_mm: NDArray[np.float64]  # (3,) midway between the inner eye corners
    head_pose: NDArray[np.float64]  # (6,) rotation vector (rad) and translation (mm), head -> camera
    strip: NDArray[np.uint8]  # (H, W, 3) RGB

    @property
    def pitchyaw(self) -> NDArray[np.float64]:
        """Pitch (up) and yaw (to the left in the frame), rad: 0 for a gaze opposite to the camera's axis."""
        return pitchyaw_from_vector(-self.direction)

    @property
    def head_angles(self) -> NDArray[np.float64]:
        """Angles about x, y and z, rad, whose rotations R_x R_y R_z turn the head frame to the camera frame."""
        rotation = cv2.Rodrigues(self.head_pose[:3])[0]
        about_x = np.arctan2(-rotation[1, 2], rotation[2, 2])
        about_z = np.arctan2(-rotation[0, 1], rotation[0, 0])
        return np.array([about_x, np.arcsin(np.clip(rotation[0, 2], -1, 1)), about_z])


@dataclass(frozen=True)
class GazeEstimator:
    """A trained network with the virtual camera of its strips and a detector of landmarks."""

    dted: DTED
    camera: NormalizedCamera
    detect: Detector

    @classmethod
    @contextlib.contextmanager
    def open(cls, model: Path | str, landmarker: Path | str | None = None) -> Iterator["GazeEstimator"]:
        """Load a checkpoint, and open MediaPipe during the block; the virtual camera is that of config.yaml.

        Args:
            model: checkpoint of DT-ED.
            landmarker: MediaPipe Face Landmarker file; None: the mesh in the package.

        Raises:
            UserError: the checkpoint cannot be used, or MediaPipe is missing.
        """
        section = read_config([])["preprocess"]
        strips = build(Preprocess, {name: section[name] for name in fields_of(Preprocess)})
        camera = NormalizedCamera(strips.focal_length_px, strips.distance_mm, strips.width_px, strips.height_px)
        dted = load_model(model)
        with open_detector(Path(landmarker) if landmarker else None, REMEDY) as detect:
            yield cls(dted, camera, detect)

    def frames(self, paths: Sequence[Path], lens: Lens) -> Iterator[tuple[SourceFrame, FaceGaze | str]]:
        """Yield every frame of images, folders of images and videos with its gaze, or the reason why it has none."""
        for frame in frames_of(paths):
            found: FaceGaze | str = frame.reason
            if frame.image is not None:
                try:
                    found = self.estimate(frame.image, *lens.of(frame.image))
                except UnusableFrame as unusable:
                    found = str(unusable)
            yield frame, found

    def estimate(self, image: NDArray[np.uint8], camera_matrix: NDArray, distortion: NDArray) -> FaceGaze:
        """Estimate the gaze of the face in a frame.

        Args:
            image: (H, W, 3) BGR, upright.
            camera_matrix: (3, 3) intrinsics, px from the centre of the frame's first pixel.
            distortion: (d,) distortion coefficients in OpenCV's order.

        Raises:
            UnusableFrame: the frame has no usable face; the message contains the reason.
        """
        pose = estimate_head_pose(image, camera_matrix, distortion, self.detect)
        poses, [reason] = normalize_poses(pose[None, :3], pose[None, 3:], INNER_EYE_CORNERS_14_MM[None], ANY_TARGET_MM)
        if reason:
            raise UnusableFrame(reason)
        lookup = StripLookup([camera_matrix], [distortion], poses, self.camera)
        check_in_frame(image.shape[1::-1], camera_matrix, lookup.gaze_origin_px[0])
        strip = np.empty((self.camera.height_px, self.camera.width_px, 3), np.uint8)
        look_up(image, lookup.maps(0), strip)
        # The network's vector points from the target to the eye.
        direction = -poses.rotation[0].T @ self._gaze(strip)
        return FaceGaze(direction, poses.gaze_origin_mm[0], pose, strip)

    def _gaze(self, strip: NDArray[np.uint8]) -> NDArray[np.float64]:
        size = self.dted.model.image_height_px, self.dted.model.image_width_px
        with torch.inference_mode():
            image = to_network(shrink(torch.from_numpy(strip[None]), *size), *size)
            return self.dted.gaze_vector(self.dted.encode(image).gaze)[0].double().numpy()
