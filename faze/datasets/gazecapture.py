"""Reader of GazeCapture: NNNNN/frames/*.jpg and parallel JSON arrays (DESIGN section 3).

GazeCapture annotates where the dot is on the screen, not the head: head pose, camera and 3-D target are FAZE's. Its own
files tell each recording's split and which frames its detectors failed on.
"""

import json
import re
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

from faze.datasets import Frame, Reject
from faze.datasets.supplementary import SupplementaryReader
from faze.store import SPLITS

_DETECTIONS = ("appleFace", "appleLeftEye", "appleRightEye", "faceGrid")


class GazeCapture:
    """Recordings under the raw folder or in the supplementary annotation; only those in both yield frames."""

    def __init__(self, raw: Path, supplementary: Path | None) -> None:
        """Check that the two belong together.

        Raises:
            ValueError: there is no annotation, or the folder holds none of its recordings.
        """
        if supplementary is None:
            raise ValueError(
                f"{raw}: raw GazeCapture has no head pose; give the FAZE supplementary HDF5 with it "
                "(preprocess.gazecapture_supplementary)"
            )
        self._raw = raw
        self._annotation = SupplementaryReader(raw, supplementary, split="train")
        self._annotated = frozenset(self._annotation.persons())

    def persons(self) -> list[str]:
        """Recordings, sorted."""
        folders = {folder.name for folder in self._raw.glob("*/") if re.fullmatch(r"\d{5}", folder.name)}
        return sorted(folders | self._annotated)

    def count(self, person: str) -> int:
        """Number of annotated frames, or 1 for a recording that is not whole."""
        return self._annotation.count(person) if person in self._annotated else 1

    def entries(self, person: str) -> Iterator[Frame | Reject]:
        """Records in the order of the annotation; see Reader. A recording with a broken JSON file is one Reject."""
        if person not in self._annotated:
            yield Reject(person, "", "not in the supplementary annotation")
            return
        if not (self._raw / person).is_dir():
            yield Reject(person, "", f"no folder {person}")
            return
        try:
            split, faults = _read_split(self._raw / person), _read_faults(self._raw / person)
        except ValueError as error:
            yield Reject(person, "", str(error))
            return
        for entry in self._annotation.entries_of_split(person, split):
            fault = faults.get(PurePosixPath(entry.file_name).name, "not listed in frames.json")
            yield Reject(person, entry.file_name, fault) if isinstance(entry, Frame) and fault else entry


def _read_split(folder: Path) -> str:
    info = _read_json(folder / "info.json", dict)
    split = info.get("Dataset")
    if split not in SPLITS:
        raise ValueError(f"info.json: Dataset is {split!r}, not one of {', '.join(SPLITS)}")
    return split


def _read_faults(folder: Path) -> dict[str, str]:
    """By frame name, what the data set itself says against the frame; '' = nothing."""
    names = _read_json(folder / "frames.json", list)
    invalid: list[list[str]] = [[] for _ in names]
    for detection in _DETECTIONS:
        if detection == "faceGrid" and not (folder / "faceGrid.json").exists():
            continue  # derived from appleFace
        flags = _read_json(folder / f"{detection}.json", dict).get("IsValid")
        if not isinstance(flags, list) or len(flags) != len(names):
            raise ValueError(f"{detection}.json: IsValid is not a list of {len(names)} flags, one per frame")
        for detections, flag in zip(invalid, flags, strict=True):
            detections += [] if flag else [detection]
    return {str(n): f"IsValid 0 in {', '.join(i)}" if i else "" for n, i in zip(names, invalid, strict=True)}


def _read_json(path: Path, kind: type) -> list | dict:
    try:
        content = json.loads(path.read_bytes())
    except OSError as error:
        raise ValueError(f"{path.name}: {error.strerror}") from None
    except ValueError:
        raise ValueError(f"{path.name}: not JSON") from None
    if not isinstance(content, kind):
        raise ValueError(f"{path.name}: not a JSON {kind.__name__}")
    return content
