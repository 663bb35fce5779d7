"""Every HDF5 layout of faze; no other module opens such a file (DESIGN section 3).

One group per person in each:
    strips         pixels (N, H, W, 3) uint8 RGB; labels (N, 4) gaze pitch, yaw, head pitch, yaw in rad; file_name (N,)
    codes          z_app (N, A); z_gaze (N, G, 3); z_head (N, D, 3); gaze, head (N, 2) rad; gaze_hat (N, 3); float32
    supplementary  the published FAZE annotation: file_name; camera_parameters (N, 4) fx fy cx cy, px;
                   distortion_parameters (N, d); head_pose (N, 6) rotation vector and mm; 3d_gaze_target (N, 3) mm
    truth          any arrays: what the synthetic generator knows and does not annotate

The released code reads our strips and codes, and its files are read here: pixels and labels, or the codes, are enough.
The attributes `schema`, `dataset` (of the file) and `split` (of the person: train, val or test) are our addition. So
are, of a file of codes, `gaze1.weight` (H, 3 G), `gaze1.bias` (H,), `gaze2.weight` (3, H), `gaze2.bias` (3,): the
layers of the gaze head that made gaze_hat, under their names in the checkpoint.
"""

import contextlib
import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import h5py
import numpy as np
from numpy.typing import ArrayLike, NDArray

from faze.files import whole_file

SPLITS = ("train", "val", "test")
# Where a sample's labels come from. annotated: the data set's own annotation; supplementary: FAZE's; estimated: head
# pose by PnP from detected landmarks, intrinsics estimated per device; stored: the file that was read had them.
ORIGINS = ("annotated", "supplementary", "estimated", "stored")
VALIDITIES = ("valid", "off_screen", "unknown_screen")  # valid: the gaze target lies on the screen
_NEEDED_CODES = ("z_gaze", "gaze", "gaze_hat")
GAZE_HEAD = ("gaze1.weight", "gaze1.bias", "gaze2.weight", "gaze2.bias")
# Published names and widths (None: any) of the arrays of Supplementary, in its order.
_SUPPLEMENTARY = {"camera_parameters": 4, "distortion_parameters": None, "head_pose": 6, "3d_gaze_target": 3}


@dataclass(frozen=True, eq=False)
class PersonStrips:
    """The normalised strips of one person: pixels (N, H, W, 3) uint8 RGB, labels (N, 4) radians, N source names."""

    person_id: str
    split: str
    file_names: list[str]
    pixels: NDArray[np.uint8]
    labels: NDArray[np.float32]
    device: str = ""
    frame_index: NDArray[np.int64] | None = None  # (N,) positions in the person's annotation; None: 0 .. N - 1
    origin: NDArray[np.uint8] | None = None  # (N,) positions in ORIGINS; None: all `stored`
    validity: NDArray[np.uint8] | None = None  # (N,) positions in VALIDITIES; None: all `unknown_screen`


@dataclass(frozen=True, eq=False)
class Supplementary:
    """FAZE's own annotation of one person's N frames, in the camera frame and mm."""

    file_names: list[str]
    camera_parameters: NDArray  # (N, 4) fx fy cx cy, px
    distortion_parameters: NDArray  # (N, d), OpenCV's order
    head_pose: NDArray  # (N, 6) rotation vector (rad), translation (mm)
    gaze_target_mm: NDArray  # (N, 3)
    # Our addition, for annotation that `faze landmarks` makes:
    reasons: Sequence[str] = ()  # (N,) why an entry has no label (its numbers are NaN), "" where it has; (): all have
    origin: str = "supplementary"  # of the labels, one of ORIGINS


