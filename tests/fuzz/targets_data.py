"""Targets in the data package: frames, stores, annotations and lists."""

import functools
import io
import itertools
import json
import os
import tempfile
import zlib
from collections.abc import Callable
from pathlib import Path
from unittest import mock

import cv2
import h5py
import hdf5_cases
import jpegs
import numpy as np
import raw_data
import torch
from cases import Target
from hostile import TEXTS, Draw, edited_bytes, edited_json, edited_lines
from hostile_hdf5 import edited_hdf5
from scipy.io import savemat

from faze.base import untrusted
from faze.base.errors import UserError
from faze.data.inspection import inspect, person_rows, summarise
from faze.data.normalization.images import MOST_SCANS, FrameReader, read_header
from faze.data.normalization.pose import UnusableFrame
from faze.data.pairs import stored_rows
from faze.data.preparation.splits import Splits, read_splits
from faze.data.preparation.stored import copy_stored, open_stored
from faze.data.readers import Frame, calibration, check_entries
from faze.data.readers import supplementary_reader as by_supplementary
from faze.data.readers.gazecapture import GazeCapture
from faze.data.readers.mpiifacegaze import MPIIFaceGaze, MPIIGaze
from faze.data.rejects import read_rejects
from faze.data.store import untrusted_file
from faze.data.store.codes import GAZE_HEAD, write_codes
from faze.data.store.strips import PersonStrips, StripStore, write_strips
from faze.data.store.supplementary import write_supplementary
from faze.fewshot.person_codes import open_codes, read_people


def here(path: Path, read: Callable, *arguments: object) -> object:
    """Replace `read_isolated`, since starting a process for each of thousands of random files would take hours."""
    with untrusted.untrusted(path):
        return read(str(path), *arguments)


def in_this_process(parse: Callable[[Path], object]) -> Callable[[Path], object]:
    """Let a parser read in this process instead of an isolated one."""

    def patched(folder: Path) -> object:
        with (
            mock.patch.object(untrusted_file, "read_isolated", here),
            mock.patch.object(calibration, "read_isolated", here),
        ):
            return parse(folder)

    return patched


def written(write: Callable[[Path], object]) -> bytes:
    """Return the bytes that a function can only write to a path."""
    with tempfile.TemporaryDirectory() as folder:
        write(Path(folder) / "given")
        return (Path(folder) / "given").read_bytes()


def given(name: str, content: Callable[[], bytes]) -> Callable[[Path], object]:
    """Return a function that writes a valid file."""
    return lambda folder: (folder / name).write_bytes(content())


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
    """Change the size stated in the header of a JPEG or PNG."""
    return _with_size(content, *(draw.pick([0, 1, 7, 8, 255, 8000, 16000, 32767, 65500, 65535]) for _ in range(2)))


def _with_size(content: bytes, width: int, height: int) -> bytes:
    if content.startswith(b"\xff\xd8"):
        at = max(content.find(b"\xff\xc0"), content.find(b"\xff\xc2"))
        return content[: at + 5] + height.to_bytes(2) + width.to_bytes(2) + content[at + 9 :]
    head = b"IHDR" + width.to_bytes(4) + height.to_bytes(4) + content[24:29]
    return content[:12] + head + zlib.crc32(head).to_bytes(4) + content[33:]


_READER = FrameReader()  # reuses the memory of the last file


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


def _sized(width: int, height: int) -> Callable[[Path], object]:
    def change(folder: Path) -> None:
        path = folder / "given.jpg"
        path.write_bytes(_with_size(path.read_bytes(), width, height))

    return change


def _as(content: Callable[[], bytes]) -> Callable[[Path], object]:
    return lambda folder: (folder / "given.jpg").write_bytes(content())


def _linked(name: str, target: str) -> Callable[[Path], object]:
    def change(folder: Path) -> None:
        (folder / name).unlink()
        os.mkfifo(folder / "pipe")
        (folder / name).symlink_to(target if target.startswith("/") else folder / target)

    return change


def _second_header() -> bytes:
    plain = _frames()[0]
    huge = b"\x08" + (40000).to_bytes(2) * 2 + plain[read_header(plain, len(plain)).frame_at + 5 :][:10]
    return jpegs.with_segment(plain, 0xC0, huge)


