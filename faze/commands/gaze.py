"""`faze gaze`: images and videos of a face -> a table of the gaze in each frame.

    faze gaze me.mp4 --model dted.pt --hfov-deg 70 --table gaze.csv
    faze gaze me.mp4 --model dted.pt --hfov-deg 70 --table gaze.csv --overlay gaze.mp4
    faze gaze photos/ --model dted.pt --lens camera.yaml --table gaze.csv

Each frame goes through the chain of a manifest's frames: face, landmarks (MediaPipe), head pose, strip, network. A
frame without a result has the reason. Without --lens or --hfov-deg, a field of view is assumed, and every row says so.

The camera frame is OpenCV's: x right, y down, z away from the camera.

| column | content |
|---|---|
| source, frame, timestamp | file; number from 0 and time in s of a video's frame |
| face_id, success, reason | 0; 1 or 0; why there is no gaze |
| lens | given, or assumed |
| gaze_angle_x, gaze_angle_y | horizontal and vertical angle of the gaze, rad, as OpenFace defines them |
| gaze_pitch_deg, gaze_yaw_deg | pitch (up) and yaw (to the left in the image), as in faze's labels |
| gaze_x, gaze_y, gaze_z | the direction, a unit vector |
| origin_x_mm, origin_y_mm, origin_z_mm | its origin, midway between the inner eye corners |
| pose_Tx, pose_Ty, pose_Tz | position of the head, mm |
| pose_Rx, pose_Ry, pose_Rz | angles of the head about x, y and z, rad |

The overlay is the video with an arrow from the origin of the gaze, the strip and the angles, or the reason.

Results are written at once to files with `.partial` in their names, which get their own names at the end; a stopped run
leaves them.
"""

import csv
from argparse import Namespace
from contextlib import closing
from pathlib import Path

import numpy as np

from faze.base.command_line import argument, command, needed
from faze.base.errors import UserError
from faze.base.locks import output_lock
from faze.base.progress import Progress
from faze.data.readers.manifest_camera import FIELD_OF_VIEW_DEG, read_cameras
from faze.gaze.estimator import FaceGaze, GazeEstimator
from faze.gaze.overlay import Overlay, draw
from faze.gaze.sources import IMAGES, Lens, count_frames, rate_of

ABOUT = ("source", "frame", "timestamp", "face_id", "success", "reason", "lens")
NUMBERS = ("gaze_angle_x", "gaze_angle_y", "gaze_pitch_deg", "gaze_yaw_deg", "gaze_x", "gaze_y", "gaze_z")
NUMBERS += ("origin_x_mm", "origin_y_mm", "origin_z_mm", "pose_Tx", "pose_Ty", "pose_Tz")
NUMBERS += ("pose_Rx", "pose_Ry", "pose_Rz")


@command(
    __doc__,
    argument("inputs", nargs="+", type=Path, metavar="INPUT", help="image, folder of images, or video"),
    needed("--model", "checkpoint of DT-ED"),
    argument("--lens", type=Path, help="calibration of the camera: YAML as OpenCV or ROS writes it, or .mat"),
    argument("--hfov-deg", type=float, help="horizontal field of view of the camera, instead of --lens"),
    argument("--landmarker", type=Path, help="MediaPipe Face Landmarker file (default: the mesh in MediaPipe)"),
    needed("--table", "CSV to write"),
    argument("--overlay", type=Path, help="mp4 to write, of a single video"),
)
def main(args: Namespace) -> None:
    """Estimate the gaze in every frame, and write the table."""
    lens, usable, done = read_lens(args), 0, 0
    total, known = count_frames(args.inputs), "assumed" if lens.assumed else "given"
    if args.overlay and (len(args.inputs) > 1 or args.inputs[0].is_dir() or args.inputs[0].suffix.lower() in IMAGES):
        raise UserError("--overlay is for a single video")
    partial = args.table.with_name(f"{args.table.name}.partial")
    drawn = args.overlay and args.overlay.with_name(f"{args.overlay.stem}.partial.mp4")
    with (
        GazeEstimator.open(args.model, args.landmarker) as estimator,
        output_lock(args.table),
        partial.open("w", newline="") as file,
        closing(Overlay(drawn, rate_of(args.inputs[0]) if args.overlay else 0.0)) as overlay,
    ):
        rows, progress = csv.writer(file, lineterminator="\n"), Progress("gaze", total, "frames")
        rows.writerow([*ABOUT, *NUMBERS])
        for done, (frame, found) in enumerate(estimator.frames(args.inputs, lens), start=1):
            reason = found if isinstance(found, str) else ""
            about = [frame.source, frame.number, f"{frame.time_s:.3f}", 0, int(not reason), reason, known]
            rows.writerow([*about, *([""] * len(NUMBERS) if reason else numbers_of(found))])
            file.flush()
            if args.overlay:
                overlay.add(draw(frame.image, lens, found), frame.time_s)
            usable += not reason
            progress(min(done, total), reason)
    partial.replace(args.table)
    if args.overlay:
        drawn.replace(args.overlay)
    print(f"{args.table}: {done} frames, {usable} with a gaze" + (f"; {lens}" if lens.assumed else ""))


def read_lens(args: Namespace) -> Lens:
    """Return the lens that the arguments describe."""
    if args.lens and args.hfov_deg is not None:
        raise UserError("pass either --lens or --hfov-deg")
    if args.hfov_deg is not None:
        least, most = FIELD_OF_VIEW_DEG
        if not least <= args.hfov_deg <= most:
            raise UserError(f"--hfov-deg {args.hfov_deg:g} is not between {least:g} and {most:g} degrees")
        return Lens(hfov_deg=args.hfov_deg, assumed=False)
    if args.lens is None:
        return Lens()
    camera = read_cameras(args.lens.parent, [args.lens.name])[args.lens.name]
    if isinstance(camera, str):
        raise UserError(camera)
    return Lens(camera, assumed=False)


def numbers_of(found: FaceGaze) -> list[str]:
    """Return the cells of NUMBERS."""
    x, y, z = found.direction
    angles = [np.arctan2(x, -z), np.arctan2(y, -z), *np.degrees(found.pitchyaw)]
    cells = [*angles, *found.direction, *found.origin_mm, *found.head_pose[3:], *found.head_angles]
    return [f"{cell:.6g}" for cell in cells]