def write_strips(path: Path | str, dataset: str, persons: Iterable[PersonStrips]) -> None:
    """Write strips person by person as they come; the file appears when all are in, a ValueError if there is none."""
    with _whole_store(path, "strips", dataset) as file:
        for person in persons:
            count = len(person.pixels)
            assert count == len(person.labels) == len(person.file_names) > 0, person.person_id
            group = _new_group(file, person.person_id, person.split)
            # In one piece: training reads single strips in random order, 50 us each. With lzf it is 140 us in chunks of
            # one strip and 1300 us in chunks of 16, for 0 to 6 % fewer bytes of noisy images, 20 % of rendered ones.
            group.create_dataset("pixels", data=person.pixels)
            group.create_dataset("labels", data=person.labels.astype(np.float32))
            group.create_dataset("file_name", data=_encoded(person.file_names))


class _People:
    """People of a file and their splits."""

    def __init__(self, path: Path | str, default_split: str) -> None:
        self._path, self._default_split = Path(path), default_split
        self._splits: dict[str, str] = {}

    def _read_splits(self, file: h5py.File) -> None:
        for person, group in file.items():
            self._splits[person] = str(group.attrs.get("split", self._default_split))
            if self._splits[person] not in SPLITS:
                raise ValueError(f"{self._path}: split {self._splits[person]!r} of person {person} is not in {SPLITS}")

    def persons(self, split: str | None = None) -> list[str]:
        """People in the file, sorted; of one split, or all."""
        return [p for p, s in sorted(self._splits.items()) if split in (None, s)]

    def split(self, person: str) -> str:
        """The split of a person: train, val or test."""
        if person not in self._splits:
            raise ValueError(f"{self._path}: holds no person {person}")
        return self._splits[person]


class Strips(_People, contextlib.AbstractContextManager["Strips"]):
    """A file of strips, open for reading. Loader processes may inherit it (HDF5 reads by position) or unpickle it."""

    def __init__(self, path: Path | str, default_split: str = "train") -> None:
        """Open and check a file.

        Args:
            path: written by faze or by the released code.
            default_split: of the people in a file that states none.

        Raises:
            ValueError: the file is missing, torn or not of this layout; the sentence names file and person.
        """
        super().__init__(path, default_split)
        self._file = _open(self._path)
        self.dataset = _check_schema(self._file, self._path, "strips")
        self._read_splits(self._file)
        for person in self._file:
            _check_strips(_group(self._file, self._path, person, ("pixels", "labels")), self._path, person)

    def count(self, person: str) -> int:
        """Number of strips of a person."""
        return len(_group(self._file, self._path, person)["labels"])

    def pixels(self, person: str, index: int | slice | ArrayLike = slice(None)) -> NDArray[np.uint8]:
        """Strips as uint8 RGB.

        Args:
            person: whose.
            index: one position -> (H, W, 3); a slice or positions in any order, repeated or not -> (n, H, W, 3).
        """
        pixels = _group(self._file, self._path, person)["pixels"]
        if isinstance(index, slice):
            return pixels[index]
        wanted = np.arange(len(pixels))[index]  # negative positions, masks and range errors as in numpy
        if wanted.ndim == 0:
            return pixels[int(wanted)]
        strips = np.empty((len(wanted), *pixels.shape[1:]), np.uint8)
        for row, position in enumerate(wanted):  # h5py's own list selection is slower and needs sorted positions
            pixels.read_direct(strips, np.s_[int(position)], np.s_[row])
        return strips

    def labels(self, person: str) -> NDArray[np.float32]:
        """(N, 4): gaze pitch, yaw, head pitch, yaw in radians."""
        return _group(self._file, self._path, person)["labels"][:].astype(np.float32, copy=False)

    def file_names(self, person: str) -> list[str] | None:
        """Source frames relative to the raw folder; None where the file states none (the released code's)."""
        group = _group(self._file, self._path, person)
        return _decoded(group["file_name"]) if "file_name" in group else None

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def __reduce__(self) -> tuple[type["Strips"], tuple[Path, str]]:
        return Strips, (self._path, self._default_split)


