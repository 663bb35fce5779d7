"""`faze calibrate-camera`: photos or a video of a printed board -> the calibration of the camera's lens.

    faze calibrate-camera --print board.png
    faze calibrate-camera photos/ --out lens.yaml
    faze calibrate-camera board.mp4 --board charuco --squares 11x8 --square-mm 20 --marker-mm 15 --out lens.yaml

A chessboard must be entirely visible, with its white margin; a ChArUco board (of OpenCV 4.6 or later) may be partly
hidden. About 120 evenly spaced frames of each video are examined. At most 40 views that differ most are used. A view
whose reprojection error is above 1 px and above three times the median is left out.

`faze gaze --lens` and the column `camera` of a manifest read the output, which has the keys of OpenCV's calibration
sample: image_width, image_height, nframes, camera_matrix (px), distortion_coefficients (k1, k2, p1, p2, k3) and
avg_reprojection_error (rms, px). It is valid for frames of this size, zoom and focus.
"""

import math
import re
import sys
from argparse import ArgumentTypeError, Namespace
from collections import Counter
from pathlib import Path

import cv2

from faze.base.command_line import argument, command
from faze.base.errors import UserError
from faze.base.files import whole_file
from faze.base.locks import output_lock
from faze.evaluation.wording import counted
from faze.gaze.board import DICTIONARIES, Board, find_views
from faze.gaze.lens_calibration import FEWEST_VIEWS, REMEDY, LensCalibration, calibrate_lens, choose_different

SQUARE_MM, MARKER_MM = 25.0, 18.0
DICTIONARY = "DICT_4X4_50"


def board_size(text: str) -> tuple[int, int]:
    """Parse the numbers of columns and rows of squares, such as 10x7."""
    found = re.fullmatch(r"([0-9]{1,2})x([0-9]{1,2})", text)
    if not found or not all(4 <= int(side) <= 30 for side in found.groups()):
        raise ArgumentTypeError(f"{text!r} is not two whole numbers from 4 to 30, such as 10x7")
    return int(found[1]), int(found[2])


def length_mm(text: str) -> float:
    """Parse a positive length."""
    try:
        length = float(text)
    except ValueError:
        length = math.nan
    if not 0 < length < math.inf:
        raise ArgumentTypeError(f"{text!r} is not a positive number")
    return length


@command(
    __doc__,
    argument("inputs", nargs="*", type=Path, metavar="INPUT", help="image, folder of images, or video"),
    argument("--board", choices=("chessboard", "charuco"), default="chessboard", help="default: chessboard"),
    argument(
        "--squares",
        type=board_size,
        default="10x7",
        help="columns x rows of squares, not of inner corners (default: 10x7)",
    ),
    argument("--square-mm", type=length_mm, help=f"side of a square (default: {SQUARE_MM:g})"),
    argument("--marker-mm", type=length_mm, help=f"side of a marker of a ChArUco board (default: {MARKER_MM:g})"),
    argument(
        "--dictionary",
        choices=DICTIONARIES,
        metavar="NAME",
        help=f"OpenCV's name of the markers of a ChArUco board (default: {DICTIONARY})",
    ),
    argument("--print", type=Path, metavar="PNG", help="image of the board to write, without calibrating"),
    argument("--out", type=Path, help="calibration to write, .yaml"),
)
def main(args: Namespace) -> None:
    """Find the board in the frames, calibrate the lens and write it; or draw the board."""
    board = read_board(args)
    if args.print:
        if args.inputs or args.out:
            raise UserError("--print only draws the board: pass it without images, videos and --out")
        check_suffix(args.print, ".png")
        write(args.print, cv2.imencode(".png", board.draw())[1].tobytes())
        print(f"{args.print}: {board}; print it at any size and fix it to a flat surface")
        return
    if not args.inputs or not args.out:
        raise UserError("pass images or a video of the board and --out, or --print")
    check_suffix(args.out, ".yaml", ".yml")
    views, reasons, size_px = find_views(args.inputs, board)
    different = choose_different(views, size_px[0])
    where = f"{args.inputs[0]}" + (f" and {len(args.inputs) - 1} more" if args.inputs[1:] else "")
    if len(different) < FEWEST_VIEWS:
        raise UserError(f"{where}: {describe_missing(board, reasons.total(), len(views), len(different))}")
    try:
        found = calibrate_lens(different, size_px)
    except UserError as error:
        raise UserError(f"{where}: {error}") from None
    write(args.out, found.yaml().encode())
    reasons["similar to others"] = len(views) - len(different)
    reasons["with a large error"] = len(different) - found.views
    print(describe(found, args.out, reasons))
    for sentence in found.warnings():
        print(f"warning: {sentence}", file=sys.stderr)


def read_board(args: Namespace) -> Board:
    """Return the board that the arguments describe."""
    if args.board == "chessboard":
        if args.marker_mm or args.dictionary:
            raise UserError("--marker-mm and --dictionary are for a ChArUco board: pass --board charuco, too")
        return Board(*args.squares, args.square_mm or SQUARE_MM)
    if (args.square_mm is None) != (args.marker_mm is None):
        raise UserError("pass both --square-mm and --marker-mm of the ChArUco board, or neither")
    sides = args.square_mm or SQUARE_MM, args.marker_mm or MARKER_MM
    return Board.with_markers(*args.squares, *sides, args.dictionary or DICTIONARY)


def check_suffix(path: Path, *suffixes: str) -> None:
    """Refuse an output that later programs would not recognise by its name."""
    if path.suffix.lower() not in suffixes:
        raise UserError(f"{path}: the name must end with {' or '.join(suffixes)}")


def write(path: Path, content: bytes) -> None:
    """Write an output, complete or not at all."""
    with output_lock(path), whole_file(path) as temporary:
        temporary.write_bytes(content)


def describe_missing(board: Board, without: int, found: int, different: int) -> str:
    """Explain why there are too few views: with the board, without it, and in different positions."""
    if not found:
        return (
            f"no {board} found in {counted(without, 'frame')}; check --board and --squares, which counts squares and "
            "not inner corners"
        )
    return (
        f"{found} of {found + without} frames show the {board}, in {different} different positions, but "
        f"{FEWEST_VIEWS} are needed: {REMEDY}"
    )


def describe(found: LensCalibration, path: Path, reasons: Counter[str]) -> str:
    """Summarise the result in three lines."""
    (width, height), (fx, fy), (fov_x, fov_y) = found.size_px, found.matrix.diagonal()[:2], found.field_of_view_deg
    unused = ", ".join(f"{count} {reason}" for reason, count in reasons.items() if count) or "none"
    near, far = found.distances_mm
    return (
        f"{path}: {width} x {height} px, focal lengths {fx:.1f} and {fy:.1f} px (standard deviation "
        f"{max(found.focal_std_px):.1f}), field of view {fov_x:.1f} x {fov_y:.1f} degrees\n"
        f"reprojection error {found.error_px:.2f} px (rms) in {found.views} frames, boards at {near:.0f} to {far:.0f} "
        f"mm\nframes that were not used: {unused}"
    )
