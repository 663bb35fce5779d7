"""`faze gaze`: images and videos of faces -> a table of the gaze in each frame.

    faze gaze me.mp4 --hfov-deg 70 --table gaze.csv --overlay gaze.mp4
    faze gaze photos/ --lens lens.yaml --person me.pt --table gaze.parquet
    faze gaze --camera-index 0 --screen screen.yaml --smooth one-euro --table gaze.csv

Each frame is processed like one of a manifest: face, landmarks (MediaPipe), head pose, strip, network, calibration. If
there is no gaze, the row contains the reason. Without --lens, --focal-px or --hfov-deg, a field of view is assumed,
and the column `lens` is `assumed`. A manifest states the lenses of its frames; its labels are not used. The virtual
camera of strips is that in the checkpoint or, if it contains none, in config/config.yaml.

The camera frame is OpenCV's: x right, y down, z away from the camera.

| column | content |
|---|---|
| source, frame, timestamp | file; number, from 0, and time in s of a decoded frame of a video or camera |
| face_id, success, reason | number of the face in this source, from 0; 1 or 0; why there is no gaze |
| lens | given, or assumed; empty if the frame cannot be read |
| gaze_angle_x, gaze_angle_y | angles of the gaze, rad, as in OpenFace: to the right and down in the image |
| gaze_pitch_deg, gaze_yaw_deg | pitch (up) and yaw (to the left in the image) in the camera frame |
| gaze_pitch_smooth_deg, gaze_yaw_smooth_deg | the same, smoothed (--smooth) |
| gaze_x, gaze_y, gaze_z | the direction, a unit vector |
| screen_x_px, screen_y_px | where it meets the screen's plane (--screen), px from the screen's top left corner |
| origin_x_mm, origin_y_mm, origin_z_mm | its origin, midway between the inner eye corners |
| pose_Tx, pose_Ty, pose_Tz | position of the head, mm: the origin of faze's face model, between the eyes |
| pose_Rx, pose_Ry, pose_Rz | angles of the head about x, y and z, rad |

The overlay is the video with an arrow from the origin of the gaze, the strip and the angles, or the reason.

Rows and pictures are written immediately to NAME.partial.csv and NAME.partial.mp4, which are converted or renamed at
the end. A stopped run leaves them. Ctrl-C ends a recording from a camera.
"""

import csv
import importlib.util
import sys
from argparse import Namespace
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import nullcontext
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from faze.base.command_line import argument, at_least_one, command, needed
from faze.base.errors import UserError
from faze.base.files import FULL, named, whole_file
from faze.base.locks import output_lock
from faze.base.progress import Progress
from faze.config.shipped import SHIPPED
from faze.data.readers.screen import Screen, read_screen
from faze.evaluation.wording import counted
from faze.gaze.estimator import LANDMARKER, FaceGaze, GazeEstimator
from faze.gaze.overlay import Overlay, draw
from faze.gaze.sources import (
    ASSUMED_HFOV_DEG,
    DEFAULT_FPS,
    Lens,
    Source,
    SourceFrame,
    frames_of,
    open_camera,
    read_lens,
    sources_of,
)
from faze.gaze.tracks import Tracks

ABOUT = ("source", "frame", "timestamp", "face_id", "success", "reason", "lens")
NUMBERS = ("gaze_angle_x", "gaze_angle_y", "gaze_pitch_deg", "gaze_yaw_deg")
NUMBERS += ("gaze_pitch_smooth_deg", "gaze_yaw_smooth_deg", "gaze_x", "gaze_y", "gaze_z", "screen_x_px", "screen_y_px")
NUMBERS += ("origin_x_mm", "origin_y_mm", "origin_z_mm", "pose_Tx", "pose_Ty", "pose_Tz")
NUMBERS += ("pose_Rx", "pose_Ry", "pose_Rz")
SUFFIXES, OVERLAY = (".csv", ".parquet"), ".mp4"


