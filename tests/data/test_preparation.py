"""Shards of a synthetic data set: made in any order by any process, and joined as if the set had never been split."""

import dataclasses
import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import raw_data

from faze.config.parameters import DataSet
from faze.data.preparation import work
from faze.data.preparation.shards import ENTRIES, ShardFolder, join_shards
from faze.data.preparation.splits import Splits
from faze.data.readers import Frame, Reject
from faze.data.store.layout import LABEL_SOURCES
from faze.data.store.strips import VALIDITIES, StripStore, write_strips

SIZE = (8, 32, 3)
STATED = Splits(all_test=False, listed={})
COUNTS = {"p00": 600, "p01": 0, "p/../é": 257}  # more than two shards, none, and a name that is no file's


class Camera:
    """The constants that a maker's camera provides."""

    height_px, width_px = SIZE[:2]


@dataclasses.dataclass
class Maker:
    """Make strips that contain the frame's position; every seventh frame yields none."""

    camera = Camera()
    calls: list[int] = dataclasses.field(default_factory=list)

    def make(self, frames: list[Frame], pixels: np.ndarray, labels: np.ndarray) -> list[str]:
        self.calls.append(len(frames))
        for row, frame in enumerate(frames):
            pixels[row], labels[row] = frame.frame_index % 251, frame.frame_index / 1000
        return ["blurred" if frame.frame_index % 7 == 3 else "" for frame in frames]


@dataclasses.dataclass
class Made:
    """A reader that rejects every tenth entry, and counts calls and entries."""

    asked: list[str] = dataclasses.field(default_factory=list)
    read: int = 0

    def persons(self) -> list[str]:
        return list(COUNTS)

    def folder(self, person: str) -> Path:
        return Path("/nowhere") / person

    def count(self, person: str) -> int:
        return COUNTS[person]

    def entries(self, person: str) -> Iterator[Frame | Reject]:
        self.asked.append(person)
        zero = np.zeros(3)
        for i in range(COUNTS[person]):
            self.read += 1
            name = f"{person}/{i}"
            if i % 10 == 5:
                yield Reject(person, name, "no face")
                continue
            screen, origin = (True, False, None)[i % 3], LABEL_SOURCES[i % 4]
            place = {"frame_index": i, "on_screen": screen, "label_source": origin, "device": "iPad"}
            yield Frame(person, Path(name), name, np.eye(3), zero, zero, zero, zero, np.zeros((2, 3)), "val", **place)


@pytest.fixture
def folder(tmp_path: Path) -> ShardFolder:
    folder = ShardFolder(tmp_path / "out" / "strips.h5", "key", SIZE)
    folder.begin([])
    return folder


def wanted(person: str) -> tuple[list[int], list[tuple[str, str]]]:
    """Return the positions of good entries, and the bad entries with their reasons, by the rules above."""
    reasons = {i: "no face" if i % 10 == 5 else "blurred" if i % 7 == 3 else "" for i in range(COUNTS[person])}
    bad = [(f"{person}/{i}", reason) for i, reason in reasons.items() if reason]
    return [i for i, reason in reasons.items() if not reason], bad


def test_shards_in_any_order_come_together_in_the_annotations(folder: ShardFolder, tmp_path: Path) -> None:
    people = work.plan(Made())
    shards = [shard for shards in people.values() for shard in shards]
    assert [shard.stop - shard.start for shard in shards] == [256, 256, 88, 256, 1]
    makers = [work.Worker(Made(), Maker(), folder, STATED) for _ in range(2)]
    for place in (3, 1, 4, 0, 2):
        assert makers[place % 2].make(shards[place]) == shards[place].stop - shards[place].start
    assert folder.begin(shards) == {shard.name for shard in shards}
    assert {path.parent for path in folder.path.glob("**/*")} == {folder.path}
    prepared = list(join_shards(people, folder))
    assert prepared[1] == (None, [Reject("p01", "", "no annotated frame")])
    for person, (strips, rejects) in zip(COUNTS, prepared, strict=True):
        good, bad = wanted(person)
        if not good:
            continue
        assert [(reject.file_name, reject.reason) for reject in rejects] == bad
        assert (strips.person_id, strips.split, strips.device) == (person, "val", "iPad")
        assert strips.file_names == [f"{person}/{i}" for i in good]
        np.testing.assert_array_equal(strips.frame_index, good)
        np.testing.assert_allclose(strips.labels, np.repeat(np.array(good)[:, None] / 1000, 4, 1), rtol=1e-6)
        assert [LABEL_SOURCES[i] for i in strips.label_source] == [LABEL_SOURCES[i % 4] for i in good]
        assert [VALIDITIES[i] for i in strips.validity] == [VALIDITIES[i % 3] for i in good]
        pixels = np.concatenate(list(strips.pixels))
        np.testing.assert_array_equal(pixels, np.broadcast_to(np.array(good)[:, None, None, None] % 251, pixels.shape))


def test_a_process_goes_through_an_annotation_once_and_holds_a_shard_of_it(folder: ShardFolder, tmp_path: Path) -> None:
    """Other processes make the shards in between. Regression: each shard read the annotation again."""
    shards = [shard for shards in work.plan(Made()).values() for shard in shards]
    worker = work.Worker(Made(), Maker(), folder, STATED)
    for place in (0, 2, 3):
        worker.make(shards[place])
    assert worker.reader.asked == ["p00", "p/../é"]
    assert worker.reader.read == 600 + 256
    assert max(worker.maker.calls) <= ENTRIES
    worker.make(shards[1])  # back again, as after a shard that another process has given up
    assert worker.reader.asked == ["p00", "p/../é", "p00"]
    assert folder.load(shards[1]).file_names[0] == "p00/256"


