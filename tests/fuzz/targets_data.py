"""Targets of the data room: frames, stores, annotations and lists."""

import functools
import io
import itertools
import json
import os
import tempfile
import zlib
from collections.abc import Callable
from pathlib import Path

import cv2
import h5py
import jpegs
import numpy as np
import raw_data
import torch
from cases import Target
from hostile import TEXTS, Draw, edited_bytes, edited_json, edited_lines
from hostile_hdf5 import edited_hdf5
from scipy.io import savemat

from faze.base.errors import UserError
from faze.data.inspection import inspect, person_rows, summarise
from faze.data.normalization.frame import FrameReader
from faze.data.normalization.jpeg import read_header
from faze.data.normalization.pose import UnusableFrame
from faze.data.preparation import stored
from faze.data.preparation.stored import copy_stored, open_stored, read_splits
from faze.data.readers import Frame, supplementary_reader
from faze.data.readers.annotation_checks import check_entries
from faze.data.readers.calibration import read_camera, read_screen_px
from faze.data.readers.gazecapture import GazeCapture
from faze.data.readers.mpiifacegaze import MPIIFaceGaze, MPIIGaze
from faze.data.readers.supplementary_reader import SupplementaryReader
from faze.data.rejects import read_rejects
from faze.data.row_sources import stored_rows
from faze.data.store.codes import GAZE_HEAD, write_codes
from faze.data.store.strip_writing import PersonStrips, write_strips
from faze.data.store.strips import StripStore
from faze.data.store.supplementary import write_supplementary
from faze.fewshot.person_codes import open_codes, read_people

# Another process would read a file of HDF5 first: here each case is read by one that may hang or die (Target.probed).
stored.probe = supplementary_reader.probe = lambda *_: None


def written(write: Callable[[Path], object]) -> bytes:
    """The bytes of a file that is written by path."""
    with tempfile.TemporaryDirectory() as folder:
        write(Path(folder) / "given")
        return (Path(folder) / "given").read_bytes()


# ---- frames


@functools.cache
def _frames() -> tuple[bytes, ...]:
    plain = jpegs.encode(48, 32)
    color = np.zeros((64, 64, 3), np.uint8)
    return (
        *(plain, jpegs.encode(48, 32, cv2.IMWRITE_JPEG_PROGRESSIVE, 1), jpegs.encode(48, 32, gray=True)),
        *(jpegs.encode(48, 32, cv2.IMWRITE_JPEG_RST_INTERVAL, 2), jpegs.with_segment(plain, 0xE1, jpegs.exif(6))),
        *(cv2.imencode(kind, color)[1].tobytes() for kind in (".png", ".bmp", ".webp", ".tiff", ".jp2", ".ppm")),
    )


def _make_frame(draw: Draw, folder: Path) -> None:
    content = draw.pick(_frames())
    kind = draw.pick(["bytes", "bytes", "bytes", "size", "segments", "scans", "link"])
    if kind == "size":
        content = _resized(draw, content)
    elif kind == "segments":
        for _ in range(draw.number(1, 3)):
            content = jpegs.with_segment(content, draw.number(0, 255), draw.some(20))
    elif kind == "scans":
        at = content.rfind(b"\xff\xda")
        content = content[:-2] + content[at:-2] * draw.pick([1, 50, 3000]) + b"\xff\xd9"
    if kind == "bytes" or draw.number(0, 3) == 0:
        content = edited_bytes(draw, content)
    if kind == "link":
        (folder / "given.jpg").symlink_to(draw.pick(["given.jpg", "/dev/zero", "/dev/null", "/", "pipe", "nowhere"]))
        os.mkfifo(folder / "pipe")
    else:
        (folder / "given.jpg").write_bytes(content)


def _resized(draw: Draw, content: bytes) -> bytes:
    """State another size in the header of a JPEG or PNG."""
    sides = [draw.pick([0, 1, 7, 8, 255, 8000, 16000, 32767, 65500, 65535]) for _ in range(2)]
    for marker in (b"\xff\xc0", b"\xff\xc2"):
        if (at := content.find(marker)) > 0:
            return content[: at + 5] + sides[0].to_bytes(2) + sides[1].to_bytes(2) + content[at + 9 :]
    head = b"IHDR" + sides[0].to_bytes(4) + sides[1].to_bytes(4) + content[24:29]
    return content[:12] + head + _crc(head) + content[33:]