def write_codes(
    path: Path | str,
    dataset: str,
    persons: Iterable[tuple[str, str, Mapping[str, NDArray]]],
    gaze_head: Mapping[str, NDArray] | None = None,
) -> None:
    """Write (person, split, arrays by name) as float32; the file appears when all are in, a ValueError if none is.

    Args:
        path: of the file.
        dataset: its name.
        persons: as they come.
        gaze_head: what made gaze_hat, the arrays GAZE_HEAD.
    """
    with _whole_store(path, "codes", dataset) as file:
        for name, array in (gaze_head or {}).items():
            file.attrs[name] = np.asarray(array, np.float32)
        for person, split, arrays in persons:
            assert len({len(array) for array in arrays.values()}) == 1, person
            group = _new_group(file, person, split)
            for name, array in arrays.items():
                group.create_dataset(name, data=np.asarray(array, np.float32))


class Codes(_People):
    """The codes in a file; codes[person] reads one person's arrays."""

    def __init__(self, path: Path, default_split: str) -> None:
        super().__init__(path, default_split)
        with _open(path) as file:
            self.dataset = _check_schema(file, path, "codes")
            # None: the released code's files, and those of people with no such network.
            has_head = all(name in file.attrs for name in GAZE_HEAD)
            self.gaze_head = {name: file.attrs[name][:] for name in GAZE_HEAD} if has_head else None
            self._read_splits(file)
            for person in file:
                _check_codes(_group(file, path, person, _NEEDED_CODES), path, person)

    @property
    def checkpoint(self) -> str:
        """Tells checkpoints apart: a hash of the trained gaze head; empty where the file holds none."""
        layers = (self.gaze_head or {}).values()
        return hashlib.sha256(b"".join(layer.tobytes() for layer in layers)).hexdigest()[:16] if layers else ""

    def __getitem__(self, person: str) -> dict[str, NDArray]:
        with _open(self._path) as file:
            return {name: array[:] for name, array in _group(file, self._path, person).items()}


def read_codes(path: Path | str, default_split: str = "train") -> Codes:
    """Open a file of codes, ours or the released code's, as `Strips` does; a ValueError names file and person."""
    return Codes(Path(path), default_split)


def write_supplementary(path: Path | str, persons: Iterable[tuple[str, Supplementary]]) -> None:
    """Write FAZE's annotation in its published layout, person by person as they come."""
    with whole_file(path) as temporary, h5py.File(temporary, "w") as file:
        for person, entries in persons:
            group = _new_truth(file, person, _published(entries))
            if entries.origin != "supplementary":
                group.attrs["origin"] = entries.origin


def _published(entries: Supplementary) -> dict[str, NDArray]:
    arrays = (entries.camera_parameters, entries.distortion_parameters, entries.head_pose, entries.gaze_target_mm)
    reasons = {"reason": _encoded(entries.reasons)} if any(entries.reasons) else {}
    return {"file_name": _encoded(entries.file_names), **dict(zip(_SUPPLEMENTARY, arrays, strict=True)), **reasons}


def supplementary_persons(path: Path | str) -> dict[str, int]:
    """People in a supplementary file, sorted, each with its number of entries; 1 for one who has no list of them."""
    with _open(path) as file:
        return {p: _count_entries(file[p]) for p in sorted(file)}


def _count_entries(group: h5py.Group | h5py.Dataset) -> int:
    names = group.get("file_name") if isinstance(group, h5py.Group) else None
    return len(names) if isinstance(names, h5py.Dataset) and names.ndim == 1 else 1


def read_supplementary(path: Path | str, person: str) -> Supplementary:
    """Read one person's annotation.

    Raises:
        ValueError: the file is missing or torn, or the person or one of its datasets is, or their shapes disagree.
    """
    with _open(path) as file:
        group = _group(file, path, person, ("file_name", *_SUPPLEMENTARY))
        try:
            file_names = _decoded(group["file_name"])
            arrays = {name: group[name][()].astype(np.float64) for name in _SUPPLEMENTARY}
            reasons = _decoded(group["reason"]) if "reason" in group else []
            origin = str(group.attrs.get("origin", "supplementary"))
        except (OSError, TypeError, AttributeError, ValueError) as error:
            raise ValueError(f"{path}: the annotation of person {person} cannot be read ({error})") from None
    for name, width in _SUPPLEMENTARY.items():
        shape = arrays[name].shape
        if shape != (wanted := (len(file_names), width or (shape or (0,))[-1])):
            raise ValueError(f"{path}: {name} of person {person} has shape {shape}, not {wanted}")
    if len(reasons) not in (0, len(file_names)) or origin not in ORIGINS:
        raise ValueError(f"{path}: reason or origin of person {person} is not as `faze landmarks` writes them")
    return Supplementary(file_names, *arrays.values(), reasons=reasons, origin=origin)


