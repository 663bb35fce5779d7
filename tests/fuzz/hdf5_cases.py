"""Hostile HDF5 files by name: each once led to a traceback, to bytes of another file, or to an endless loop.

A case consists of an edit of the file `given.h5` and words from the message that refuses it.
"""

from collections.abc import Callable
from pathlib import Path

import h5py
import numpy as np
from damaged import cut

Edit = Callable[[h5py.File], object]
Case = tuple[Callable[[Path], object], str]


def edited(edit: Edit) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        with h5py.File(folder / "given.h5", "r+") as file:
            edit(file)

    return change


def put(name: str, content: object) -> Callable[[Path], None]:
    def edit(file: h5py.File) -> None:
        del file[name]
        file[name] = content

    return edited(edit)


def attribute(key: str, value: object, holder: str = "/") -> Callable[[Path], None]:
    return edited(lambda file: file[holder].attrs.__setitem__(key, value))


def flipped(name: str, person: str = "p00") -> Callable[[Path], None]:
    """Flip a bit in an array's data."""

    def change(folder: Path) -> None:
        with h5py.File(folder / "given.h5") as file:
            offset = file[person][name].id.get_offset()
        content = bytearray((folder / "given.h5").read_bytes())
        content[offset] ^= 1 << 3
        (folder / "given.h5").write_bytes(content)

    return change


def elsewhere(name: str, virtual: bool) -> Callable[[Path], None]:
    """Store an array in another file."""

    def edit(file: h5py.File) -> None:
        shape, kind = file[name].shape, file[name].dtype
        del file[name]
        if virtual:
            layout = h5py.VirtualLayout(shape, kind)
            layout[...] = h5py.VirtualSource("other.h5", name, shape)
            file.create_virtual_dataset(name, layout)
        else:
            file.create_dataset(name, shape, kind, external=[("/etc/passwd", 0, h5py.h5f.UNLIMITED)])

    return edited(edit)


def unreadable_chunks(file: h5py.File) -> None:
    shape = file["p00/pixels"].shape
    del file["p00/pixels"]
    chunked = file.create_dataset("p00/pixels", shape, np.uint8, chunks=(1, *shape[1:]), compression="gzip")
    for row in range(shape[0]):
        chunked.id.write_direct_chunk((row, 0, 0, 0), b"no stream of zlib")


def unreadable(folder: Path) -> None:
    cut(folder / "given.h5", 2000)


ANY: dict[str, Case] = {
    "absent": (lambda folder: (folder / "given.h5").unlink(), "given.h5: no such file"),
    "torn": (unreadable, "given.h5: not a readable HDF5 file"),
    "text": (lambda folder: (folder / "given.h5").write_text("p00 p01"), "given.h5: not a readable HDF5 file"),
    "hidden person": (edited(lambda file: file.move("p00", "..")), "the name '..'"),
    "person with a line break": (edited(lambda file: file.move("p00", "a\nb")), "the name 'a\\nb'"),
    "person of 200 letters": (edited(lambda file: file.move("p00", "x" * 200)), "too long"),
}
STORE: dict[str, Case] = ANY | {
    "link to another file": (put("p00", h5py.ExternalLink("other.h5", "/p00")), "a link to something else"),
    "link to nowhere": (put("p00", h5py.SoftLink("/nowhere")), "a link to something else"),
    "link to itself": (put("p00", h5py.SoftLink("/p00")), "a link to something else"),
    "no group": (put("p00", np.zeros(3)), "not a group of arrays"),
    "data set with a path": (attribute("dataset", "../../x"), "data set: the name '../../x'"),
    "version in words": (attribute("schema_version", "two"), "description cannot be read"),
    "two versions": (attribute("schema_version", np.array([1, 2])), "description cannot be read"),
    "two schemas": (attribute("schema", np.array(["x", "x"], "S")), "contains"),
    "later version": (attribute("schema_version", 3), "schema_version 3"),
    "split": (attribute("split", "Train", "p00"), "split 'Train'"),
}
STRIPS: dict[str, Case] = STORE | {
    "codes": (attribute("schema", "codes"), "contains codes, not strips"),
    "pixels in another file": (elsewhere("p00/pixels", virtual=False), "pixels is stored in another file"),
    "pixels of other files": (elsewhere("p00/pixels", virtual=True), "pixels is stored in another file"),
    "labels by a link": (put("p00/labels", h5py.SoftLink("/p01/labels")), "labels is a link to something else"),
    "no labels": (edited(lambda file: file.__delitem__("p00/labels")), "no labels"),
    "labels of a type": (put("p00/labels", np.dtype("f8")), "labels is not an array"),
    "empty labels": (put("p00/labels", h5py.Empty("f4")), "labels is not an array"),
    "labels of texts": (put("p00/labels", np.array([b"a", b"b"])), "labels is of the type |S1"),
    "few labels": (put("p00/labels", np.zeros((1, 4))), "have shape (1, 4), not (2, 4)"),
    "float pixels": (put("p00/pixels", np.zeros((2, 4, 8))), "are float64"),
    "strips of no height": (put("p00/pixels", np.zeros((2, 0, 8, 3), np.uint8)), "pixels"),
    "names that are numbers": (put("p00/file_name", np.zeros(2)), "file_name is of the type float64"),
    "few sources": (put("p00/label_source", np.zeros(1, np.uint8)), "has shape (1,), not (2,)"),
    "negative positions": (put("p00/validity", np.zeros(2, np.int8) - 1), "validity is of the type int8"),
    "unknown sources": (attribute("label_sources", ["b", "c", "d", "e", "guessed"]), "'guessed'"),
    "no sources": (
        edited(lambda file: file.attrs.__delitem__("label_sources")),
        "label_source of person p00 has index",
    ),
    "unreadable chunks": (edited(unreadable_chunks), "pixels of person p00 cannot be read"),
    **{f"flipped {name}": (flipped(name), "p00 is corrupt") for name in ("pixels", "labels", "file_name")},
}
CODES: dict[str, Case] = STORE | {
    "gaze of five": (put("p00/gaze", np.zeros((2, 5), np.float32)), "gaze of person p00 has shape (2, 5)"),
    "gaze_hat": (put("p00/gaze_hat", np.zeros((2, 3, 3), np.float32)), "gaze_hat of person p00 has shape"),
    "z_gaze": (put("p00/z_gaze", np.zeros((2, 6), np.float32)), "z_gaze of person p00 has shape"),
    "texts": (put("p00/z_head", np.array([b"a", b"b"])), "z_head is of the type |S1"),
    "one number": (put("p00/z_app", np.float32(1)), "p00 have different lengths"),
    "gaze head": (attribute("gaze1.bias", np.zeros(9, np.float32)), "not float (9, 5)"),
    "gaze head in words": (attribute("gaze2.weight", "x"), "gaze2.weight is"),
    "moved to test": (attribute("split", "test", "p00"), "p00 is corrupt"),
    **{f"flipped {name}": (flipped(name), "p00 is corrupt") for name in ("z_gaze", "gaze", "gaze_hat")},
}
SUPPLEMENTARY: dict[str, Case] = ANY | {
    "pose by a link": (
        put("p00/head_pose", h5py.ExternalLink("other.h5", "/x")),
        "head_pose is a link to something else",
    ),
    "pose of three": (put("p00/head_pose", np.zeros((2, 3))), "has shape (2, 3), not (2, 6)"),
    "flipped pose": (flipped("head_pose"), "p00 is corrupt"),
}