def _crc(content: bytes) -> bytes:
    return zlib.crc32(content).to_bytes(4)


_READER = FrameReader()  # which keeps what it read of the last file


def _parse_frame(folder: Path) -> None:
    path = folder / "given.jpg"
    if path.is_file() and path.stat().st_size < 2**20:
        content = path.read_bytes()
        if content.startswith(b"\xff\xd8"):
            read_header(content, len(content))
    for rows in (None, 1, 9, 10**6):
        try:
            image = _READER.read(path).decode(rows)
        except UnusableFrame as unusable:
            raise UserError(f"{path}: {unusable}") from None
        assert image.ndim == 3 and image.shape[2] == 3 and image.dtype == np.uint8


# ---- stores


@functools.cache
def _stores() -> tuple[bytes, ...]:
    pixels = np.random.default_rng(0).integers(0, 256, (2, 4, 8, 3), np.uint8)
    labels = np.zeros((2, 4), np.float32)

    def people() -> list[PersonStrips]:
        return [
            PersonStrips("p00", "train", ["a", "b"], pixels, labels, "iPhone 6"),
            PersonStrips("p01", "test", None, pixels, labels),
        ]

    def released(path: Path) -> None:
        with h5py.File(path, "w") as file:
            for person in ("p00", "p01"):
                file.create_dataset(f"{person}/pixels", data=pixels, chunks=(1, 4, 8, 3), compression="lzf")
                file.create_dataset(f"{person}/labels", data=labels, chunks=(1, 4), compression="gzip")

    return written(lambda path: write_strips(path, "gazecapture", people())), written(released)


def _make_store(draw: Draw, folder: Path) -> None:
    edited_hdf5(draw, folder / "given.h5", draw.pick(_stores()))


def _parse_store(folder: Path) -> None:
    path = folder / "given.h5"
    _copy_store(path)
    with StripStore(path) as strips:
        summarise(found := inspect(strips, path, verify=True))
        person_rows(found)
        for person in strips.persons():
            strips.split(person), strips.size(person), strips.file_names(person), strips.frame_index(person)
            (
                strips.pixels(person, slice(1)),
                strips.person_digest(person),
                strips.pixels(person, [0] if strips.count(person) else []),
            )
        if count := sum(map(strips.count, strips.persons())):
            stored_rows(strips, path, strips.persons()).gather(torch.tensor([0, count - 1]))


def _copy_store(path: Path) -> None:
    """As preprocess does, which leaves out people and says why."""
    try:
        strips = open_stored(path, "gazecapture", {"p00": "train", "p09": "val"})
    except UserError:
        return
    with strips:
        how = {"dataset": "gazecapture", "splits": {"p00": "train"}, "size": (4, 8), "exclude_off_screen": True}
        for person, rejects in copy_stored(strips, progress=lambda done: None, **how):
            assert all(isinstance(reject.reason, str) for reject in rejects)
            for piece in person.pixels if person else ():
                assert piece.shape[1:] == (4, 8, 3)


@functools.cache
def _codes() -> tuple[bytes, ...]:
    rng = np.random.default_rng(0)
    arrays = {
        "z_app": (2, 4),
        "z_gaze": (2, 2, 3),
        "z_head": (2, 4, 3),
        "gaze": (2, 2),
        "head": (2, 2),
        "gaze_hat": (2, 3),
    }
    person = {name: rng.normal(size=shape) for name, shape in arrays.items()}
    head = dict(zip(GAZE_HEAD, (np.zeros((8, 6)), np.zeros(8), np.zeros((3, 8)), np.zeros(3)), strict=True))
    people = [("p00", "train", person), ("p01", "test", person)]
    return tuple(written(lambda path, head=head: write_codes(path, "mpiigaze", people, head)) for head in (head, None))


def _make_codes(draw: Draw, folder: Path) -> None:
    edited_hdf5(draw, folder / "given.h5", draw.pick(_codes()))