def _scans() -> bytes:
    progressive = _frames()[1]
    at = progressive.rfind(b"\xff\xda")
    return progressive[:-2] + progressive[at:-2] * MOST_SCANS + progressive[-2:]


def _too_long(folder: Path) -> None:
    with (folder / "given.jpg").open("wb") as file:
        file.truncate(2**28 + 1)


_FRAME_CASES = {
    **{f"{side} px wide": (_sized(side, side), f"{side} x {side} px") for side in (65535, 32767, 5793)},
    "huge PNG": (_as(lambda: _with_size(_frames()[5], 65535, 65535)), "65535 x 65535 px"),
    "huge progressive": (_as(lambda: _with_size(_frames()[1], 65535, 65535)), "65535 x 65535 px"),
    "second header": (_as(_second_header), "40000 x 40000 px"),
    "many scans": (_as(_scans), "scans"),
    **{f"format {n}": (_as(lambda n=n: _frames()[n]), "not an image that can be decoded") for n in range(6, 11)},
    **{
        f"link to {target}": (_linked("given.jpg", target), "cannot read the file")
        for target in ("given.jpg", "/dev/zero", "pipe", "/")
    },
    "too long": (_too_long, "256 MiB is too large"),
    "cut short": (lambda folder: os.truncate(folder / "given.jpg", 600), "truncated"),
    "empty": (lambda folder: os.truncate(folder / "given.jpg", 0), "empty file"),
}


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
            strips.pixels(person, slice(1)), strips.person_digest(person)
            strips.pixels(person, [0] if strips.count(person) else [])
        strips.check(strips.persons())
        if count := sum(map(strips.count, strips.persons())):
            stored_rows(strips, path, strips.persons()).gather(torch.tensor([0, count - 1]))


def _copy_store(path: Path) -> None:
    """Copy a store like preprocess, which leaves out some people and states the reason."""
    try:
        strips = open_stored(path, Splits(False, {"p00": "train", "p09": "val"}))
    except UserError:
        return
    with strips:
        how = {"splits": Splits(False, {"p00": "train"}), "size": (4, 8), "exclude_off_screen": True}
        for person, rejects in copy_stored(strips, progress=lambda done: None, **how):
            assert all(isinstance(reject.reason, str) for reject in rejects)
            for piece in person.pixels if person else ():
                assert piece.shape[1:] == (4, 8, 3)


@functools.cache
def _codes() -> tuple[bytes, ...]:
    rng, tails = (
        np.random.default_rng(0),
        {"z_app": (4,), "z_gaze": (2, 3), "z_head": (4, 3), "gaze": (2,), "head": (2,)},
    )
    person = {name: rng.normal(size=(2, *tail)) for name, tail in (tails | {"gaze_hat": (3,)}).items()}
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
            assert person.gaze.shape == person.gaze_hat.shape == (count, 3) and person.head.shape == (count, 2)


@functools.cache
def _annotation() -> bytes:
    entries = raw_data.supplementary(["p00/a.jpg", "p00/b.jpg"])
    return written(lambda path: write_supplementary(path, [("p00", entries), ("p01", entries)]))


def _write_annotation(folder: Path) -> None:
    (folder / "p00").mkdir()
    (folder / "given.h5").write_bytes(_annotation())


def _make_annotation(draw: Draw, folder: Path) -> None:
    _write_annotation(folder)
    edited_hdf5(draw, folder / "given.h5", _annotation())


def _parse_annotation(folder: Path) -> None:
    check_people(by_supplementary.SupplementaryReader(folder, folder / "given.h5", "test", "MPIIGaze"))


def check_people(reader: object) -> None:
    """Read all people; a person who is rejected entirely is an error here."""
    for person in reader.persons():
        assert reader.count(person) > 0 or not list(reader.entries(person))
        for entry in itertools.islice(check_entries(reader.entries(person), True), 10_000):
            if isinstance(entry, Frame):
                shapes = entry.camera_matrix.shape, entry.rotation_vector.shape, entry.translation_mm.shape
                assert shapes == ((3, 3), (3,), (3,)) and ".." not in entry.image_path.parts, entry
            elif not entry.file_name and not entry.reason.startswith("no folder"):
                raise UserError(f"person {person}: {entry.reason}")


# ---- files of MPIIFaceGaze


