"""Calibration of a camera from rendered photos and videos of a board, whose lens is known."""

import dataclasses
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import cv2
import numpy as np
import pytest
from numpy.typing import NDArray

from faze.base.errors import UserError
from faze.commands import calibrate_camera
from faze.data.readers.manifest_camera import read_cameras
from faze.gaze import board as board_module
from faze.gaze.board import DICTIONARIES, Board, View
from faze.gaze.lens_calibration import MOST_VIEWS, calibrate_lens, choose_different
from faze.gaze.sources import Source, read_lens, sources_of

SIZE = WIDTH, HEIGHT = 480, 360
MATRIX = np.array([[420.0, 0, 248.0], [0, 424.0, 174.0], [0, 0, 1]])
DISTORTION = np.array([-0.25, 0.08, 0.001, -0.0015, 0.0])
CHESSBOARD = Board(10, 7, 25.0)
BOARDS = {"chessboard": CHESSBOARD, "charuco": Board.with_markers(10, 7, 25.0, 18.0, "DICT_4X4_50")}
CENTRES_MM = [(x, y) for x in (-95.0, 0.0, 95.0) for y in (-75.0, 0.0, 75.0)] + [(0.0, 0.0)] * 3
POSES = [
    (np.array([0.45 * np.sin(2.4 * n), 0.45 * np.cos(2.4 * n), 0.05 * n - 0.3]), np.array([x, y, 430.0 + 30 * (n % 3)]))
    for n, (x, y) in enumerate(CENTRES_MM)
]  # rotation and translation, mm, from a board's centre to the camera


def photograph(board: Board, rotation: NDArray, translation: NDArray) -> NDArray[np.uint8]:
    """Render what a camera with MATRIX and DISTORTION sees of a board on a gray wall."""
    picture, scale = cv2.resize(board.draw(), None, fx=0.2, fy=0.2, interpolation=cv2.INTER_AREA), 2  # rays per side
    middle, px_per_mm = (np.array(picture.shape[::-1]) - 1) / 2, 40 / board.square_mm
    to_mm = np.array([[1, 0, -middle[0]], [0, 1, -middle[1]], [0, 0, px_per_mm]])
    plane = np.column_stack([cv2.Rodrigues(rotation)[0][:, :2], translation]) @ to_mm
    rays = (np.mgrid[: WIDTH * scale, : HEIGHT * scale].T + 0.5) / scale - 0.5
    undistorted = cv2.undistortPoints(rays.reshape(-1, 1, 2), MATRIX, DISTORTION)
    hits = cv2.perspectiveTransform(undistorted, np.linalg.inv(plane)).reshape(rays.shape).astype(np.float32)
    seen = cv2.remap(picture, hits, None, cv2.INTER_LINEAR, borderMode=cv2.BORDER_CONSTANT, borderValue=128)
    return cv2.cvtColor(cv2.resize(seen, SIZE, interpolation=cv2.INTER_AREA), cv2.COLOR_GRAY2BGR)


@pytest.fixture(scope="module")
def photos() -> dict[str, list[NDArray[np.uint8]]]:
    return {kind: [photograph(board, *pose) for pose in POSES] for kind, board in BOARDS.items()}


def view_of(rotation: NDArray, translation: NDArray, noise_px: float = 0.05) -> View:
    board_mm = np.zeros((54, 3), np.float32)
    board_mm[:, :2] = 25 * np.mgrid[:9, :6].T.reshape(-1, 2) - [100, 62.5]
    image_px = cv2.projectPoints(board_mm, rotation, translation, MATRIX, DISTORTION)[0].reshape(-1, 2)
    noise = np.random.default_rng(int(1000 * np.abs(translation).sum())).normal(0, noise_px, image_px.shape)
    return View(board_mm, (image_px + noise).astype(np.float32))


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> Callable[..., int]:
    def call(*words: object) -> int:
        monkeypatch.setattr(sys, "argv", ["faze calibrate-camera", *map(str, words)])
        return calibrate_camera.main()

    return call


def write_photos(folder: Path, images: list[NDArray[np.uint8]]) -> Path:
    folder.mkdir()
    for number, image in enumerate(images):
        cv2.imwrite(str(folder / f"{number:02}.png"), image)
    return folder


def write_video(path: Path, images: list[NDArray[np.uint8]]) -> Path:
    writer = cv2.VideoWriter(str(path), cv2.VideoWriter_fourcc(*"MJPG"), 25.0, images[0].shape[1::-1])
    for image in images:
        writer.write(image)
    writer.release()
    return path


def assert_lens(path: Path) -> None:
    """Compare the lens that a manifest reads with the one that the board was rendered with."""
    (matrix, distortion), size = read_cameras(path.parent, [path.name])[path.name]
    np.testing.assert_allclose(matrix[[0, 1], [0, 1]], MATRIX[[0, 1], [0, 1]], rtol=0.01)
    np.testing.assert_allclose(matrix[:2, 2], MATRIX[:2, 2], rtol=0.01)
    sides = np.array([[40.0, 180], [440, 180], [240, 40], [240, 320], [60, 60], [420, 300]])
    found, expected = (cv2.undistortPoints(sides, *lens) for lens in ((matrix, distortion), (MATRIX, DISTORTION)))
    np.testing.assert_allclose(found, expected, atol=0.005)  # 2 px; the distortion moves these points by up to 30 px
    assert read_lens(path).of(np.zeros((HEIGHT, WIDTH, 3), np.uint8))[0].any()


