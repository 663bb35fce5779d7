"""MPIIGaze's original layout compared with its documentation, using an example worked out by hand.

Data/Original/pXX/dayYY contains NNNN.jpg and annotation.txt; line n annotates image n. Of its 41 columns, counted from
1, 24 are eye landmarks, 25-26 the target on the screen (px), 27-29 the target (mm, camera frame), 30-35 the head pose
(rotation vector, translation), 36-38 and 39-41 the centres of the right and the left eye (mm).
"""

from pathlib import Path

import numpy as np
import pytest
from one_frame import normalize_pose
from raw_data import supplementary
from scipy.io import savemat

from faze.data.readers import Frame, Reject
from faze.data.readers.mpiifacegaze import open_mpiifacegaze
from faze.data.store.supplementary import write_supplementary

LANDMARKS = range(501, 525)
# The 6-point model's inner eye corners are at (-+21.3129, 0.4838, -2.3970), their midpoint at (0, 0.4838, -2.3970).
# Moved by this, it comes to lie 600 mm straight before the camera.
STRAIGHT_MM = (0.0, -0.4838, 602.397)


def line(target_px: tuple, target_mm: tuple, rotation: tuple = (0, 0, 0), translation_mm: tuple = STRAIGHT_MM) -> str:
    x, y, z = translation_mm
    eyes = (x - 33.20485, y, z, x + 33.20485, y, z)  # means of each eye's two corners
    columns = (*LANDMARKS, *target_px, *target_mm, *rotation, *translation_mm, *eyes)
    assert len(columns) == 41
    return " ".join(map(str, columns)) + "\n"


LINES = {
    "day02": [
        line((10, 20), (600, 0, 0)),
        line((900, 300), (200, 100, 0)),  # farther right than the screen is high
        line((1300, 300), (-600, 0, 0), rotation=(0, np.pi / 6, 0)),
    ],
    "day10": [line((640, 400), (0, -600, 0))],
}


@pytest.fixture
def original(tmp_path: Path) -> Path:
    folder = tmp_path / "Data" / "Original" / "p03"
    (folder / "Calibration").mkdir(parents=True)
    camera = {"cameraMatrix": np.array([[960.0, 0, 640], [0, 960, 360], [0, 0, 1]]), "distCoeffs": np.zeros((1, 5))}
    savemat(folder / "Calibration" / "Camera.mat", camera)
    savemat(folder / "Calibration" / "screenSize.mat", {"width_pixel": 1280, "height_pixel": 800})
    for day, lines in LINES.items():
        (folder / day).mkdir()
        (folder / day / "annotation.txt").write_text("".join(lines))
    return folder


def test_line_n_of_a_day_annotates_image_n(original: Path) -> None:
    """Regression: images were counted from 0; days were read as one list, or in the wrong order; columns were
    shifted."""
    frames = list(open_mpiifacegaze(original.parents[2], None).entries("p03"))
    assert all(isinstance(frame, Frame) for frame in frames)
    found = {frame.image_path.relative_to(original).as_posix(): frame for frame in frames}
    assert list(found) == ["day02/0001.jpg", "day02/0002.jpg", "day02/0003.jpg", "day10/0001.jpg"]
    assert [tuple(frame.gaze_target_mm) for frame in frames] == [(600, 0, 0), (200, 100, 0), (-600, 0, 0), (0, -600, 0)]
    assert [frame.on_screen for frame in frames] == [True, True, False, True]  # 1300 px of 1280
    np.testing.assert_allclose(found["day02/0003.jpg"].rotation_vector, [0, np.pi / 6, 0])
    assert all(tuple(frame.translation_mm) == STRAIGHT_MM for frame in frames)


def test_the_supplementary_annotation_knows_the_original_layout(original: Path, tmp_path: Path) -> None:
    """The root of the whole download works too. Regression: it was refused; no target was marked as off the screen."""
    write_supplementary(tmp_path / "s.h5", [("p03", supplementary(["p03/day02/0001.jpg", "p03/day02/0003.jpg"]))])
    for raw in (original.parents[2], original.parent):
        frames = list(open_mpiifacegaze(raw, tmp_path / "s.h5").entries("p03"))
        assert [frame.image_path for frame in frames] == [original / "day02/0001.jpg", original / "day02/0003.jpg"]
        assert [frame.on_screen for frame in frames] == [True, False]


@pytest.mark.parametrize(
    ("image", "origin_mm", "gaze_deg", "head_deg"),
    [
        ("day02/0001.jpg", (0, 0, 600), (0, -45), (0, 0)),  # as far to the camera's right as it is away
        # From (0, 0, 600) to (200, 100, 0): turned round (-200, -100, 600), 640.3124 long. Pitch is the arcsine of
        # -100 / 640.3124, yaw the arctangent of -200 / 600.
        ("day02/0002.jpg", (0, 0, 600), (-8.98488, -18.43495), (0, 0)),
        ("day10/0001.jpg", (0, 0, 600), (45, 0), (0, 0)),  # as far up as it is away: the camera's y goes down
        # The head is turned by 30 degrees, which moves the midpoint by -2.3970 (sin 30, cos 30). The virtual camera
        # looks at it, so it is turned by the arctangent of -1.1985 / 600.3211: -0.11439 degrees. In the frame's camera,
        # the yaw of the gaze is the arctangent of 598.8015 / 600.3211: 44.92739 degrees.
        ("day02/0003.jpg", (-1.1985, 0, 600.321137), (0, 45.04178), (0, 30.11439)),
    ],
)
def test_its_labels_are_those_worked_out_by_hand(
    original: Path, image: str, origin_mm: tuple, gaze_deg: tuple, head_deg: tuple
) -> None:
    """Regression: head pose and target were exchanged; a translation came from the columns of the right eye."""
    (frame,) = [
        f for f in open_mpiifacegaze(original.parents[2], None).entries("p03") if str(f.image_path).endswith(image)
    ]
    pose = normalize_pose(frame.rotation_vector, frame.translation_mm, frame.inner_eye_corners_mm, frame.gaze_target_mm)
    np.testing.assert_allclose(pose.gaze_origin_mm, origin_mm, atol=1e-6)
    np.testing.assert_allclose(np.degrees(pose.labels), [*gaze_deg, *head_deg], atol=1e-5)


def test_a_line_that_is_missing_shifts_no_image(original: Path) -> None:
    """Regression: blank lines were skipped, so each later image got the annotation of the one before."""
    path = original / "day02" / "annotation.txt"
    path.write_text("\n".join([LINES["day02"][0].strip(), "", LINES["day02"][2]]))
    (reject,) = open_mpiifacegaze(original.parents[2], None).entries("p03")
    assert isinstance(reject, Reject) and "annotation.txt:2: 0 columns, not the 41" in reject.reason