def _parse_codes(folder: Path) -> None:
    codes = open_codes(folder / "given.h5")
    assert isinstance(codes.checkpoint, str) and isinstance(codes.dataset, str)
    for split in ("train", "val", "test"):
        people, _ = read_people(codes, split, needed=1, reason="fewshot.query_entries")
        for person in people:
            count = len(person.code)
            assert person.gaze.shape == person.gaze_hat.shape == (count, 3) and person.head.shape == (count, 2), (
                "shapes differ"
            )


@functools.cache
def _annotation() -> bytes:
    entries = raw_data.supplementary(["p00/a.jpg", "p00/b.jpg"])
    return written(lambda path: write_supplementary(path, [("p00", entries), ("p01", entries)]))


def _make_annotation(draw: Draw, folder: Path) -> None:
    (folder / "p00").mkdir()
    edited_hdf5(draw, folder / "given.h5", _annotation())


def _parse_annotation(folder: Path) -> None:
    reader = SupplementaryReader(folder, folder / "given.h5", "test")
    for person in reader.persons():
        assert reader.count(person) > 0 or not list(reader.entries(person))
        _check_entries(reader.entries(person))


def _check_entries(entries: object) -> None:
    for entry in itertools.islice(check_entries(entries, True), 10_000):
        if isinstance(entry, Frame):
            assert entry.camera_matrix.shape == (
                3,
                3,
            ) and entry.rotation_vector.shape == entry.translation_mm.shape == (3,)
            assert ".." not in entry.image_path.parts, entry.image_path


# ---- files of MPIIFaceGaze


@functools.cache
def _matlab() -> tuple[bytes, ...]:
    def saved(compressed: bool, **arrays: object) -> bytes:
        file = io.BytesIO()
        savemat(file, arrays, do_compression=compressed)
        return file.getvalue()

    camera = {"cameraMatrix": raw_data.CAMERA_MATRIX, "distCoeffs": raw_data.DISTORTION[None]}
    screen = {"width_pixel": 1280, "height_pixel": 800}
    return tuple(saved(compressed, **(camera | screen)) for compressed in (False, True))


@functools.cache
def _matlab_bomb() -> bytes:
    file = io.BytesIO()
    savemat(file, {"cameraMatrix": np.zeros((2**10, 2**14), np.uint8), "distCoeffs": np.zeros(5)}, do_compression=True)
    return file.getvalue()


def _make_matlab(draw: Draw, folder: Path) -> None:
    values = [
        {"a": 1},
        {"a": {"b": 2}},
        "text",
        "",
        np.array([[1, "x"]], object),
        np.nan,
        np.inf,
        -1.0,
        1j,
        True,
        np.zeros((3, 3)),
        np.eye(3),
        np.zeros((0, 3)),
        np.zeros((2, 2, 2)),
        10**15,
    ]
    if draw.number(0, 3) == 0:
        names = ["cameraMatrix", "distCoeffs", "width_pixel", "height_pixel", "other"]
        arrays = {
            "cameraMatrix": raw_data.CAMERA_MATRIX,
            "distCoeffs": np.zeros(5),
            "width_pixel": 2,
            "height_pixel": 2,
        }
        for _ in range(draw.number(1, 3)):
            arrays[draw.pick(names)] = draw.pick(values)
        file = io.BytesIO()
        savemat(file, arrays, do_compression=draw.flip())
        content = file.getvalue()
    else:
        content = _matlab_bomb() if draw.number(0, 30) == 0 else edited_bytes(draw, draw.pick(_matlab()))
    (folder / "Calibration").mkdir()
    (folder / "Calibration" / "Camera.mat").write_bytes(content)
    (folder / "Calibration" / "screenSize.mat").write_bytes(content)


def _parse_matlab(folder: Path) -> None:
    def both() -> tuple:
        return read_camera(folder), read_screen_px(folder)

    (matrix, distortion), screen = both()
    assert matrix.shape == (3, 3) and matrix.dtype == distortion.dtype == np.float64
    assert np.isfinite(screen).all()


LINE_WORDS = (
    *TEXTS,
    "day01/0001.jpg",
    "1",
    "0",
    "-1",
    "1e400",
    "1_0",
    "٣",
    "0x10",
    "1,5",
    "inf",
    "9" * 5000,
    "1 " * 100_000,
)