@pytest.mark.parametrize(("kind", "views"), [("chessboard", 11), ("charuco", 12)])
def test_photos_of_a_board_recover_the_lens(kind: str, views: int, photos, run, tmp_path: Path, capsys) -> None:
    folder, out = write_photos(tmp_path / "photos", photos[kind]), tmp_path / "lens.yaml"
    cv2.imwrite(str(folder / "wall.png"), np.full((HEIGHT, WIDTH, 3), 128, np.uint8))
    cv2.imwrite(str(folder / "cut.jpg"), photos[kind][0])
    (folder / "cut.jpg").write_bytes((folder / "cut.jpg").read_bytes()[:2000])
    assert run(folder, "--board", kind, "--out", out) == 0
    assert_lens(out)
    said, warned = capsys.readouterr()
    assert "warning" not in warned
    assert "field of view 59." in said and f"(rms) in {views} frames" in said
    assert (
        f"{13 - views} without the board" in said and "1 truncated JPEG" in said
    )  # one chessboard is not entirely visible
    file = cv2.FileStorage(str(out), cv2.FILE_STORAGE_READ)
    numbers = [file.getNode(name).real() for name in ("image_width", "image_height", "nframes")]
    assert numbers == [WIDTH, HEIGHT, views] and 0 < file.getNode("avg_reprojection_error").real() < 0.2


def test_a_video_recovers_the_lens_from_its_different_frames(photos, run, tmp_path: Path, capsys) -> None:
    wall = np.full((HEIGHT, WIDTH, 3), 128, np.uint8)
    frames = [image for photo in photos["charuco"] for image in (photo, photo, wall)]
    out = tmp_path / "lens.yaml"
    assert run(write_video(tmp_path / "board.avi", frames), "--board", "charuco", "--out", out) == 0
    assert_lens(out)
    assert "not used: 12 without the board, 12 similar to others\n" in capsys.readouterr().out


def test_a_long_video_is_examined_at_even_intervals(photos, run, tmp_path: Path, capsys) -> None:
    frames = [image for photo in photos["charuco"] for image in [photo] * 25]
    arguments = ("--board", "charuco", "--out", tmp_path / "lens.yaml")
    assert run(write_video(tmp_path / "board.avi", frames), *arguments) == 0
    assert "in 12 frames" in (said := capsys.readouterr().out) and "not used: 88 similar to others\n" in said


def test_images_are_all_examined_and_videos_without_a_stated_length_twice_a_second(
    photos, run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys
) -> None:
    """Regression: one interval for all inputs skipped photos beside a long video; a live video has no length."""
    few = write_photos(tmp_path / "few", photos["charuco"][:6])
    others = write_video(tmp_path / "board.avi", [image for photo in photos["charuco"][6:] for image in [photo] * 25])
    arguments = (few, others, "--board", "charuco", "--out", tmp_path / "lens.yaml")
    assert run(*arguments) == 0
    assert "in 12 frames" in capsys.readouterr().out

    def unstated(paths: Sequence[Path]) -> list[Source]:
        return [dataclasses.replace(source, frames=0) if source.is_video else source for source in sources_of(paths)]

    monkeypatch.setattr(board_module, "sources_of", unstated)
    assert run(*arguments) == 0
    said = capsys.readouterr()
    assert "in 12 frames" in said.out and "not used: 7 similar to others" in said.out


def test_the_views_that_differ_most_are_chosen() -> None:
    near = [view_of(np.zeros(3), np.array([0.1 * n, 0, 500])) for n in range(50)]
    far = [view_of(np.zeros(3), np.array([x, y, 500.0])) for x in range(-70, 71, 20) for y in range(-50, 51, 20)]
    chosen = choose_different(near + far, WIDTH)
    assert len(chosen) == MOST_VIEWS and sum(view is each for view in near for each in chosen) == 1


def test_a_view_with_a_large_error_is_left_out() -> None:
    views = [view_of(*pose) for pose in POSES]
    views[4] = views[4]._replace(image_px=views[4].image_px + np.linspace(-6, 6, 54, dtype=np.float32)[:, None] ** 2)
    found = calibrate_lens(views, SIZE)
    assert found.views == len(POSES) - 1 and found.error_px < 0.1
    np.testing.assert_allclose(found.matrix, MATRIX, rtol=0.01)