CAMERA = {"cameraMatrix": raw_data.CAMERA_MATRIX, "distCoeffs": raw_data.DISTORTION[None]}
SCREEN = {"width_pixel": 1280, "height_pixel": 800}


def matlab(compressed: bool = False, **arrays: object) -> bytes:
    file = io.BytesIO()
    savemat(file, arrays, do_compression=compressed)
    return file.getvalue()


@functools.cache
def _matlab() -> tuple[bytes, bytes]:
    return matlab(False, **CAMERA, **SCREEN), matlab(True, **CAMERA, **SCREEN)


_MATLAB_VALUES = (
    *({"a": 1}, {"a": {"b": 2}}, "text", "", np.array([[1, "x"]], object), np.nan, np.inf, -1.0, 1j, True, 10**15),
    *(np.zeros((3, 3)), np.eye(3), np.zeros((0, 3)), np.zeros((2, 2, 2)), np.zeros((2**10, 2**14), np.uint8)),
)


def _make_matlab(draw: Draw, folder: Path) -> None:
    _write_mpiifacegaze(folder)
    if draw.number(0, 3) == 0:
        arrays = CAMERA | SCREEN
        for _ in range(draw.number(1, 3)):
            arrays = arrays | {draw.pick([*arrays, "other"]): draw.pick(_MATLAB_VALUES)}
        content = matlab(draw.flip(), **arrays)
    else:
        content = edited_bytes(draw, draw.pick(_matlab()))
    for path in folder.glob("p00/Calibration/*"):
        path.write_bytes(content)


_NUMBERS = "1 0 -1 1e400 1_0 ٣ 0x10 1,5 inf day01/0001.jpg"
LINE_WORDS = (*TEXTS, *_NUMBERS.split(), "9" * 5000, "1 " * 100_000)
_FACE = "\n".join(raw_data.mpiifacegaze_line(f"day01/{i:04d}.jpg") for i in range(3)) + "\n"
_ORIGINAL = "\n".join(" ".join(["1"] * 41) for _ in range(3)) + "\n"


def _write_mpiifacegaze(folder: Path) -> None:
    for name, content in (("Camera.mat", _matlab()[0]), ("screenSize.mat", _matlab()[0])):
        raw_data.write_file(folder / "p00/Calibration" / name, content)
    raw_data.write_file(folder / "p00/p00.txt", _FACE)
    raw_data.write_file(folder / "p00/day01/annotation.txt", _ORIGINAL)


def _make_mpiifacegaze(draw: Draw, folder: Path) -> None:
    _write_mpiifacegaze(folder)
    for path, text in (("p00.txt", _FACE), ("day01/annotation.txt", _ORIGINAL)):
        if draw.number(0, 60) == 0:
            (folder / "p00" / path).unlink()
            (folder / "p00" / path).symlink_to(draw.pick(["/dev/zero", "/", "nowhere"]))
        else:
            (folder / "p00" / path).write_bytes(edited_lines(draw, text, LINE_WORDS))


def _parse_mpiifacegaze(folder: Path) -> None:
    for kind in (MPIIFaceGaze, MPIIGaze):
        check_people(kind(folder, folder))


def _text(content: bytes, name: str = "p00.txt") -> Callable[[Path], object]:
    return lambda folder: (folder / "p00" / name).write_bytes(content)


def _mat(name: str, **arrays: object) -> Callable[[Path], object]:
    return lambda folder: savemat(folder / "p00/Calibration" / f"{name}.mat", arrays, do_compression=True)


