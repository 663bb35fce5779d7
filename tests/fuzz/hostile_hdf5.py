"""Edits that make a hostile HDF5 file of a valid one: of its groups, arrays, links and attributes, and of its bytes."""

import contextlib
import functools
import zlib
from collections.abc import Callable
from pathlib import Path

import h5py
import numpy as np
from hostile import TEXTS, Draw, edited_bytes

HUGE = 2**40
_CHUNK = 2**23  # bytes of zeros, which deflate to 8 KiB
_ARRAYS: tuple[Callable[[], object], ...] = (
    *(lambda: 3, lambda: 1.5, lambda: "text", lambda: b"\xff\xfe", lambda: h5py.Empty("f4"), lambda: h5py.Empty("S4")),
    *(lambda: np.zeros(0), lambda: np.zeros((0, 4), "f4"), lambda: np.zeros((2, 4), "f4"), lambda: np.zeros((2, 0))),
    *(lambda: np.full((2, 4), np.nan, "f4"), lambda: np.full((2, 6), 1e308), lambda: np.zeros((2, 4), "f2")),
    *(
        lambda: np.zeros(2, "i8") - 1,
        lambda: np.full(2, 2**63 - 1),
        lambda: np.full(2, 255, "u1"),
        lambda: np.zeros(3, "u1"),
    ),
    *(
        lambda: np.array([b"a", b"\xff"]),
        lambda: np.array(["a", "b"], object),
        lambda: np.zeros(2, "c8"),
        lambda: np.zeros(2, bool),
    ),
    *(
        lambda: np.zeros(2, [("a", "i4"), ("b", "f4")]),
        lambda: np.zeros((2, 3, 4, 5, 6)),
        lambda: np.zeros((2, 4, 8, 3), "i2"),
    ),
    *(
        lambda: np.zeros((2, 1, 1, 3), "u1"),
        lambda: np.zeros((1,) * 32),
        lambda: np.zeros(70_000, "u1"),
        lambda: np.array(b"x" * 3000),
    ),
    *(lambda: np.array([np.zeros(3), np.zeros(2)], object), lambda: np.zeros(2, "V5"), lambda: np.zeros((5, 4), "f4")),
)


@functools.cache
def zeros_deflated() -> bytes:
    """A chunk that grows a thousandfold when it is read."""
    return zlib.compress(bytes(_CHUNK), 9)


def edited_hdf5(draw: Draw, path: Path, content: bytes) -> None:
    """Write a file with some edits."""
    path.write_bytes(content)
    structure = draw.number(0, 3) > 0
    if structure:
        with contextlib.suppress(OSError, RuntimeError), h5py.File(path, "r+") as file:
            for _ in range(draw.number(1, 3)):
                _edit(draw, file)
    if not structure or draw.number(0, 9) == 0:
        path.write_bytes(edited_bytes(draw, path.read_bytes(), 6))


def _edit(draw: Draw, file: h5py.File) -> None:
    names: list[str] = []
    file.visit(names.append)
    name = draw.pick(names or ["x"])
    edit = draw.pick(_EDITS)
    with contextlib.suppress(Exception):  # not every edit can be done everywhere
        edit(draw, file, name)


def _attribute(draw: Draw, file: h5py.File, name: str) -> None:
    holder = file if draw.flip() else file[name]
    known = [*holder.attrs, "split", "schema", "schema_version", "dataset", "device", "checksum", "origins", "origin"]
    key = draw.pick(sorted(set(known)))
    if draw.number(0, 4) == 0:
        holder.attrs.pop(key, None)
    else:
        value = draw.pick((*TEXTS, *_ARRAYS, lambda: holder.ref, lambda: 99, lambda: 2**62))
        holder.attrs[key] = value() if callable(value) else value.replace("\0", "")


def _delete(draw: Draw, file: h5py.File, name: str) -> None:
    del file[name]


def _replace(draw: Draw, file: h5py.File, name: str) -> None:
    array = draw.pick(_ARRAYS)()
    del file[name]
    file[name] = array


def _retype(draw: Draw, file: h5py.File, name: str) -> None:
    """Keep the shape, change the type."""
    shape = file[name].shape
    kind = draw.pick(["f2", "f4", "f8", ">f8", "i1", "i8", "u8", "bool", "S3", "c16", "V3", h5py.string_dtype(), "O"])
    del file[name]
    file.create_dataset(name, shape, h5py.vlen_dtype(np.uint8) if kind == "O" else kind)


def _huge(draw: Draw, file: h5py.File, name: str) -> None:
    """Declare more than there is, in place of an array, or of all of a person's at once."""
    many, chunks = draw.pick([10**6, 10**8, 2**31, HUGE]), draw.flip()
    for one in [name] if isinstance(file[name], h5py.Dataset) else [f"{name}/{key}" for key in file[name]]:
        shape, kind = (many, *file[one].shape[1:]), file[one].dtype
        del file[one]
        file.create_dataset(one, shape, kind, chunks=(1, *shape[1:]) if chunks else None)


def _bomb(draw: Draw, file: h5py.File, name: str) -> None:
    """Fill an array with chunks of zeros that are a thousandth of their size in the file."""
    for one in [name] if isinstance(file[name], h5py.Dataset) else [f"{name}/{key}" for key in file[name]]:
        kind, rest = file[one].dtype, file[one].shape[1:]
        each = kind.itemsize * int(np.prod(rest))
        rows, chunks = _CHUNK // each, draw.pick([1, 400])
        if rows * each != _CHUNK:
            continue
        del file[one]
        made = file.create_dataset(one, (rows * chunks, *rest), kind, chunks=(rows, *rest), compression="gzip")
        for chunk in range(chunks):
            made.id.write_direct_chunk((rows * chunk, *(0 for _ in rest)), zeros_deflated())


def _link(draw: Draw, file: h5py.File, name: str) -> None:
    target = draw.pick(
        [
            *(h5py.SoftLink("/nowhere"), h5py.SoftLink(f"/{name}"), h5py.SoftLink("/"), h5py.SoftLink("..")),
            *(
                h5py.ExternalLink("/etc/passwd", "/"),
                h5py.ExternalLink("/dev/zero", "/"),
                h5py.ExternalLink("given.h5", f"/{name}"),
            ),
        ]
    )
    del file[name]
    file[name] = target


def _loop(draw: Draw, file: h5py.File, name: str) -> None:
    file[f"{name.split('/')[0]}/again"] = file["/"]


def _outside(draw: Draw, file: h5py.File, name: str) -> None:
    """Let an array lie in another file, or be put together from others."""
    shape, kind = file[name].shape, file[name].dtype
    del file[name]
    if draw.flip():
        file.create_dataset(name, shape, kind, external=[("/etc/passwd", 0, h5py.h5f.UNLIMITED)])
    else:
        layout = h5py.VirtualLayout(shape, kind)
        layout[...] = h5py.VirtualSource("/etc/passwd", "x", shape)
        file.create_virtual_dataset(name, layout)


def _group(draw: Draw, file: h5py.File, name: str) -> None:
    del file[name]
    file.create_group(f"{name}/deeper" if draw.flip() else name)


def _rename(draw: Draw, file: h5py.File, name: str) -> None:
    file.move(name, draw.pick(TEXTS).replace("\0", "\x01"))


def _named_type(draw: Draw, file: h5py.File, name: str) -> None:
    del file[name]
    file[name] = np.dtype("f8")


_EDITS = (
    _attribute,
    _attribute,
    _attribute,
    _delete,
    _replace,
    _replace,
    _retype,
    _huge,
    _bomb,
    _link,
    _loop,
    _outside,
    _group,
    _rename,
    _named_type,
)
