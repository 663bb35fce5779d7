"""HDF5 files that lead out of themselves, or to more memory than they have bytes, or hold something else than arrays.

Each was red before: a traceback, another file's bytes read as strips, gigabytes, or no end.
"""

import os
import zlib
from collections.abc import Callable
from pathlib import Path

import h5py
import numpy as np
import pytest
import torch

from faze.base.errors import UserError
from faze.data.preparation.stored import open_stored
from faze.data.readers.supplementary_reader import SupplementaryReader
from faze.data.row_sources import stored_rows
from faze.data.store import probe as probe_module
from faze.data.store.codes import GAZE_HEAD, CodeStore, write_codes
from faze.data.store.probe import probe
from faze.data.store.strip_writing import PersonStrips, write_strips
from faze.data.store.strips import StripStore
from faze.data.store.supplementary import Supplementary, read_supplementary, supplementary_persons, write_supplementary
from faze.fewshot.person_codes import open_codes, read_person

PIXELS = np.random.default_rng(0).integers(0, 256, (2, 4, 8, 3), np.uint8)
LABELS = np.zeros((2, 4), np.float32)
Edit = Callable[[h5py.File], None]


@pytest.fixture
def store(tmp_path: Path) -> Path:
    people = [PersonStrips(person, "train", ["a.jpg", "b.jpg"], PIXELS, LABELS) for person in ("p00", "p01")]
    write_strips(tmp_path / "strips.h5", "gazecapture", people)
    return tmp_path / "strips.h5"


def edited(path: Path, edit: Edit) -> Path:
    with h5py.File(path, "r+") as file:
        edit(file)
    return path


def put(name: str, content: object) -> Edit:
    def edit(file: h5py.File) -> None:
        del file[name]
        file[name] = content

    return edit


def huge(name: str, rows: int, **how: object) -> Edit:
    def edit(file: h5py.File) -> None:
        shape, kind = file[name].shape[1:], file[name].dtype
        del file[name]
        file.create_dataset(name, (rows, *shape), kind, **how)

    return edit


def bomb(name: str, mib: int = 512) -> Edit:
    """Chunks of zeros, a thousandth of their size in the file."""

    def edit(file: h5py.File) -> None:
        shape, kind = file[name].shape[1:], file[name].dtype
        rows = 2**20 // (kind.itemsize * int(np.prod(shape)))
        del file[name]
        made = file.create_dataset(name, (rows * mib, *shape), kind, chunks=(rows, *shape), compression="gzip")
        packed = zlib.compress(bytes(rows * kind.itemsize * int(np.prod(shape))), 9)
        for chunk in range(mib):
            made.id.write_direct_chunk((rows * chunk, *(0 for _ in shape)), packed)

    return edit


def external(file: h5py.File) -> None:
    del file["p00/pixels"]
    file.create_dataset("p00/pixels", PIXELS.shape, np.uint8, external=[("/etc/passwd", 0, h5py.h5f.UNLIMITED)])


def virtual(file: h5py.File) -> None:
    del file["p00/pixels"]
    layout = h5py.VirtualLayout(PIXELS.shape, np.uint8)
    layout[...] = h5py.VirtualSource("other.h5", "p00/pixels", PIXELS.shape)
    file.create_virtual_dataset("p00/pixels", layout)


EDITS: dict[str, tuple[Edit, str]] = {
    "pixels in another file": (external, "pixels lies in another file"),
    "pixels put together of others": (virtual, "pixels lies in another file"),
    "a link to another file": (put("p00", h5py.ExternalLink("other.h5", "/p00")), "a link to something else"),
    "a link to nowhere": (put("p00", h5py.SoftLink("/nowhere")), "a link to something else"),
    "a link to itself": (put("p00", h5py.SoftLink("/p00")), "a link to something else"),
    "labels by a link": (put("p00/labels", h5py.SoftLink("/p01/labels")), "labels is a link to something else"),
    "no group": (put("p00", PIXELS), "no group of arrays"),
    "a type": (put("p00/labels", np.dtype("f8")), "labels is no array"),
    "an empty array": (put("p00/labels", h5py.Empty("f4")), "labels is no array"),
    "labels of texts": (put("p00/labels", np.array([b"a", b"b"])), r"labels is of the type \|S1"),
    "strips of no height": (put("p00/pixels", np.zeros((2, 0, 8, 3), np.uint8)), "pixels"),
    "names that are numbers": (put("p00/file_name", np.zeros(2)), "file_name is of the type float64"),
    "a petabyte": (huge("p00/pixels", 2**42), r"labels.* have shape \(2, 4\), not \(4398046511104, 4\)"),
    "a petabyte with labels": (
        lambda file: (huge("p00/pixels", 2**42)(file), huge("p00/labels", 2**42)(file)),
        "labels would take 65536.0 GiB, of which the file holds a fraction",
    ),
    "strips of gigabytes": (
        put("p00/pixels", h5py.Empty("u1")),
        "pixels is no array",
    ),
    "labels of a bomb": (bomb("p00/labels"), "of which the file holds a fraction"),
    "a chunk of gigabytes": (
        huge("p00/pixels", 2, maxshape=(None, 4, 8, 3), chunks=(2**24, 4, 8, 3), compression="gzip"),
        "of which the file holds a fraction",
    ),
    "a hidden person": (lambda file: file.move("p00", ".."), r"the name '\.\.' is empty, hidden"),
    "a person with a line break": (lambda file: file.move("p00", "a\nb"), r"the name 'a\\nb' is empty, hidden"),
    "a person of 200 letters": (lambda file: file.move("p00", "x" * 200), "is too long"),
}