_LINE = _FACE.splitlines()[0]
_TEN = np.zeros((2**10, 2**14), np.uint8)
_MPIIFACEGAZE_CASES = {
    "29 columns": (_text(f"{_FACE}{_LINE} 3\n".encode()), "p00.txt:4: 29 columns"),
    "3 columns": (_text(f"{_FACE}day01/0000.jpg 1 2\n".encode()), "p00.txt:4: 3 columns"),
    "3 columns of a day": (_text(b"1 2 3\n", "day01/annotation.txt"), "annotation.txt:1: 3 columns"),
    "no number": (_text(_LINE.replace("640", "six").encode()), "p00.txt:1: could not convert string to float: 'six'"),
    "absent": (lambda folder: (folder / "p00/p00.txt").unlink(), "p00.txt"),
    "no text": (_text(b"\xff\xfe\x00"), "p00.txt: the file cannot be read (it is UTF-16 or not text"),
    "device": (_linked("p00/p00.txt", "/dev/zero"), "a pipe or a device"),
    "no camera": (lambda folder: (folder / "p00/Calibration/Camera.mat").unlink(), "Camera.mat: no such file"),
    "empty camera": (_text(b"", "Calibration/Camera.mat"), "Camera.mat: the file cannot be read"),
    "foreign camera": (_text(b"x" * 500, "Calibration/Camera.mat"), "Camera.mat: the file cannot be read"),
    "HDF5 camera": (
        _text(b"\x89HDF\r\n\x1a\n" + bytes(600), "Calibration/Camera.mat"),
        "Camera.mat: the file cannot be read",
    ),
    "other names": (_mat("Camera", K=np.eye(3)), "Camera.mat: has no 'cameraMatrix'"),
    "2 x 2 matrix": (_mat("Camera", cameraMatrix=np.eye(2), distCoeffs=np.zeros(5)), "not the 3 x 3 matrix"),
    "3 coefficients": (_mat("Camera", cameraMatrix=np.eye(3), distCoeffs=np.zeros(3)), "3 distortion coefficients"),
    "complex": (_mat("Camera", cameraMatrix=1j, distCoeffs=np.zeros(5)), "cameraMatrix is not a small matrix"),
    "words": (_mat("Camera", cameraMatrix="hello", distCoeffs=np.zeros(5)), "cameraMatrix is not a small matrix"),
    "cells": (
        _mat("Camera", cameraMatrix=np.array([[1, "x"]], object), distCoeffs=np.zeros(5)),
        "cameraMatrix is not a small matrix",
    ),
    "fields": (_mat("Camera", cameraMatrix={"a": 1}, distCoeffs=np.zeros(5)), "cameraMatrix is not a small matrix"),
    "millions": (
        _mat("Camera", cameraMatrix=_TEN, distCoeffs=np.zeros(5)),
        "cameraMatrix is not a small matrix",
    ),
    "foreign screen": (_text(b"x" * 500, "Calibration/screenSize.mat"), "screenSize.mat: the file cannot be read"),
    "half a screen": (_mat("screenSize", width_pixel=1280), "screenSize.mat: has no 'height_pixel'"),
    "flat screen": (_mat("screenSize", width_pixel=1280, height_pixel=0), "a single positive number"),
}


# ---- files of GazeCapture


_RECORDING = {
    "info": {"TotalFrames": 2, "Dataset": "train", "DeviceName": "iPhone 6"},
    "frames": ["a.jpg", "b.jpg"],
    **{name: {"X": [0, 1], "IsValid": [1, 0]} for name in ("appleFace", "appleLeftEye", "appleRightEye", "faceGrid")},
    "dotInfo": {"XPts": [1, 2], "YPts": [1, 2], "XCam": [0.5, 1], "YCam": [1, 2]},
    "screen": {"W": [320, 320], "H": [568, 568], "Orientation": [1, 3]},
}


def _write_recording(folder: Path) -> None:
    for name, content in _RECORDING.items():
        raw_data.write_file(folder / f"00002/{name}.json", json.dumps(content))
    (folder / "annotation.h5").write_bytes(_recording_annotation())


def _make_recording(draw: Draw, folder: Path) -> None:
    _write_recording(folder)
    broken = draw.pick(sorted(_RECORDING))
    (folder / f"00002/{broken}.json").write_bytes(edited_json(draw, _RECORDING[broken]))
    if draw.number(0, 40) == 0:
        (folder / "00002/frames.json").unlink()
        (folder / "00002/frames.json").symlink_to(draw.pick(["/dev/zero", "/", "frames.json", "nowhere"]))


@functools.cache
def _recording_annotation() -> bytes:
    entries = raw_data.supplementary(["00002/frames/a.jpg", "00002/frames/b.jpg"])
    return written(lambda path: write_supplementary(path, [("00002", entries)]))


def _json(name: str, text: str) -> Callable[[Path], object]:
    return lambda folder: (folder / f"00002/{name}.json").write_text(text)


