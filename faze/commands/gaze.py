"""`faze gaze`: images and videos of a face -> a table of the gaze in each frame.

    faze gaze me.mp4 --model dted.pt --landmarker face_landmarker.task --hfov-deg 70 --table gaze.csv --overlay gaze.mp4
    faze gaze photos/ --model dted.pt --landmarker face_landmarker.task --lens camera.yaml --table gaze.csv

Each frame goes through the chain of a manifest's frames: face, landmarks (MediaPipe), head pose, strip, network. A
frame without a result has the reason. Without --lens or --hfov-deg, a field of view is assumed, and every row says so.
The virtual camera of the strips is that of config/config.yaml.

The camera frame is OpenCV's: x right, y down, z away from the camera.

| column | content |
|---|---|
| source, frame, timestamp | file; number, from 0, and time in s of a decoded frame of a video |
| face_id, success, reason | 0; 1 or 0; why there is no gaze |
| lens | given, or assumed |
| gaze_angle_x, gaze_angle_y | horizontal and vertical angle of the gaze, rad, as OpenFace defines them |
| gaze_pitch_deg, gaze_yaw_deg | pitch (up) and yaw (to the left in the image) in the camera frame |
| gaze_x, gaze_y, gaze_z | the direction, a unit vector |
| origin_x_mm, origin_y_mm, origin_z_mm | its origin, midway between the inner eye corners |
| pose_Tx, pose_Ty, pose_Tz | position of the head, mm: the origin of faze's face model, between the eyes |
| pose_Rx, pose_Ry, pose_Rz | angles of the head about x, y and z, rad |

The overlay is the video with an arrow from the origin of the gaze, the strip and the angles, or the reason.

Rows and pictures are written immediately to NAME.partial.csv and NAME.partial.mp4, which are renamed at the end. A
stopped run leaves them.
"""

import csv
from argparse import Namespace
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path

import numpy as np

from faze.base.command_line import argument, command, needed
from faze.base.errors import UserError
from faze.base.files import FULL, named
from faze.base.locks import output_lock
from faze.base.progress import Progress
from faze.data.readers.manifest_camera import FIELD_OF_VIEW_DEG, read_cameras
from faze.gaze.estimator import FaceGaze, GazeEstimator
from faze.gaze.overlay import Overlay, draw
from faze.gaze.sources import ASSUMED_HFOV_DEG, IMAGES, Lens, sources_of

ABOUT = ("source", "frame", "timestamp", "face_id", "success", "reason", "lens")
NUMBERS = ("gaze_angle_x", "gaze_angle_y", "gaze_pitch_deg", "gaze_yaw_deg", "gaze_x", "gaze_y", "gaze_z")
NUMBERS += ("origin_x_mm", "origin_y_mm", "origin_z_mm", "pose_Tx", "pose_Ty", "pose_Tz")
NUMBERS += ("pose_Rx", "pose_Ry", "pose_Rz")


@command(
    __doc__,
    argument("inputs", nargs="+", type=Path, metavar="INPUT", help="image, folder of images, or video"),
    needed("--model", "checkpoint of DT-ED"),
    argument("--lens", type=Path, help="calibration of the camera: YAML as OpenCV or ROS writes it, or .mat"),
    argument("--hfov-deg", type=float, help="field of view across the width of the upright frame, instead of --lens"),
    argument("--landmarker", type=Path, help="MediaPipe Face Landmarker file (default: the mesh in MediaPipe)"),
    needed("--table", "CSV to write"),
    argument("--overlay", type=Path, help="mp4 to write, of a single video"),
)
def main(args: Namespace) -> None:
    """Estimate the gaze in every frame, and write the table."""
    lens, sources = read_lens(args), sources_of(args.inputs)
    partial = partial_of(args.table)
    check_paths(args, [source.path for source in sources])
    overlay = nullcontext()
    if args.overlay:
        if len(sources) > 1 or sources[0].path.suffix.lower() in IMAGES:
            raise UserError("--overlay is for a single video")
        overlay = Overlay(partial_of(args.overlay), sources[0].fps)
    stated, usable, done = sum(source.frames for source in sources), 0, 0
    with (
        GazeEstimator.open(args.model, args.landmarker) as estimator,
        output_lock(args.table),
        output_lock(args.overlay) if args.overlay else nullcontext(),
        named(partial, FULL),
        partial.open("w", newline="") as file,
        overlay,
    ):
        rows, progress = csv.writer(file, lineterminator="\n"), Progress("gaze", stated, "frames")
        rows.writerow([*ABOUT, *NUMBERS])
        for done, (frame, found) in enumerate(estimator.frames(args.inputs, lens), start=1):
            reason = found if isinstance(found, str) else ""
            about = [frame.source, frame.number, f"{frame.time_s:.3f}", 0, int(not reason), reason]
            cells = [""] * len(NUMBERS) if reason else numbers_of(found)
            rows.writerow([*about, "assumed" if lens.assumed else "given", *cells])
            file.flush()
            if args.overlay:
                overlay.add(draw(frame.image, lens, found), frame.time_s)
            usable += not reason
            progress(min(done, stated - 1), reason)
        progress(stated)
    for path in filter(None, (args.table, args.overlay)):
        partial_of(path).replace(path)
    print(f"{args.table}: {done} frames, {usable} with a gaze")
    if done < stated:
        print(f"{stated - done} of the {stated} frames that the files state could not be decoded")
    if lens.assumed:
        print(f"a field of view of {ASSUMED_HFOV_DEG:g} degrees is assumed: pass --lens or --hfov-deg")


def partial_of(path: Path) -> Path:
    """Return the path of an unfinished output."""
    return path.with_name(f"{path.stem}.partial{path.suffix}")


def check_paths(args: Namespace, sources: Sequence[Path]) -> None:
    """Refuse outputs that would replace an input or each other, before anything is written."""
    taken = {path.resolve() for path in [*sources, args.model, args.lens, args.landmarker] if path}
    for path in filter(None, (args.table, args.overlay)):
        if path.is_dir():
            raise UserError(f"{path}: is a folder; name a file in it")
        path.parent.mkdir(parents=True, exist_ok=True)
        for own in (path.resolve(), partial_of(path).resolve()):
            if own in taken:
                raise UserError(f"{own}: would be replaced by an output; choose another name")
            taken.add(own)


def read_lens(args: Namespace) -> Lens:
    """Return the lens that the arguments describe."""
    if args.lens and args.hfov_deg is not None:
        raise UserError("pass either --lens or --hfov-deg")
    if args.hfov_deg is not None:
        least, most = FIELD_OF_VIEW_DEG
        if not least <= args.hfov_deg <= most:
            raise UserError(f"--hfov-deg {args.hfov_deg:g} is not between {least:g} and {most:g} degrees")
        return Lens(hfov_deg=args.hfov_deg)
    if args.lens is None:
        return Lens()
    camera = read_cameras(args.lens.parent, [args.lens.name])[args.lens.name]
    if isinstance(camera, str):
        raise UserError(camera)
    return Lens(camera)


def numbers_of(found: FaceGaze) -> list[str]:
    """Return the cells of NUMBERS."""
    x, y, z = found.direction
    angles = [np.arctan2(x, -z), np.arctan2(y, -z), *np.degrees(found.pitchyaw)]
    cells = [*angles, *found.direction, *found.origin_mm, *found.head_pose[3:], *found.head_angles]
    return [f"{cell:.6g}" for cell in cells]
