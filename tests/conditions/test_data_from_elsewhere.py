"""Data that other programs wrote: each kind is read correctly, or rejected with the reason and the right remedy."""

import errno
import json
import subprocess
import sys
from collections.abc import Callable
from io import BytesIO
from pathlib import Path

import cv2
import fake_mediapipe
import h5py
import numpy as np
import pytest
import raw_data
from data_sets import entries
from jpegs import encode, exif, with_segment
from numpy.typing import NDArray
from PIL import Image

from faze.base.errors import DamagedFile, UserError
from faze.config.yaml_files import read_yaml
from faze.data.landmarks.detector import open_detector
from faze.data.normalization.images import FrameReader, UnusableFrame, read_image
from faze.data.preparation.splits import read_splits
from faze.data.readers import Frame, Reader
from faze.data.readers.gazecapture import GazeCapture
from faze.data.readers.mpiifacegaze import open_mpiifacegaze
from faze.data.rejects import read_rejects
from faze.data.store import layout
from faze.data.store.layout import open_file
from faze.data.store.strips import StripStore
from faze.model.weights import load_model

# Text files.
EDITORS: dict[str, Callable[[bytes], bytes]] = {
    "byte order mark": lambda data: b"\xef\xbb\xbf" + data,
    "CRLF": lambda data: data.replace(b"\n", b"\r\n"),
    "mark and CRLF": lambda data: b"\xef\xbb\xbf" + data.replace(b"\n", b"\r\n"),
    "no last line end": lambda data: data.rstrip(b"\n"),
}


def readers(folder: Path, edit: Callable[[bytes], bytes]) -> list[Reader]:
    """Write both raw data sets with edited text files, and open them."""
    raw_data.write_mpiifacegaze(folder / "mpiifacegaze", people=1)
    raw_data.write_gazecapture(folder / "gazecapture", folder / "annotation.h5", splits=("train",))
    for path in [*folder.glob("mpiifacegaze/p*/p*.txt"), *folder.glob("gazecapture/*/*.json")]:
        path.write_bytes(edit(path.read_bytes()))
    return [
        open_mpiifacegaze(folder / "mpiifacegaze", None),
        GazeCapture(folder / "gazecapture", folder / "annotation.h5"),
    ]


@pytest.mark.parametrize("editor", EDITORS)
def test_text_of_any_editor_is_read(editor: str, tmp_path: Path) -> None:
    """Regression: with a byte order mark, the first frame of a person and whole recordings were rejected."""
    edit = EDITORS[editor]
    for reader in readers(tmp_path, edit):
        (person,) = reader.persons()
        entries = list(reader.entries(person))
        assert len(entries) == 3
        assert all(isinstance(entry, Frame) and entry.image_path.is_file() for entry in entries)
    (tmp_path / "mine.yaml").write_bytes(edit(b"name: mine\ntrain:\n  pairs: 4\n"))
    assert read_yaml(tmp_path / "mine.yaml") == {"name": "mine", "train": {"pairs": 4}}
    (tmp_path / "splits.json").write_bytes(edit(b'{"train": ["a"],\n"val": ["b"]}\n'))
    assert read_splits(tmp_path / "splits.json") == {"a": "train", "b": "val"}
    (tmp_path / "rejects.csv").write_bytes(edit(b"person,file_name,reason\np00,,no face\n"))
    (reject,) = read_rejects(tmp_path / "rejects.csv")
    assert reject.reason == "no face"


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le"])
def test_utf_16_is_refused_by_name(encoding: str, tmp_path: Path) -> None:
    for reader in readers(tmp_path, lambda data: data.decode().encode(encoding)):
        (reject,) = reader.entries(reader.persons()[0])
        assert "save it as UTF-8" in reject.reason
    (tmp_path / "mine.yaml").write_bytes("name: mine\n".encode(encoding))
    with pytest.raises(UserError, match=r"mine\.yaml: .*save it as UTF-8"):
        read_yaml(tmp_path / "mine.yaml")


# HDF5 files that are not corrupt.
HOLD = """
import sys, h5py
file = h5py.File(sys.argv[1], "a", libver=sys.argv[2])
file.attrs["note"] = 1
file.flush()
print("open", flush=True)
sys.stdin.read()
"""