_RECORDING_CASES = {
    "split": (_json("info", '{"Dataset": "Train"}'), "info.json: Dataset is 'Train'"),
    "no split": (_json("info", "{}"), "info.json: Dataset is None"),
    "list": (_json("info", "[]"), "info.json: not a JSON dict"),
    "torn": (_json("frames", '["00000.jpg", '), "frames.json: the file cannot be read"),
    "deep": (_json("frames", "[" * 100_000), "frames.json: the file cannot be read"),
    "one flag": (_json("appleFace", '{"IsValid": [1]}'), "appleFace.json: IsValid is not a list of 2 flags"),
    "no flags": (_json("appleFace", '{"X": [1, 1, 1]}'), "appleFace.json: IsValid is not a list of 2 flags"),
    "absent": (
        lambda folder: (folder / "00002/appleRightEye.json").unlink(),
        "appleRightEye.json: there is no such file",
    ),
    "large number": (
        _json("dotInfo", '{"XPts": [1, ' + "9" * 400 + "]}"),
        "dotInfo.json: XPts is not a list of 2 numbers",
    ),
    "device": (_linked("00002/frames.json", "/dev/zero"), "a pipe or a device"),
}


# ---- lists


_SPLITS = {"train": ["00002", 3], "val": ["00004"], "test": ["00005"]}
_REJECTS = 'person,file_name,reason\np01,p01/0003.jpg,unreadable\np02,,"no, not"\n'


def _make_splits(draw: Draw, folder: Path) -> None:
    (folder / "given.json").write_bytes(edited_json(draw, _SPLITS))


def _make_rejects(draw: Draw, folder: Path) -> None:
    words = (*TEXTS, '"', '""', ",", "person,file_name,reason", '"' + "z" * 200_000)
    (folder / "given.csv").write_bytes(edited_lines(draw, _REJECTS, words))


def _list(text: str) -> Callable[[Path], object]:
    return lambda folder: [path.write_text(text) for path in folder.iterdir()]


_SPLITS_CASES = {
    "torn": (_list("{"), "given.json: the file cannot be read"),
    "another split": (_list('{"training": ["00001"]}'), 'given.json: expected {"train"'),
    "twice": (_list('{"train": ["1"], "val": ["1"]}'), "given.json: person 1 is in train and also in val"),
    "absent": (lambda folder: (folder / "given.json").unlink(), "given.json: there is no such file"),
}
_REJECTS_CASES = {
    "header": (_list("a,b\n"), "person,file_name,reason"),
    "two columns": (_list("person,file_name,reason\na,b\n"), "line 2"),
    "long field": (_list(f'person,file_name,reason\na,b,"{"z" * 200_000}"\n'), "given.csv: the file cannot be read"),
    "absent": (lambda folder: (folder / "given.csv").unlink(), "given.csv: there is no such file"),
}


def _target(name: str, make: Callable, parse: Callable, valid: Callable, hostile: dict, isolated: str = "") -> Target:
    return Target(name, make, in_this_process(parse), isolated, valid=valid, hostile=hostile)


TARGETS = (
    _target("frame", _make_frame, _parse_frame, given("given.jpg", lambda: _frames()[0]), _FRAME_CASES),
    _target("strips", _make_store, _parse_store, given("given.h5", lambda: _stores()[0]), hdf5_cases.STRIPS, "h5py"),
    _target("codes", _make_codes, _parse_codes, given("given.h5", lambda: _codes()[0]), hdf5_cases.CODES, "h5py"),
    _target("supplementary", _make_annotation, _parse_annotation, _write_annotation, hdf5_cases.SUPPLEMENTARY, "h5py"),
    _target("matlab", _make_matlab, _parse_mpiifacegaze, _write_mpiifacegaze, {}, "scipy"),
    _target("annotation", _make_mpiifacegaze, _parse_mpiifacegaze, _write_mpiifacegaze, _MPIIFACEGAZE_CASES),
    _target(
        "recording",
        _make_recording,
        lambda folder: check_people(GazeCapture(folder, folder / "annotation.h5")),
        _write_recording,
        _RECORDING_CASES,
    ),
    _target(
        "splits",
        _make_splits,
        lambda folder: read_splits(folder / "given.json"),
        given("given.json", lambda: json.dumps(_SPLITS).encode()),
        _SPLITS_CASES,
    ),
    _target(
        "rejects",
        _make_rejects,
        lambda folder: read_rejects(folder / "given.csv"),
        given("given.csv", _REJECTS.encode),
        _REJECTS_CASES,
    ),
)