@pytest.mark.parametrize("edit", EDITS)
def test_a_person_who_is_not_as_a_store_has_people_is_refused_or_left_out(edit: str, store: Path) -> None:
    change, sentence = EDITS[edit]
    edited(store, change)
    with pytest.raises(UserError, match=f"strips.h5: .*{sentence}"):
        StripStore(store)
    with StripStore(store, tolerant=True) as strips:  # as preprocess opens it
        assert strips.persons() == ["p01"] and len(strips.faults) == 1


@pytest.mark.parametrize(
    ("key", "value", "sentence"),
    [
        ("dataset", "../../x", "of its data set, the name '../../x' is empty, hidden, has a /"),
        ("schema_version", "two", "what it is cannot be read"),
        ("schema_version", np.array([1, 2]), "what it is cannot be read"),
        ("schema", np.array(["strips", "strips"], "S"), "holds .*, not strips"),
    ],
)
def test_what_a_file_says_of_itself_is_checked(key: str, value: object, sentence: str, store: Path) -> None:
    edited(store, lambda file: file.attrs.__setitem__(key, value))
    with pytest.raises(UserError, match=f"strips.h5: {sentence}"):
        StripStore(store)


def test_control_characters_reach_no_terminal(store: Path) -> None:
    edited(store, lambda file: file["p00"].attrs.__setitem__("device", "\x1b[2Jphone"))
    with StripStore(store) as strips:
        assert strips.device("p00") == "?[2Jphone"


def test_positions_mean_what_faze_knows(store: Path) -> None:
    edited(store, lambda file: file.attrs.__setitem__("origins", ["guessed", "b", "c", "d"]))
    with (
        StripStore(store) as strips,
        pytest.raises(UserError, match="origin of person p00 is 'd', which has no meaning"),
    ):
        strips.origins("p00")
    edited(store, put("p00/validity", np.zeros(2, np.int8) - 1))
    with pytest.raises(UserError, match="validity is of the type int8"):
        StripStore(store)


def test_texts_that_are_all_the_same_large_one_are_refused(store: Path) -> None:
    many = np.array(["y" * 50_000] * 2, object)
    edited(store, put("p00/file_name", many))
    with StripStore(store) as strips:
        assert strips.file_names("p00") == many.tolist()
    people = [PersonStrips("p00", "train", None, np.zeros((2000, 1, 1, 3), np.uint8), np.zeros((2000, 4), np.float32))]
    write_strips(store, "gazecapture", people)

    def same(file: h5py.File) -> None:
        names = file.create_dataset("p00/file_name", 2000, h5py.string_dtype())
        names[0] = "y" * 60_000
        raw = file["p00/file_name"].id.get_offset()
        file.flush()
        same.place = raw

    edited(store, same)
    content = bytearray(store.read_bytes())
    reference = content[same.place : same.place + 16]
    for row in range(2000):  # each refers to the first one's text
        content[same.place + 16 * row : same.place + 16 * row + 16] = reference
    store.write_bytes(content)
    with StripStore(store) as strips, pytest.raises(UserError, match="its texts are larger than the file"):
        strips.file_names("p00")


def test_strips_of_several_sizes_cannot_be_rows_of_one_table(store: Path) -> None:
    edited(store, put("p01/pixels", np.zeros((2, 1, 8, 3), np.uint8)))
    with StripStore(store) as strips, pytest.raises(UserError, match="4 x 8 of person p00, 1 x 8 of"):
        stored_rows(strips, store, strips.persons()).gather(torch.tensor([0, 3]))


def test_pixels_that_cannot_be_unpacked_name_their_person(store: Path) -> None:
    def torn(file: h5py.File) -> None:
        del file["p00/pixels"]
        made = file.create_dataset("p00/pixels", PIXELS.shape, np.uint8, chunks=(1, 4, 8, 3), compression="gzip")
        for row in range(2):
            made.id.write_direct_chunk((row, 0, 0, 0), b"no stream of zlib")

    edited(store, torn)
    with StripStore(store) as strips, pytest.raises(UserError, match="strips.h5: pixels of person p00 cannot be read"):
        strips.pixels("p00")


