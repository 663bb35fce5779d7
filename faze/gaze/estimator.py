"""Gaze estimation in camera frames, with the same steps as for frames in a manifest.

frame -> landmarks -> head pose -> strip -> code -> gaze in the normalised camera's frame -> gaze in the camera frame
"""

import contextlib
import dataclasses
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from faze.base.geometry import pitchyaw_from_vector
from faze.data.landmarks.detector import NO_FACE, FaceDetector, open_faces
from faze.data.landmarks.pose import eye_opening, pose_of
from faze.data.normalization.pose import INNER_EYE_CORNERS_14_MM, UnusableFrame, normalize_poses
from faze.data.normalization.warp import make_strip
from faze.data.readers.camera import Camera
from faze.fewshot.learners import PersonalEstimator, load_personal_estimator
from faze.fewshot.person_codes import Seen
from faze.gaze.network import Network, load_network
from faze.gaze.sources import Lens, SourceFrame, frames_of, sources_of
from faze.weights import SHIPPED

LANDMARKER = Path("face_landmarker.task")  # in the working directory


@dataclass(frozen=True, eq=False)
class FaceGaze:
    """The gaze of a face in the camera frame: x right, y down, z away from the camera."""

    direction: NDArray[np.float64]  # (3,) unit vector from the gaze origin to the target
    origin_mm: NDArray[np.float64]  # (3,) of the gaze: the middle of the strip
    head_pose: NDArray[np.float64]  # (6,) rotation vector (rad) and translation (mm), head -> camera
    strip: NDArray[np.uint8]  # (H, W, 3) RGB
    rotation: NDArray[np.float64]  # (3, 3) camera -> normalised camera
    seen: Seen  # one entry for a calibration, in the normalised camera's frame
    expected_error_deg: float = np.nan  # mean angular error; NaN without a calibration that predicts it
    eye_opening: float = np.nan  # distance between the lids / width, of the wider open eye; NaN without landmarks

    @property
    def pitchyaw(self) -> NDArray[np.float64]:
        """Pitch (up) and yaw (to the left in the frame), rad; both are 0 for a gaze opposite to the camera's axis."""
        return pitchyaw_from_vector(-self.direction)


@dataclass(frozen=True)
class GazeEstimator:
    """A trained network, a face detector and, if given, a calibration and a lens.

    docs/how-to/gaze.md contains an example.
    """

    network: Network
    detect: FaceDetector
    person: PersonalEstimator | None = None
    lens: Lens = Lens()

    @classmethod
    @contextlib.contextmanager
    def load(
        cls,
        model: Path | str = SHIPPED,
        landmarker: Path | str = LANDMARKER,
        *,
        person: Path | str | None = None,
        lens: Lens | None = None,
        faces: int = 1,
    ) -> Iterator["GazeEstimator"]:
        """Load a checkpoint and open MediaPipe, which is closed at the end of the `with` block.

        Raise a UserError if a file is unusable, the person's file is for another network, or MediaPipe is missing.

        Args:
            model: name of a network, as in faze.gaze.network; default: the shipped network.
            landmarker: MediaPipe Face Landmarker file.
            person: file that `faze calibrate` wrote for this network.
            lens: lens for all frames that have no camera of their own; if None, a lens is assumed.
            faces: maximum number of faces per frame; 0 to use only `at_pose`, without MediaPipe.
        """
        network = load_network(model)
        known = load_personal_estimator(Path(person), network.hash) if person else None
        with open_faces(Path(landmarker), faces) if faces else contextlib.nullcontext() as detect:
            yield cls(network, detect, known, lens or Lens())

    def video(self, path: Path | str) -> Iterator[tuple[SourceFrame, list[FaceGaze | str]]]:
        """Estimate the gaze in every frame of a video, image, folder or manifest."""
        return self.frames(frames_of(sources_of([Path(path)])))

    def frames(self, frames: Iterable[SourceFrame]) -> Iterator[tuple[SourceFrame, list[FaceGaze | str]]]:
        """Yield each frame and a non-empty list, which contains each face's gaze or the reason why there is none."""
        for frame in frames:
            found: list[FaceGaze | str] = [frame.reason]
            if frame.image is not None:
                try:
                    camera = frame.camera or self.lens.of(frame.image)
                    if frame.head:
                        found = [self.at_pose(frame.image, camera, *frame.head)]
                    else:
                        found = self.faces(frame.image, camera) or [NO_FACE]
                except UnusableFrame as unusable:
                    found = [str(unusable)]
            yield frame, found

    def faces(self, image: NDArray[np.uint8], camera: Camera) -> list[FaceGaze | str]:
        """Return each face's gaze, or why it has none, for an upright BGR frame (H, W, 3), largest face first."""
        found: list[FaceGaze | str] = []
        for landmarks in self.detect(image):
            try:
                if isinstance(landmarks, UnusableFrame):
                    raise landmarks
                gaze = self.at_pose(image, camera, pose_of(landmarks, image, camera))
                found.append(dataclasses.replace(gaze, eye_opening=eye_opening(landmarks)))
            except UnusableFrame as unusable:
                found.append(str(unusable))
        return found

    def at_pose(
        self,
        image: NDArray[np.uint8],
        camera: Camera,
        pose: NDArray[np.float64],
        corners_mm: NDArray[np.float64] = INNER_EYE_CORNERS_14_MM,
    ) -> FaceGaze:
        """Estimate the gaze of a face whose head pose is known; raise UnusableFrame if the face is not in the frame.

        `pose` (6,) is a rotation vector (rad) and a translation (mm) from head to camera. `corners_mm` (2, 3) are the
        inner eye corners in the head frame.
        """
        any_target = np.array([[0.0, 0.0, -1.0]])  # the virtual camera does not depend on it
        points_mm = corners_mm + self.network.camera.center_mm
        poses, [reason] = normalize_poses(pose[None, :3], pose[None, 3:], points_mm, any_target)
        if reason:
            raise UnusableFrame(reason)
        strip = make_strip(image, camera, poses[0], self.network.camera)
        codes, gaze_hat = self.network(strip[None])
        seen = Seen(codes, gaze_hat, poses.labels[:, 2:])
        # Like labels, the network's vector points from the target to the eye.
        vector = (self.person.gaze(seen) if self.person else gaze_hat)[0]
        error_deg = self.person.expected_error_deg(seen)[0] if self.person else np.nan
        direction, origin_mm = -poses.rotation[0].T @ vector, poses.gaze_origin_mm[0]
        return FaceGaze(direction, origin_mm, pose, strip, poses.rotation[0], seen, error_deg)