def _make_columns(draw: Draw, folder: Path) -> None:
    face = "\n".join(raw_data.mpiifacegaze_line(f"day01/{i:04d}.jpg") for i in range(3)) + "\n"
    original = "\n".join(" ".join(["1"] * 41) for _ in range(3)) + "\n"
    (folder / "p00" / "day01").mkdir(parents=True)
    (folder / "p00" / "Calibration").mkdir()
    for name, content in zip(("Camera", "screenSize"), (_matlab()[0],) * 2, strict=True):
        (folder / "p00" / "Calibration" / f"{name}.mat").write_bytes(content)
    for path, text in (("p00.txt", face), ("day01/annotation.txt", original)):
        if draw.number(0, 60) == 0:
            (folder / "p00" / path).symlink_to(draw.pick(["/dev/zero", "/", "nowhere"]))
        else:
            (folder / "p00" / path).write_bytes(edited_lines(draw, text, LINE_WORDS))


def _parse_columns(folder: Path) -> None:
    for kind in (MPIIFaceGaze, MPIIGaze):
        reader = kind(folder, folder)
        for person in reader.persons():
            reader.count(person)
            _check_entries(reader.entries(person))


# ---- files of GazeCapture


_RECORDING = {
    "info": {"TotalFrames": 2, "Dataset": "train", "DeviceName": "iPhone 6"},
    "frames": ["a.jpg", "b.jpg"],
    **{name: {"X": [0, 1], "IsValid": [1, 0]} for name in ("appleFace", "appleLeftEye", "appleRightEye", "faceGrid")},
    "dotInfo": {"XPts": [1, 2], "YPts": [1, 2], "XCam": [0.5, 1], "YCam": [1, 2]},
    "screen": {"W": [320, 320], "H": [568, 568], "Orientation": [1, 3]},
}


def _make_recording(draw: Draw, folder: Path) -> None:
    recording = folder / "00002"
    recording.mkdir()
    broken = draw.pick(sorted(_RECORDING))
    for name, content in _RECORDING.items():
        edited = edited_json(draw, content) if name == broken else json.dumps(content).encode()
        (recording / f"{name}.json").write_bytes(edited)
    if draw.number(0, 40) == 0:
        (recording / "frames.json").unlink()
        (recording / "frames.json").symlink_to(draw.pick(["/dev/zero", "/", "frames.json", "nowhere"]))
    (folder / "annotation.h5").write_bytes(_recording_annotation())


@functools.cache
def _recording_annotation() -> bytes:
    return written(
        lambda path: write_supplementary(
            path, [("00002", raw_data.supplementary(["00002/frames/a.jpg", "00002/frames/b.jpg"]))]
        )
    )


def _parse_recording(folder: Path) -> None:
    reader = GazeCapture(folder, folder / "annotation.h5")
    assert reader.persons() == ["00002"]
    _check_entries(reader.entries("00002"))


def _make_splits(draw: Draw, folder: Path) -> None:
    (folder / "given.json").write_bytes(edited_json(draw, {"train": ["00002", 3], "val": ["00004"], "test": ["00005"]}))


def _make_rejects(draw: Draw, folder: Path) -> None:
    text = 'person,file_name,reason\np01,p01/0003.jpg,unreadable\np02,,"no, not"\n'
    (folder / "given.csv").write_bytes(
        edited_lines(draw, text, (*TEXTS, '"', '""', ",", "person,file_name,reason", '"' + "z" * 200_000))
    )


TARGETS = (
    Target("frame", _make_frame, _parse_frame),
    Target("strips", _make_store, _parse_store, probed="h5py"),
    Target("codes", _make_codes, _parse_codes, probed="h5py"),
    Target("supplementary", _make_annotation, _parse_annotation, probed="h5py"),
    Target("matlab", _make_matlab, _parse_matlab),
    Target("annotation", _make_columns, _parse_columns),
    Target("recording", _make_recording, _parse_recording),
    Target("splits", _make_splits, lambda folder: read_splits(folder / "given.json")),
    Target("rejects", _make_rejects, lambda folder: read_rejects(folder / "given.csv")),
)