@pytest.fixture
def codes(tmp_path: Path) -> Path:
    rng = np.random.default_rng(0)
    shapes = {
        "z_app": (2, 4),
        "z_gaze": (2, 2, 3),
        "z_head": (2, 4, 3),
        "gaze": (2, 2),
        "head": (2, 2),
        "gaze_hat": (2, 3),
    }
    head = dict(zip(GAZE_HEAD, (np.zeros((8, 6)), np.zeros(8), np.zeros((3, 8)), np.zeros(3)), strict=True))
    person = {name: rng.normal(size=shape) for name, shape in shapes.items()}
    write_codes(tmp_path / "codes.h5", "mpiigaze", [("p00", "test", person)], head)
    return tmp_path / "codes.h5"


@pytest.mark.parametrize(
    ("edit", "sentence"),
    [
        (put("p00/gaze", np.zeros((2, 5), np.float32)), r"gaze of person p00 has shape \(2, 5\)"),
        (put("p00/gaze_hat", np.zeros((2, 3, 3), np.float32)), "gaze_hat of person p00 has shape"),
        (put("p00/z_gaze", np.zeros((2, 6), np.float32)), "z_gaze of person p00 has shape"),
        (put("p00/z_head", np.array([b"a", b"b"])), r"z_head is of the type \|S1"),
        (put("p00/z_app", np.float32(1)), "the codes of person p00 differ in number"),
        (huge("p00/z_app", 2**40), "of which the file holds a fraction"),
        (
            lambda file: file.attrs.__setitem__("gaze1.bias", np.zeros(9, np.float32)),
            r"gaze1.weight is .*, not float \(9, 5\)",
        ),
        (lambda file: file.attrs.__setitem__("gaze2.weight", "x"), "gaze2.weight is"),
    ],
)
def test_codes_have_the_shapes_that_learners_compute_with(edit: Edit, sentence: str, codes: Path) -> None:
    """Compiled code of few-shot learning takes them as they come."""
    assert read_person(open_codes(codes), "p00").code.shape == (2, 6)
    edited(codes, edit)
    with pytest.raises(UserError, match=sentence):
        CodeStore(codes)


def test_an_annotation_leads_nowhere_else(tmp_path: Path) -> None:
    entries = Supplementary(["p00/a.jpg"], np.ones((1, 4)), np.zeros((1, 5)), np.zeros((1, 6)), np.zeros((1, 3)))
    path = tmp_path / "annotation.h5"
    write_supplementary(path, [("p00", entries)])
    edited(path, put("p00/head_pose", h5py.ExternalLink("other.h5", "/x")))
    with pytest.raises(UserError, match="annotation.h5: person p00: head_pose is a link to something else"):
        read_supplementary(path, "p00")
    edited(path, lambda file: file.move("p00", ".."))
    with pytest.raises(UserError, match=r"annotation.h5: of a person, the name '\.\.'"):
        supplementary_persons(path)


def test_a_pipe_is_no_store(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(UserError, match="pipe: not a file"):
        StripStore(tmp_path / "pipe")


@pytest.fixture
def endless(store: Path) -> Path:
    """A store at which HDF5 2.0 loops for ever: in its heap of texts an object has the size 0 and no number.

    In the layout of strangers and of older versions: ours has no heap.
    """
    with h5py.File(store) as ours, h5py.File(store.with_name("older.h5"), "w") as older:
        for person in ours:
            ours.copy(person, older)
            for name in list(older[person].attrs):
                del older[person].attrs[name]
            older[person].attrs["split"] = "train"
        older.attrs["schema"], older.attrs["dataset"] = "strips", "gazecapture"
    store.with_name("older.h5").replace(store)
    content = store.read_bytes()
    at = content.index(b"GCOL")
    first = at + 16  # the first object: number, references, reserved, size
    size = int.from_bytes(content[first + 8 : first + 16], "little")
    second = first + 16 + -(-size // 8) * 8
    store.write_bytes(content[:second] + bytes(16) + content[second + 16 :])
    return store


@pytest.mark.parametrize("layout", ["strips", "codes", "supplementary"])
def test_a_file_at_which_hdf5_hangs_is_one_sentence(
    layout: str, endless: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(probe_module, "PROCESSOR_S", 1)
    if layout == "supplementary":  # which has no texts of that kind
        probe(endless, layout)
        return
    with pytest.raises(UserError, match="strips.h5: the HDF5 library finds no end of it"):
        probe(endless, layout)


def test_files_of_strangers_are_probed(endless: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probe_module, "PROCESSOR_S", 1)
    with pytest.raises(UserError, match="finds no end"):
        open_stored(endless, "gazecapture", None)


def test_what_is_only_wrong_is_left_to_the_reader(store: Path, tmp_path: Path) -> None:
    for layout in ("strips", "codes", "supplementary"):
        probe(store, layout)
    (tmp_path / "words").write_text("no HDF5")
    probe(tmp_path / "words", "strips")
    with pytest.raises(UserError, match="holds no folder of a person"):
        SupplementaryReader(tmp_path, store, "test")