@command(
    __doc__,
    argument("inputs", nargs="*", type=Path, metavar="INPUT", help="image, folder of images, video or manifest"),
    argument("--camera-index", type=int, help="a camera of this machine, instead of inputs; 0 is the first"),
    argument("--model", type=Path, default=SHIPPED, help="checkpoint of DT-ED (default: shipped, that of the package)"),
    argument("--person", type=Path, help="file that `faze calibrate` wrote with this network"),
    argument("--lens", type=Path, help="calibration of the camera: YAML as OpenCV or ROS writes it, or .mat"),
    argument("--focal-px", type=float, help="focal length in px, instead of --lens"),
    argument("--hfov-deg", type=float, help="field of view across the width of the upright frame, instead of --lens"),
    argument(
        "--landmarker",
        type=Path,
        help=f"MediaPipe Face Landmarker file (default: {LANDMARKER}, if it is here, or the mesh in MediaPipe)",
    ),
    argument("--faces", type=at_least_one, default=1, help="largest number of faces in a frame (default: 1)"),
    argument("--smooth", choices=["none", "one-euro"], default="none", help="filter of the gaze over time"),
    argument("--screen", type=Path, help="screen.yaml, for the point at which a face looks"),
    needed("--table", "CSV or Parquet to write"),
    argument("--overlay", type=Path, help="mp4 to write, of a single video or camera"),
)
def main(args: Namespace) -> None:
    """Estimate the gaze in every frame, and write the table."""
    lens, screen = read_lens(args.lens, args.focal_px, args.hfov_deg), args.screen and read_screen(args.screen)
    sources = sources_to_read(args)
    check_paths(args, [source.path for source in sources])
    frames = frames_of(sources) if sources else open_camera(args.camera_index)
    overlay = Overlay(partial_of(args.overlay), sources[0].fps if sources else DEFAULT_FPS) if args.overlay else None
    stated = sum(source.frames for source in sources) if all(source.frames for source in sources) else 0
    partial = partial_of(args.table)
    rows = Rows(args.smooth != "none", screen)
    with (
        GazeEstimator.load(args.model, args.landmarker, person=args.person, lens=lens, faces=args.faces) as estimator,
        output_lock(args.table.with_suffix("")),  # of all formats, whose partial file is the same
        output_lock(args.overlay) if args.overlay else nullcontext(),
        named(partial, FULL),
        partial.open("w", newline="", encoding="utf-8", errors="backslashreplace") as file,
        overlay or nullcontext(),
    ):
        table = csv.writer(file, lineterminator="\n")
        table.writerow([*ABOUT, *NUMBERS])
        if not sources:
            print("recording; Ctrl-C ends it", file=sys.stderr)
        try:
            for frame, found in with_progress(estimator.frames(frames), stated):
                for row in rows.of(frame, found, lens):
                    table.writerow(row)
                file.flush()
                if overlay and frame.image is not None:
                    overlay.add(draw(frame.image, lens, found, rows.smoothed), frame.time_s)
        except KeyboardInterrupt:
            if sources or not rows.frames:
                raise
    finish(partial, args.table)
    if overlay and overlay.begun:
        partial_of(args.overlay).replace(args.overlay)
    print(f"{args.table}: {rows.describe()}")
    for source in sources:
        if (read := rows.frames[source.path]) < source.frames:
            print(f"{source.path}: {source.frames - read} of the {source.frames} stated frames could not be decoded")
    if rows.assumed:
        print(f"a field of view of {ASSUMED_HFOV_DEG:g} degrees is assumed: pass --lens, --focal-px or --hfov-deg")


class Rows:
    """The rows of the table, and counts for the summary."""

    def __init__(self, smooth: bool, screen: Screen | None) -> None:
        self._smooth, self._screen = smooth, screen
        self._tracks: dict[Path, Tracks] = {}
        self.usable = self.assumed = self._on_plane = 0
        self.frames: Counter[Path] = Counter()  # by source
        self.smoothed: list[NDArray | None] = []  # pitch and yaw of the last frame's faces, rad; [] without --smooth

    def of(self, frame: SourceFrame, found: Sequence[FaceGaze | str], lens: Lens) -> Iterator[list[object]]:
        """Yield the row of each face of a frame."""
        lens_is = "" if frame.image is None else "assumed" if lens.assumed and frame.camera is None else "given"
        followed = self._tracks.setdefault(frame.source, Tracks()).follow(found, frame.time_s)
        self.smoothed = [pitchyaw for _, pitchyaw in followed] if self._smooth else []
        self.frames[frame.source] += 1
        self.assumed += lens_is == "assumed"
        self.usable += any(not isinstance(face, str) for face in found)
        for face, (number, pitchyaw) in zip(found, followed, strict=True):
            reason = face if isinstance(face, str) else ""
            about = [frame.source, frame.number, f"{frame.time_s:.3f}", "" if number is None else number]
            cells = [""] * len(NUMBERS) if reason else self._numbers(face, pitchyaw)
            yield [*about, int(not reason), reason, lens_is, *cells]

    def _numbers(self, face: FaceGaze, smoothed: NDArray) -> list[str]:
        x, y, z = face.direction
        angles = [np.arctan2(x, -z), np.arctan2(y, -z), *np.degrees(face.pitchyaw)]
        smooth = np.degrees(smoothed) if self._smooth else [None, None]
        point = self._screen.hit(face.origin_mm, face.direction) if self._screen else None
        self._on_plane += point is not None
        cells = [*angles, *smooth, *face.direction, *([None, None] if point is None else point)]
        cells += [*face.origin_mm, *face.head_pose[3:], *face.head_angles]
        return ["" if cell is None else f"{cell:.6g}" for cell in cells]

    def describe(self) -> str:
        """Summarise the rows in one line."""
        text = f"{counted(self.frames.total(), 'frame')}, {self.usable} with a gaze"
        if self._screen and self.usable and not self._on_plane:
            text += "; no gaze meets the screen's plane: is the screen behind the face? Check top_left_mm"
        return text