@pytest.mark.parametrize(
    ("version", "killed", "words"),
    [
        ("earliest", False, "is open for writing in another process.* close it"),
        ("latest", False, "is open for writing in another process.* close it"),
        ("latest", True, "is marked as open for writing.*h5clear --status .*strips.h5"),
    ],
)
def test_a_store_that_another_program_writes_is_not_called_corrupt(
    version: str, killed: bool, words: str, tmp_path: Path
) -> None:
    """Regression: the message advised replacing a good file."""
    path = tmp_path / "strips.h5"
    with h5py.File(path, "w", libver=version) as file:
        file["p00/pixels"] = np.zeros((1, 64, 256, 3), np.uint8)
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, path, version], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as writer:
        assert writer.stdout.readline() == b"open\n"
        if killed:
            writer.kill()
            writer.wait()
        with pytest.raises(DamagedFile, match=rf"strips\.h5: {words}") as refusal:
            StripStore(path)
    assert "download" not in str(refusal.value)


@pytest.mark.parametrize(
    ("number", "reason", "words"),
    [
        (errno.EACCES, "unable to open file: errno = 13", r"cannot be opened \(Permission denied\)$"),
        (errno.EIO, "unable to open file: errno = 5", r"cannot be opened \(Input/output error\)$"),
    ],
)
def test_errors_of_the_machine_do_not_advise_a_download(
    number: int, reason: str, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(number, reason)

    (tmp_path / "strips.h5").touch()
    monkeypatch.setattr(layout.h5py, "File", refuse)
    with pytest.raises(DamagedFile, match=words):
        open_file(tmp_path / "strips.h5")


# Strips: a person of each kind.
PIXELS = np.random.default_rng(0).integers(0, 256, (3, 64, 256, 3), np.uint8)
LABELS = np.random.default_rng(1).normal(0, 0.2, (3, 4))
Put = Callable[[h5py.Group], None]
STRIPS = {"preprocess": {"datasets": entries(mpiigaze={"layout": "strips"})}}


def put(pixels: NDArray = PIXELS, labels: NDArray = LABELS) -> Put:
    def write(group: h5py.Group) -> None:
        group["pixels"], group["labels"] = pixels, labels

    return write


def put_blosc(group: h5py.Group) -> None:
    how, space = h5py.h5p.create(h5py.h5p.DATASET_CREATE), h5py.h5s.create_simple(PIXELS.shape)
    how.set_chunk((1, 64, 256, 3))
    how.set_filter(32001, h5py.h5z.FLAG_OPTIONAL, (2, 2, 1, 1))
    pixels = h5py.h5d.create(group.id, b"pixels", h5py.h5t.NATIVE_UINT8, space, how)
    for row in range(len(PIXELS)):
        pixels.write_direct_chunk((row, 0, 0, 0), bytes(100))
    group["labels"] = LABELS


def put_unfinished(group: h5py.Group, written: int = 1, **how: object) -> None:
    pixels = group.create_dataset("pixels", PIXELS.shape, np.uint8, **how)
    if written:
        pixels[:written] = PIXELS[:written]
    group["labels"] = LABELS


REJECTED: dict[str, tuple[Put, str]] = {
    "degrees": (put(labels=np.degrees(LABELS)), "convert them from degrees"),
    "not a number": (put(labels=np.full((3, 4), np.nan)), "not finite"),
    "too large": (put(labels=np.full((3, 4), 1e300)), "not finite"),
    "integers": (put(labels=np.zeros((3, 4), int)), "labels is of the type int64"),
    "gaze only": (put(labels=LABELS[:, :2]), "labels have shape (3, 2)"),
    "channels first": (put(PIXELS.transpose(0, 3, 1, 2)), "not uint8 (N, H, W, 3)"),
    "MATLAB's order": (put(PIXELS.T, LABELS.T), "labels have shape (4, 3)"),
    "floats": (put((PIXELS / 255).astype(np.float32)), "not uint8 (N, H, W, 3)"),
    "blosc": (put_blosc, "HDF5 filter 32001, which is not installed"),
    "unfinished": (lambda group: put_unfinished(group, chunks=(1, 64, 256, 3)), "2 of the 3 chunks of pixels"),
    "not begun": (lambda group: put_unfinished(group, 0), "pixels was never written"),
    "space after ": (put(), "leading or trailing spaces"),
    "e\u0301": (put(), "NFC-normalised"),
    ".hidden": (put(), "hidden"),
}
ACCEPTED: dict[str, Put] = {
    **{kind: put(labels=LABELS.astype(kind)) for kind in ("f2", "f4", "f8", ">f4", ">f8")},
    **dict.fromkeys(("7", "some one", "\u00e9", "case", "CASE"), put()),
    "compressed": lambda group: put_unfinished(group, 3, chunks=True, compression="gzip", shuffle=True),
}


def test_strips_of_each_kind(tmp_path: Path, run_stage: Callable) -> None:
    """Regression: degrees, missing chunks and look-alike names were accepted; one compressed person ended the stage."""
    people = ACCEPTED | {person: write for person, (write, _) in REJECTED.items()}
    with h5py.File(tmp_path / "strips.h5", "w") as file:
        for person, write in people.items():
            write(file.create_group(person))
    outputs = {"raw": tmp_path / "strips.h5", "out": tmp_path / "out.h5", "rejects": tmp_path / "rejects.csv"}
    assert run_stage("preprocess", STRIPS, dataset="mpiigaze", **outputs) == 0
    rejects = {reject.person_id: reject.reason for reject in read_rejects(tmp_path / "rejects.csv")}
    assert {person: words for person, (_, words) in REJECTED.items() if words not in rejects.get(person, "")} == {}
    with StripStore(tmp_path / "out.h5") as strips:
        assert set(strips.persons()) == set(ACCEPTED) == set(people) - set(rejects)
        for person in ACCEPTED:
            np.testing.assert_array_equal(strips.pixels(person), PIXELS)
            np.testing.assert_allclose(strips.labels(person), LABELS, atol=1e-3)


def test_a_store_without_people_is_one_sentence(
    tmp_path: Path, run_stage: Callable, capsys: pytest.CaptureFixture
) -> None:
    """Regression: the sentence ended without a reason."""
    h5py.File(tmp_path / "strips.h5", "w").close()
    outputs = {"raw": tmp_path / "strips.h5", "out": tmp_path / "out.h5", "rejects": tmp_path / "rejects.csv"}
    assert run_stage("preprocess", STRIPS, dataset="mpiigaze", **outputs) == 1
    assert "contains no people" in capsys.readouterr().err


def test_names_in_the_list_of_splits_may_have_any_form_of_unicode(tmp_path: Path) -> None:
    (tmp_path / "splits.json").write_text(json.dumps({"train": ["Ae\u0301", 7]}))
    assert read_splits(tmp_path / "splits.json") == {"A\u00e9": "train", "7": "train"}


# Frames.
SMOOTH = cv2.resize(np.random.default_rng(2).integers(0, 256, (6, 8, 3), np.uint8), (320, 240))
PICTURE = Image.fromarray(SMOOTH)


def saved(picture: Image.Image, kind: str, **options: object) -> bytes:
    memory = BytesIO()
    picture.save(memory, kind, **options)
    return memory.getvalue()


def transparent() -> Image.Image:
    picture = PICTURE.copy()
    picture.putalpha(100)
    return picture


FRAMES: dict[str, bytes] = {
    "16 bits": cv2.imencode(".png", SMOOTH[..., ::-1].astype(np.uint16) * 257)[1].tobytes(),
    "transparent": saved(transparent(), "PNG"),
    "palette": saved(PICTURE.quantize(256), "PNG"),
    "grey": saved(PICTURE.convert("L"), "PNG"),
    "grey JPEG": saved(PICTURE.convert("L"), "JPEG", quality=98),
    "CMYK": saved(PICTURE.convert("CMYK"), "JPEG", quality=98),
    "progressive": saved(PICTURE, "JPEG", quality=98, progressive=True),
    "RGB in a JPEG": saved(PICTURE, "JPEG", quality=98, keep_rgb=True),
}


@pytest.mark.parametrize("kind", FRAMES)
def test_frames_of_any_kind_have_the_right_colours(kind: str, tmp_path: Path) -> None:
    """The file's name is that of a JPEG, whatever it contains."""
    (tmp_path / "frame.jpg").write_bytes(FRAMES[kind])
    expected = np.asarray((PICTURE.convert("L") if kind.startswith("grey") else PICTURE).convert("RGB"))
    found = read_image(tmp_path / "frame.jpg")[..., ::-1]
    assert found.shape == expected.shape and np.abs(found.astype(int) - expected).mean() < 9


@pytest.mark.parametrize("kind", ["BMP", "GIF", "TIFF", "WEBP"])
def test_frames_in_other_formats_are_rejected(kind: str, tmp_path: Path) -> None:
    (tmp_path / "frame.jpg").write_bytes(saved(PICTURE, kind))
    with pytest.raises(UnusableFrame, match="not an image that can be decoded"):
        read_image(tmp_path / "frame.jpg")


def test_a_folder_that_is_named_like_a_frame_is_rejected(tmp_path: Path) -> None:
    (tmp_path / "frame.jpg").mkdir()
    with pytest.raises(UnusableFrame, match="Is a directory"):
        read_image(tmp_path / "frame.jpg")


@pytest.mark.parametrize("restart", [0, 7])
def test_a_jpeg_may_lack_only_its_end_marker(restart: int, tmp_path: Path) -> None:
    """Regression: such files of some webcams were rejected as truncated."""
    data = encode(333, 251, cv2.IMWRITE_JPEG_RST_INTERVAL, restart)
    whole = cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_COLOR)
    reader, path = FrameReader(), tmp_path / "frame.jpg"
    for content in (data[:-2], data[:-1], data[:-2] + bytes(999)):
        path.write_bytes(content)
        np.testing.assert_array_equal(reader.read(path).decode(), whole)
        np.testing.assert_array_equal(reader.read(path).decode(60)[:60], whole[:60])
    half = data[: len(data) // 2]
    turned, progressive = with_segment(data, 0xE1, exif(6)), encode(333, 251, cv2.IMWRITE_JPEG_PROGRESSIVE, 1)
    for content in (data[:-8], half, half + bytes(len(half)), turned[:-2], progressive[:-2]):
        path.write_bytes(content)
        with pytest.raises(UnusableFrame, match="truncated JPEG"):
            reader.read(path)


# Weights.
WEIGHTS = {
    "page": b"<!DOCTYPE html><html>Log in</html>",
    "pointer of git-lfs": b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 3\n",
    "safetensors": b"\x02\0\0\0\0\0\0\0{}",
}


@pytest.mark.parametrize("kind", WEIGHTS)
def test_weights_that_are_no_torch_file_do_not_advise_to_run_code(kind: str, tmp_path: Path) -> None:
    """Regression: the message quoted torch's advice to load the file without weights_only."""
    (tmp_path / "weights.pt").write_bytes(WEIGHTS[kind])
    with pytest.raises(UserError, match=r"weights\.pt: .*not a torch file") as refusal:
        load_model(tmp_path / "weights.pt")
    assert "weights_only" not in str(refusal.value)


# MediaPipe.
BROKEN = {
    "import": "raise TypeError('Descriptors cannot be created directly')",
    "no attribute": "import types\nsolutions = types.SimpleNamespace()",
    "first frame": """
import types
class FaceMesh:
    def __init__(self, **options): pass
    def process(self, image): return [].GetPrototype
solutions = types.SimpleNamespace(face_mesh=types.SimpleNamespace(FaceMesh=FaceMesh))
""",
}


@pytest.mark.parametrize("kind", BROKEN)
def test_a_mediapipe_that_does_not_work_is_one_sentence(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Regression: conflicts of its protobuf and numpy were reported as a bug in faze."""
    monkeypatch.syspath_prepend(fake_mediapipe.install(tmp_path / "fake", {}))
    monkeypatch.delitem(sys.modules, "mediapipe", raising=False)
    (tmp_path / "fake" / "mediapipe" / "__init__.py").write_text(BROKEN[kind])
    with pytest.raises(UserError, match=r"MediaPipe cannot be used .*(TypeError|AttributeError).*envs/landmarks\.yaml"):
        open_detector(None).__enter__()
    sys.modules.pop("mediapipe", None)  # monkeypatch would restore it