def test_each_reason_to_doubt_is_a_warning() -> None:
    good = calibrate_lens([view_of(*pose) for pose in POSES], SIZE)
    assert good.warnings() == [] and good.tilted == len(POSES)
    parallel = [view_of(np.zeros(3), centre) for _, centre in POSES[:9]]
    noisy = [view_of(*pose, noise_px=2.0) for pose in POSES]
    middle = [view_of(rotation, np.array([3.0 * n, 0, 450])) for n, (rotation, _) in enumerate(POSES)]
    sentences = ("the boards are almost parallel", "the error is above 1 px", "the boards reach only ")
    for views, sentence in zip((parallel, noisy, middle), sentences, strict=True):
        assert sentence in " ".join(calibrate_lens(views, SIZE).warnings())


def test_views_that_do_not_determine_the_lens_are_refused() -> None:
    shifted = [view._replace(image_px=view.image_px + 200) for view in (view_of(*pose) for pose in POSES)]
    with pytest.raises(UserError, match="12 views of the board do not determine the lens: move the board"):
        calibrate_lens(shifted, SIZE)


def test_what_cannot_be_used_is_one_sentence(photos, run, tmp_path: Path, capsys) -> None:
    few = write_photos(tmp_path / "few", photos["charuco"][:7])
    mixed = write_photos(tmp_path / "mixed", [photos["charuco"][0], photos["charuco"][1][:300]])
    broken, empty, text = tmp_path / "broken", tmp_path / "empty", tmp_path / "notes.txt"
    empty.mkdir()
    broken.mkdir()
    (broken / "a.png").write_bytes(b"\x89PNG")
    text.write_text("no video")
    still = write_video(tmp_path / "still.avi", photos["charuco"][:1] * 9)
    charuco, out = ("--board", "charuco"), ("--out", tmp_path / "lens.yaml")
    cases = {
        (few, "--marker-mm", 15, *out): "--marker-mm and --dictionary are for a ChArUco board: pass --board charuco",
        (few, "--dictionary", "DICT_5X5_50", *out): "--marker-mm and --dictionary are for a ChArUco board",
        (
            few,
            "--squares",
            "9x6",
            *out,
        ): "few: no chessboard of 9x6 squares found in 7 frames; check --board",
        (
            few,
            *charuco,
            *out,
        ): "few: 7 of 7 frames show the ChArUco board of 10x7 squares, in 7 different positions, but",
        (still, *charuco, *out): "still.avi: 9 of 9 frames show the ChArUco board of 10x7 squares, in 1 different",
        (mixed, *charuco, *out): "01.png: 480 x 300 px, but ",
        (empty, *out): "empty: contains no .jpg, .jpeg, .png",
        (broken, *out): "broken: no frame can be read: ",
        (text, *out): "notes.txt: is neither an image nor a video that OpenCV can read",
        (tmp_path / "none.mp4", *out): "none.mp4: no such file or folder",
        (few, "--out", tmp_path / "lens.xml"): "lens.xml: the name must end with .yaml or .yml",
        (few,): "pass images or a video of the board and --out, or --print",
        out: "pass images or a video of the board and --out, or --print",
        (few, "--print", tmp_path / "board.png"): "--print only draws the board",
        ("--print", tmp_path / "board.pdf"): "board.pdf: the name must end with .png",
        (few, *charuco, "--square-mm", 30, *out): "pass both --square-mm and --marker-mm",
        (
            few,
            *charuco,
            "--square-mm",
            30,
            "--marker-mm",
            30,
            *out,
        ): "--marker-mm 30 must be smaller than --square-mm 30",
        (few, *charuco, "--squares", "12x9", *out): "--dictionary DICT_4X4_50 has 50 markers, but the board needs 54",
    }
    for arguments, sentence in cases.items():
        assert run(*arguments) == 1, arguments
        error = capsys.readouterr().err
        assert sentence in error.splitlines()[-1], error
        assert list(tmp_path.glob("*.yaml")) == []


@pytest.mark.parametrize("words", [["--squares", "10"], ["--squares", "3x7"], ["--square-mm", "-1"]])
def test_malformed_arguments_are_refused(words: list[str], run, tmp_path: Path, capsys) -> None:
    with pytest.raises(SystemExit):
        run(tmp_path, *words, "--out", tmp_path / "lens.yaml")
    assert words[1] in capsys.readouterr().err.splitlines()[-1]


@pytest.mark.parametrize("words", [[], ["--board", "charuco", "--squares", "11x8", "--dictionary", "DICT_5X5_100"]])
def test_the_printed_board_is_found(words: list[str], run, tmp_path: Path) -> None:
    assert run("--print", tmp_path / "board.png", *words) == 0
    image = cv2.resize(cv2.imread(str(tmp_path / "board.png")), None, fx=0.25, fy=0.25, interpolation=cv2.INTER_AREA)
    board = Board.with_markers(11, 8, 25.0, 18.0, "DICT_5X5_100") if words else CHESSBOARD
    found = board.find(image)
    assert len(found.image_px) == (board.columns - 1) * (board.rows - 1) and "DICT_5X5_100" in DICTIONARIES
    np.testing.assert_allclose(np.ptp(found.image_px, axis=0), np.ptp(found.board_mm[:, :2], axis=0) * 2, atol=1)
