"""Random edits of groups, arrays, links, attributes and bytes, which turn a valid HDF5 file into a hostile one."""

import contextlib
import functools
import zlib
from pathlib import Path

import h5py
import numpy as np
from hostile import TEXTS, Draw, edited_bytes

_ATTRIBUTES = "split schema schema_version dataset pixel_source device checksum label_sources label_source validities"
HUGE = 2**40
_CHUNK = 2**23  # bytes of zeros, which deflate to 8 KiB
_SHAPES = {"f4": [(0, 4), (2, 4), (5, 4)], "f8": [0, (2, 0), (2, 3, 4, 5, 6), (1,) * 32], "f2": [(2, 4)], "c8": [2]}
_SHAPES |= {"u1": [3, 70_000, (2, 1, 1, 3)], "i2": [(2, 4, 8, 3)], "bool": [2], "V5": [2], "i4,f4": [2]}
_ARRAYS: tuple[object, ...] = (
    *(np.zeros(shape, kind) for kind, shapes in _SHAPES.items() for shape in shapes),
    *(3, 1.5, "text", b"\xff\xfe", h5py.Empty("f4"), h5py.Empty("S4"), np.array(b"x" * 3000)),
    *(
        np.full((2, 4), np.nan, "f4"),
        np.full((2, 6), 1e308),
        np.full(2, -1),
        np.full(2, 2**63 - 1),
        np.full(2, 255, "u1"),
    ),
    *(np.array([b"a", b"\xff"]), np.array(["a", "b"], object), np.array([np.zeros(3), np.zeros(2)], object)),
)


@functools.cache
def zeros_deflated() -> bytes:
    """Return a compressed chunk of zeros that becomes a thousand times as large when it is read."""
    return zlib.compress(bytes(_CHUNK), 9)


def edited_hdf5(draw: Draw, path: Path, content: bytes) -> None:
    """Write the content to a file, with some random edits."""
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
    known = [
        *holder.attrs,
        "split",
        "schema",
        "schema_version",
        "dataset",
        "device",
        "checksum",
        "label_sources",
        "label_source",
    ]
    key = draw.pick(sorted(set(known)))
    if draw.number(0, 4) == 0:
        holder.attrs.pop(key, None)
    else:
        value = draw.pick((*TEXTS, *_ARRAYS, holder.ref, 99, 2**62))
        holder.attrs[key] = value.replace("\0", "") if isinstance(value, str) else value


def _delete(draw: Draw, file: h5py.File, name: str) -> None:
    del file[name]


def _replace(draw: Draw, file: h5py.File, name: str) -> None:
    array = draw.pick(_ARRAYS)
    del file[name]
    file[name] = array


def _retype(draw: Draw, file: h5py.File, name: str) -> None:
    """Change an array's type but keep its shape."""
    shape = file[name].shape
    kind = draw.pick(["f2", "f4", "f8", ">f8", "i1", "i8", "u8", "bool", "S3", "c16", "V3", h5py.string_dtype(), "O"])
    del file[name]
    file.create_dataset(name, shape, h5py.vlen_dtype(np.uint8) if kind == "O" else kind)


def _huge(draw: Draw, file: h5py.File, name: str) -> None:
    """Declare one array, or all arrays of a person, to be far larger than their data."""
    many, chunks = draw.pick([10**6, 10**8, 2**31, HUGE]), draw.flip()
    for one in [name] if isinstance(file[name], h5py.Dataset) else [f"{name}/{key}" for key in file[name]]:
        shape, kind = (many, *file[one].shape[1:]), file[one].dtype
        del file[one]
        file.create_dataset(one, shape, kind, chunks=(1, *shape[1:]) if chunks else None)


def _bomb(draw: Draw, file: h5py.File, name: str) -> None:
    """Fill an array with chunks of zeros that take up only a thousandth of their size in the file."""
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
    soft = [h5py.SoftLink(path) for path in ("/nowhere", f"/{name}", "/", "..")]
    external = [h5py.ExternalLink(file, "/") for file in ("/etc/passwd", "/dev/zero", "given.h5")]
    target = draw.pick(soft + external)
    del file[name]
    file[name] = target


def _loop(draw: Draw, file: h5py.File, name: str) -> None:
    file[f"{name.split('/')[0]}/again"] = file["/"]


def _outside(draw: Draw, file: h5py.File, name: str) -> None:
    """Store an array in an external file, or as a virtual array that refers to one."""
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


_EDITS = (*(_attribute,) * 3, _delete, *(_replace,) * 2, _retype, _huge, _bomb, _link, _loop, _outside, _group, _rename)