def test_a_person_without_a_strip_in_some_blocks(folder: ShardFolder, tmp_path: Path, monkeypatch: object) -> None:
    people = work.plan(Made())
    worker = work.Worker(Made(), Maker(), folder, STATED)
    monkeypatch.setattr(Maker, "make", lambda _, frames, pixels, labels: ["dark"] * len(frames))
    worker.make(people["p00"][0])
    worker.make(people["p00"][2])
    monkeypatch.undo()
    worker.make(people["p00"][1])
    ((found, rejects),) = join_shards({"p00": people["p00"]}, folder)
    good, _ = wanted("p00")
    good = [i for i in good if 256 <= i < 512]
    assert found.file_names == [f"p00/{i}" for i in good]
    assert (found.split, len(rejects)) == ("val", 600 - len(good))
    write_strips(tmp_path / "strips.h5", "mpiigaze", [found])
    with StripStore(tmp_path / "strips.h5") as strips:
        assert strips.pixels("p00", 0)[0, 0, 0] == good[0] % 251


@pytest.mark.parametrize("edited", ["p00/day01/annotation.txt", "p00/Calibration/Camera.mat", "p00/day01/0007.jpg"])
def test_a_person_is_made_anew_when_one_of_its_files_changes(tmp_path: Path, edited: str) -> None:
    """Regression: only changes to entries directly in the person's folder were noticed."""
    for name in ("day01/annotation.txt", "Calibration/Camera.mat"):
        for person in ("p00", "p01"):
            raw_data.write_file(tmp_path / person / name, "a")
    reader = Made()
    reader.folder = lambda person: tmp_path / person
    reader.persons, reader.count = lambda: ["p00", "p01"], lambda person: 1
    before = {person: shard.stamp for person, (shard,) in work.plan(reader).items()}
    assert before == {person: shard.stamp for person, (shard,) in work.plan(reader).items()}
    raw_data.write_file(tmp_path / edited, "ab")
    after = {person: shard.stamp for person, (shard,) in work.plan(reader).items()}
    assert after["p00"] != before["p00"]
    assert after["p01"] == before["p01"]


@pytest.mark.parametrize(
    ("splits", "split"),
    [
        (STATED, "val"),
        (Splits(all_test=True, listed={}), "test"),
        (Splits(all_test=False, listed={"p00": "train"}), "train"),
        (Splits(all_test=False, listed={"p01": "train"}), "val"),
    ],
)
def test_a_list_and_test_override_the_split_that_the_data_state(
    folder: ShardFolder, splits: Splits, split: str
) -> None:
    people = work.plan(Made())
    for shard in people["p00"]:
        work.Worker(Made(), Maker(), folder, splits).make(shard)
    ((found, _),) = join_shards({"p00": people["p00"]}, folder)
    assert found.split == split


def test_a_person_whose_split_is_unknown_is_rejected(folder: ShardFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    """Frames that the reader itself rejects keep their reason."""
    monkeypatch.setattr(work, "check_entries", lambda entries, _: (_without_split(entry) for entry in entries))
    people = work.plan(Made())
    for shard in people["p00"]:
        work.Worker(Made(), Maker(), folder, Splits(all_test=False, listed={"p01": "train"})).make(shard)
    ((found, rejects),) = join_shards({"p00": people["p00"]}, folder)
    assert found is None and len(rejects) == COUNTS["p00"]
    reasons = {reject.file_name: reject.reason for reject in rejects}
    assert (reasons["p00/5"], reasons["p00/3"]) == ("no face", "not in the list of splits")


def _without_split(entry: Frame | Reject) -> Frame | Reject:
    return entry if isinstance(entry, Reject) else dataclasses.replace(entry, split="")


def test_shards_of_another_key_are_removed_and_those_of_this_kept(
    folder: ShardFolder, tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    people = work.plan(Made())
    first, second, _ = people["p00"]
    worker = work.Worker(Made(), Maker(), folder, STATED)
    for shard in (first, second, dataclasses.replace(first, stamp="older")):
        worker.make(shard)
    (folder.path / "p00.1.torn").write_bytes(b"x")
    assert folder.begin(people["p00"]) == {first.name, second.name}
    assert capsys.readouterr().err == ""
    assert len(list(folder.path.iterdir())) == 4
    other = ShardFolder(tmp_path / "out" / "strips.h5", "another", SIZE)
    finished = other.begin(people["p00"])
    assert "made from other data, settings or code" in capsys.readouterr().err
    assert (finished, folder.path.exists()) == (frozenset(), False)
    other.remove()
    assert list((tmp_path / "out").iterdir()) == []


def test_the_key_changes_with_entry_splits_settings_raw_folder_and_supplementary_file(tmp_path: Path) -> None:
    @dataclasses.dataclass
    class Settings:
        width_px: int = 256

    (tmp_path / "s.h5").write_bytes(b"one")
    entry = DataSet("mpiigaze", "mpiifacegaze", splits="test")
    arguments = (entry, STATED, Settings(), tmp_path, tmp_path / "s.h5")
    key = work.key_of(*arguments)
    assert key == work.key_of(*arguments)
    others = [(dataclasses.replace(entry, layout="gazecapture"), *arguments[1:])]
    others += [(entry, Splits(all_test=False, listed={"p00": "val"}), *arguments[2:])]
    others += [(*arguments[:2], Settings(128), *arguments[3:])]
    others += [(*arguments[:3], tmp_path / "x", arguments[4]), (*arguments[:4], None)]
    shutil.copy2(tmp_path / "s.h5", tmp_path / "copy.h5")  # with the time of the original
    others.append((*arguments[:4], tmp_path / "copy.h5"))
    keys = {key, *(work.key_of(*other) for other in others)}
    (tmp_path / "s.h5").write_bytes(b"another")
    assert len({*keys, work.key_of(*arguments)}) == 8