def write_truth(path: Path | str, persons: Iterable[tuple[str, Mapping[str, ArrayLike]]]) -> None:
    """Write arrays by person and name."""
    with whole_file(path) as temporary, h5py.File(temporary, "w") as file:
        for person, arrays in persons:
            _new_truth(file, person, arrays)


def _new_truth(file: h5py.File, person: str, arrays: Mapping[str, ArrayLike]) -> h5py.Group:
    group = file.create_group(person)
    for name, array in arrays.items():
        group.create_dataset(name, data=np.asarray(array))
    return group


def read_truth(path: Path | str) -> dict[str, dict[str, NDArray]]:
    """All arrays by person and name."""
    with _open(path) as file:
        return {p: {name: array[()] for name, array in file[p].items()} for p in sorted(file)}


@contextlib.contextmanager
def _whole_store(path: Path | str, schema: str, dataset: str) -> Iterator[h5py.File]:
    with whole_file(path) as temporary, h5py.File(temporary, "w") as file:
        file.attrs["schema"], file.attrs["dataset"] = schema, dataset
        yield file
        if not len(file):
            raise ValueError(f"{path}: not written, since there is nothing to write for any person")


def _new_group(file: h5py.File, person: str, split: str) -> h5py.Group:
    assert split in SPLITS, split
    group = file.create_group(person)
    group.attrs["split"] = split
    return group


def _open(path: Path | str) -> h5py.File:
    try:
        return h5py.File(path, "r")
    except FileNotFoundError:
        raise ValueError(f"{path}: no such file") from None
    except OSError as error:
        raise ValueError(f"{path}: not a readable HDF5 file, write or fetch it again ({error})") from None


def _group(file: h5py.File, path: Path | str, person: str, needed: Iterable[str] = ()) -> h5py.Group:
    if person not in file:
        raise ValueError(f"{path}: holds no person {person}")
    group = file[person]
    for name in needed:
        if not isinstance(group, h5py.Group) or name not in group:
            raise ValueError(f"{path}: person {person} has no {name}")
    return group


def _check_schema(file: h5py.File, path: Path, schema: str) -> str:
    """Name of the data set; files without attributes are the released code's."""
    found = file.attrs.get("schema", schema)
    if found != schema:
        raise ValueError(f"{path}: holds {found}, not {schema}")
    return str(file.attrs.get("dataset", path.stem))


def _check_strips(group: h5py.Group, path: Path, person: str) -> None:
    pixels, labels = group["pixels"], group["labels"]
    if pixels.ndim != 4 or pixels.shape[3] != 3 or pixels.dtype != np.uint8:
        raise ValueError(f"{path}: pixels of person {person} are {pixels.dtype} {pixels.shape}, not uint8 (N, H, W, 3)")
    if labels.shape != (len(pixels), 4):
        raise ValueError(f"{path}: labels of person {person} have shape {labels.shape}, not ({len(pixels)}, 4)")


def _check_codes(group: h5py.Group, path: Path, person: str) -> None:
    counts = {name: len(array) for name, array in group.items()}
    if len(set(counts.values())) != 1:
        raise ValueError(f"{path}: the codes of person {person} differ in number: {counts}")


def _encoded(names: Iterable[str]) -> NDArray[np.bytes_]:
    return np.array([name.encode(errors="surrogateescape") for name in names])  # as os.fsencode has it


def _decoded(names: h5py.Dataset) -> list[str]:
    return [name.decode(errors="surrogateescape") if isinstance(name, bytes) else str(name) for name in names[:]]