def sources_to_read(args: Namespace) -> list[Source]:
    """Return the sources that the arguments name; [] for a camera."""
    if (args.camera_index is None) != bool(args.inputs):
        raise UserError("pass images, videos or manifests, or --camera-index, but not both")
    sources = sources_of(args.inputs)
    if args.overlay and sources and (len(sources) > 1 or not sources[0].is_video):
        raise UserError("--overlay is for a single video or camera")
    if args.table.suffix.lower() not in SUFFIXES:
        raise UserError(f"{args.table}: the table's name must end with {' or '.join(SUFFIXES)}")
    if args.overlay and args.overlay.suffix.lower() != OVERLAY:
        raise UserError(f"{args.overlay}: the overlay's name must end with {OVERLAY}")
    if args.table.suffix.lower() == ".parquet" and not all(map(importlib.util.find_spec, ("pandas", "pyarrow"))):
        raise UserError(f"{args.table}: Parquet needs pandas and pyarrow: install them, or write a .csv")
    if sources and all(source.is_manifest for source in sources) and any((args.lens, args.focal_px, args.hfov_deg)):
        raise UserError("a manifest states the lenses of its frames: do not pass --lens, --focal-px or --hfov-deg")
    outputs = [path for path in (args.table, args.overlay) if path]
    earlier = [str(path) for output in outputs for path in (output, partial_of(output)) if path.exists()]
    if not sources and earlier:
        raise UserError(f"{' and '.join(earlier)}: left by an earlier recording: rename or remove it")
    return sources


def with_progress(
    found: Iterable[tuple[SourceFrame, list[FaceGaze | str]]], stated: int
) -> Iterator[tuple[SourceFrame, list[FaceGaze | str]]]:
    """Yield frames with their gaze, and show the progress if their number is known; that of a camera is 0."""
    if not stated:
        yield from found
        return
    progress = Progress("gaze", stated, "frames")
    for done, (frame, faces) in enumerate(found, start=1):
        yield frame, faces
        progress(min(done, stated - 1), faces[0] if isinstance(faces[0], str) else "")
    progress(stated)


def finish(partial: Path, table: Path) -> None:
    """Rename the rows to the table, or convert them to Parquet."""
    if table.suffix.lower() == ".csv":
        partial.replace(table)
        return
    import pandas as pd  # only for this format

    kinds = dict.fromkeys(("source", "reason", "lens"), str) | dict.fromkeys(("frame", "success"), "int64")
    kinds |= {"face_id": "Int64", "timestamp": "float64"} | dict.fromkeys(NUMBERS, "float64")
    empty = {name: [""] for name in ("face_id", *NUMBERS)}
    rows = pd.read_csv(partial, dtype=kinds, keep_default_na=False, na_values=empty)
    with whole_file(table) as temporary:
        rows.to_parquet(temporary, index=False)
    partial.unlink()


def partial_of(path: Path) -> Path:
    """Return the path of an unfinished table, which is a CSV, or video."""
    return path.with_name(f"{path.stem}.partial{OVERLAY if path.suffix.lower() == OVERLAY else '.csv'}")


def check_paths(args: Namespace, sources: Sequence[Path]) -> None:
    """Refuse outputs that would replace an input or each other, before anything is written."""
    given = [*sources, args.model, args.person, args.lens, args.landmarker, args.screen]
    taken = {Path(path).resolve() for path in given if path}
    for path in filter(None, (args.table, args.overlay)):
        if path.is_dir():
            raise UserError(f"{path}: is a folder; name a file in it")
        path.parent.mkdir(parents=True, exist_ok=True)
        for own in (path.resolve(), partial_of(path).resolve()):
            if own in taken:
                raise UserError(f"{own}: would be replaced by an output; choose another name")
            taken.add(own)
