"""The stage: from raw folders to strips, equal for any number of processes; bad frames and files are reported."""

import csv
import json
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import cv2
import numpy as np
import pytest
import raw_data
from data_sets import entries
from one_frame import normalize_pose, warp_fused
from truth import read_truth

from faze.base.geometry import angular_error, vector_from_pitchyaw
from faze.config.parameters import NormalizedCamera
from faze.config.stage_config import resolve, to_lines
from faze.config.yaml_files import merge, read_yaml
from faze.data.normalization.pose import INNER_EYE_CORNERS_6_MM
from faze.data.normalization.warp import warp_two_step
from faze.data.store.strips import StripStore
from faze.stages import preprocess, synthesise

ROOT = Path(__file__).resolve().parents[2]
CAMERA = NormalizedCamera(1300, 600, 256, 64)


def write_config(
    folder: Path, stage: str, dataset: str | None = None, entry: Mapping[str, str] | None = None, **changes: dict
) -> Path:
    """Write the resolved config of a stage; `entry` contains changed values of the data set's entry."""
    config = merge(read_yaml(ROOT / "config" / "config.yaml"), changes)
    config["preprocess"]["datasets"] = entries(**{dataset or "": entry or {}})
    path = folder / f"{stage}.config.yaml"
    path.write_text("\n".join(to_lines(resolve(config, stage, dataset=dataset))))
    return path


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., int]:
    """Return a function that runs the stage on tmp_path/raw and returns the exit code."""

    def run(dataset: str, threads: int = 1, entry: Mapping[str, str] | None = None, **changes: str) -> int:
        resolved = write_config(tmp_path, "preprocess", dataset, entry, preprocess=changes)
        arguments = ["--raw", tmp_path / "raw", "--threads", threads]
        if dataset == "gazecapture":
            arguments += ["--supplementary", tmp_path / "supplementary.h5"]
        arguments += ["--out", tmp_path / "strips.h5", "--rejects", tmp_path / "rejects.csv"]
        monkeypatch.setattr(sys, "argv", list(map(str, ["preprocess", "--config", resolved, *arguments])))
        return preprocess.main()

    return run


def read_rejects(folder: Path) -> list[dict[str, str]]:
    with (folder / "rejects.csv").open(newline="") as file:
        return list(csv.DictReader(file))


@pytest.mark.parametrize("compatibility", ["none", "two_step"])
def test_mpiifacegaze_becomes_strips(tmp_path: Path, run: Callable, compatibility: str) -> None:
    raw_data.write_mpiifacegaze(tmp_path / "raw")
    assert run("mpiigaze", compatibility=compatibility) == 0
    assert read_rejects(tmp_path) == []
    pose = normalize_pose(raw_data.ROTATION_VECTOR, raw_data.TRANSLATION_MM, INNER_EYE_CORNERS_6_MM, raw_data.TARGET_MM)
    camera = (raw_data.CAMERA_MATRIX, raw_data.DISTORTION, pose, CAMERA)
    with StripStore(tmp_path / "strips.h5") as strips:
        assert (strips.dataset, strips.persons("test")) == ("mpiigaze", ["p00", "p01"])
        assert strips.file_names("p01") == [f"p01/day01/000{i}.jpg" for i in range(3)]
        np.testing.assert_allclose(strips.labels("p01"), np.tile(pose.labels, (3, 1)), atol=1e-6)
        for i in range(3):
            frame = cv2.imread(str(tmp_path / "raw" / strips.file_names("p01")[i]))
            two_step = warp_two_step(frame, *camera, undistorted="recentred")
            wanted = warp_fused(frame, *camera) if compatibility == "none" else two_step
            np.testing.assert_array_equal(strips.pixels("p01", i), wanted)


def test_gazecapture_becomes_strips_by_split(tmp_path: Path, run: Callable) -> None:
    raw_data.write_gazecapture(tmp_path / "raw", tmp_path / "supplementary.h5", splits=("train", "val", "test"))
    assert run("gazecapture", threads=2) == 0
    with StripStore(tmp_path / "strips.h5") as strips:
        splits = {split: strips.persons(split) for split in ("train", "val", "test")}
        assert splits == {"train": ["00002"], "val": ["00003"], "test": ["00004"]}
        assert [strips.count(person) for person in strips.persons()] == [3, 3, 3]
        for person in strips.persons():
            assert strips.file_names(person) == [f"{person}/frames/0000{i}.jpg" for i in range(3)]
            assert set(strips.label_sources(person)) == {"supplementary"}


def splits_of(folder: Path) -> dict[str, str]:
    with StripStore(folder / "strips.h5") as strips:
        return {person: strips.split(person) for person in strips.persons()}


def test_mpiifacegaze_with_a_list_of_splits(tmp_path: Path, run: Callable) -> None:
    """The data set states no splits, so a person who is not listed is left out, with each frame."""
    raw_data.write_mpiifacegaze(tmp_path / "raw", people=3, frames=2)
    (tmp_path / "splits.json").write_text('{"train": ["p02"], "val": ["p00"]}')
    assert run("mpiigaze", entry={"splits": str(tmp_path / "splits.json")}) == 0
    assert splits_of(tmp_path) == {"p00": "val", "p02": "train"}
    told = {(reject["person"], reject["file_name"]): reject["reason"] for reject in read_rejects(tmp_path)}
    assert told == {("p01", f"p01/day01/000{i}.jpg"): "not in the list of splits" for i in range(2)}


@pytest.mark.parametrize(
    ("listed", "splits"),
    [
        (None, ["test", "test", "test"]),
        ({"test": ["00002"], "train": ["00003"]}, ["test", "train", "test"]),  # 00004 states test
        ({"val": ["00004"]}, ["train", "val", "val"]),
    ],
)
def test_splits_of_gazecapture_can_be_changed(
    tmp_path: Path, run: Callable, listed: dict[str, list[str]] | None, splits: list[str]
) -> None:
    raw_data.write_gazecapture(tmp_path / "raw", tmp_path / "supplementary.h5", splits=("train", "val", "test"))
    path = tmp_path / "splits.json"
    path.write_text(json.dumps(listed))
    assert run("gazecapture", entry={"splits": str(path) if listed else "test"}) == 0
    assert splits_of(tmp_path) == dict(zip(("00002", "00003", "00004"), splits, strict=True))
    assert read_rejects(tmp_path) == []


def test_another_list_of_splits_is_not_that_of_an_interrupted_run(
    tmp_path: Path, run: Callable, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Shards of the first run have the splits of its list, in a file of the same name."""
    raw_data.write_mpiifacegaze(tmp_path / "raw")
    path = tmp_path / "splits.json"
    path.write_text('{"train": ["p00"], "test": ["p01"]}')

    def fail(*_: object) -> None:
        raise OSError("no space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(preprocess, "join_shards", fail)
        assert run("mpiigaze", entry={"splits": str(path)}) == 1
    path.write_text('{"train": ["p01"], "test": ["p00"]}')
    assert run("mpiigaze", entry={"splits": str(path)}) == 0
    assert splits_of(tmp_path) == {"p00": "test", "p01": "train"}


@pytest.mark.parametrize("layout", ["mpiifacegaze", "mpiigaze", "gazecapture", "strips"])
def test_a_layout_of_the_other_kind_is_one_sentence(
    tmp_path: Path, run: Callable, capsys: pytest.CaptureFixture, layout: str
) -> None:
    raw = tmp_path / "raw"
    raw.mkdir() if layout == "strips" else raw.touch()
    assert run("mpiigaze", entry={"layout": layout}) == 1
    kind = "folder" if layout == "strips" else "file"
    (line,) = capsys.readouterr().err.splitlines()
    assert line == f"preprocess: {raw}: is a {kind}, but the layout {layout} is not: correct one of them"


def test_any_number_of_processes_writes_the_same_bytes(tmp_path: Path, run: Callable) -> None:
    raw_data.write_mpiifacegaze(tmp_path / "raw", people=4, frames=2)
    (tmp_path / "raw" / "p02" / "day01" / "0001.jpg").unlink()
    written = []
    for threads in (1, 3):
        assert run("mpiigaze", threads=threads) == 0
        written.append([(tmp_path / name).read_bytes() for name in ("strips.h5", "rejects.csv")])
    assert written[0] == written[1]


def test_bad_frames_are_skipped_and_listed(tmp_path: Path, run: Callable) -> None:
    raw_data.write_mpiifacegaze(tmp_path / "raw", people=3, frames=5)
    day = tmp_path / "raw" / "p01" / "day01"
    whole = (day / "0000.jpg").read_bytes()
    (day / "0000.jpg").write_bytes(whole[: len(whole) // 2])
    (day / "0001.jpg").write_bytes(b"")
    (day / "0002.jpg").unlink()
    with (tmp_path / "raw" / "p01" / "p01.txt").open("a") as file:
        file.write(raw_data.mpiifacegaze_line("day01/0005.jpg", rotation_vector=np.full(3, np.nan)) + "\n")
        file.write(raw_data.mpiifacegaze_line("day01/0006.jpg", target_mm=np.zeros(3)) + "\n")
        file.write(raw_data.mpiifacegaze_line("../../x.jpg") + "\n")
    (tmp_path / "raw" / "p02" / "p02.txt").write_text("")
    assert run("mpiigaze", threads=2) == 0
    assert [(r["person"], r["file_name"], r["reason"]) for r in read_rejects(tmp_path)] == [
        ("p01", "p01/day01/0000.jpg", "truncated JPEG"),
        ("p01", "p01/day01/0001.jpg", "empty file"),
        ("p01", "p01/day01/0002.jpg", "cannot read the file: No such file or directory"),
        ("p01", "p01/day01/0005.jpg", "head pose is not finite"),
        ("p01", "p01/day01/0006.jpg", "gaze target is (0, 0, 0), which marks a missing one"),
        ("p01", "p01/../../x.jpg", "path leads out of the data folder"),
        ("p02", "", "no annotated frame"),
    ]
    with StripStore(tmp_path / "strips.h5") as strips:
        assert strips.persons() == ["p00", "p01"]
        assert strips.file_names("p01") == ["p01/day01/0003.jpg", "p01/day01/0004.jpg"]
        assert strips.frame_index("p01").tolist() == [3, 4]
        pose = normalize_pose(
            raw_data.ROTATION_VECTOR, raw_data.TRANSLATION_MM, INNER_EYE_CORNERS_6_MM, raw_data.TARGET_MM
        )
        for row, name in enumerate(("0003.jpg", "0004.jpg")):
            wanted = warp_fused(cv2.imread(str(day / name)), raw_data.CAMERA_MATRIX, raw_data.DISTORTION, pose, CAMERA)
            np.testing.assert_array_equal(strips.pixels("p01", row), wanted)


def test_nothing_usable_is_an_error_with_the_reasons_and_leaves_no_file(
    tmp_path: Path, run: Callable, capsys: pytest.CaptureFixture
) -> None:
    raw_data.write_mpiifacegaze(tmp_path / "raw", people=2, frames=2)
    for frame in (tmp_path / "raw").glob("*/*/*.jpg"):
        frame.write_bytes(b"")
    assert run("mpiigaze") == 1
    assert "no frame is usable: empty file (4 times)" in capsys.readouterr().err
    assert not [path for path in tmp_path.iterdir() if path.suffix in (".h5", ".csv")]


def test_a_person_with_a_wrong_annotation_is_listed_and_the_others_go_on(tmp_path: Path, run: Callable) -> None:
    raw_data.write_mpiifacegaze(tmp_path / "raw")
    with (tmp_path / "raw" / "p01" / "p01.txt").open("a") as file:
        file.write("day01/0000.jpg 1 2 3\n")
    assert run("mpiigaze") == 0
    (reject,) = read_rejects(tmp_path)
    assert (reject["person"], reject["file_name"]) == ("p01", "")
    assert reject["reason"].endswith("p01.txt:4: 4 columns, not the 28 of MPIIFaceGaze")
    with StripStore(tmp_path / "strips.h5") as strips:
        assert strips.persons() == ["p00"]


def test_everybody_s_annotation_being_wrong_is_an_error(
    tmp_path: Path, run: Callable, capsys: pytest.CaptureFixture
) -> None:
    raw_data.write_mpiifacegaze(tmp_path / "raw", people=2)
    for camera in (tmp_path / "raw").glob("*/Calibration/Camera.mat"):
        camera.write_bytes(b"torn")
    assert run("mpiigaze") == 1
    assert "no frame is usable" in (sentence := capsys.readouterr().err.splitlines()[-1])
    assert "p00/Calibration/Camera.mat" in sentence
    assert not (tmp_path / "strips.h5").exists()


def test_synthetic_people_without_bias_get_their_true_labels(
    tmp_path: Path, run: Callable, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The generator and preprocess agree on everything from the frames' annotation to the labels."""
    people = ("mpiigaze_people", "gazecapture_train_people", "gazecapture_val_people", "gazecapture_test_people")
    config = write_config(
        tmp_path,
        "synthesise",
        synthetic={"people": "simple", "bias_deg": 0.0, "frames_per_person": 2} | dict.fromkeys(people, 1),
    )
    arguments = ["synthesise", "--config", config, "--threads", 1, "--truth", tmp_path / "truth.h5"]
    for dataset in ("mpiifacegaze", "gazecapture"):
        arguments += [f"--{dataset}", tmp_path / dataset]
        arguments += [f"--{dataset}-supplementary", tmp_path / f"{dataset}_supplementary.h5"]
    monkeypatch.setattr(sys, "argv", list(map(str, arguments)))
    assert synthesise.main() == 0
    truth = read_truth(tmp_path / "truth.h5")
    for dataset, raw in (("mpiigaze", "mpiifacegaze"), ("gazecapture", "gazecapture")):
        (tmp_path / raw).rename(tmp_path / "raw")
        (tmp_path / f"{raw}_supplementary.h5").rename(tmp_path / "supplementary.h5")
        assert run(dataset) == 0
        assert read_rejects(tmp_path) == []
        with StripStore(tmp_path / "strips.h5") as strips:
            for person in strips.persons():
                assert strips.file_names(person) == [name.decode() for name in truth[person]["file_name"]]
                found, true = strips.labels(person).astype(float), truth[person]["labels"]
                for part in (slice(0, 2), slice(2, 4)):
                    error = angular_error(vector_from_pitchyaw(found[:, part]), vector_from_pitchyaw(true[:, part]))
                    assert np.degrees(error).max() < 0.001
        (tmp_path / "raw").rename(tmp_path / f"done_{raw}")


def test_wrong_arguments_are_named(tmp_path: Path, run: Callable, capsys: pytest.CaptureFixture) -> None:
    assert run("mpiigaze") == 1
    assert f"{tmp_path / 'raw'}: no such folder" in capsys.readouterr().err


def test_the_command_stands_alone(tmp_path: Path) -> None:
    """The command is a separate process, whose pool must find the stage's functions under another module name."""
    raw_data.write_gazecapture(tmp_path / "raw", tmp_path / "supplementary.h5")
    write_config(tmp_path, "preprocess", "gazecapture")
    command = [sys.executable, "-m", "faze", "preprocess", "--config", "preprocess.config.yaml"]
    command += ["--raw", "raw", "--supplementary", "supplementary.h5", "--threads", "2"]
    command += ["--out", "data/gazecapture.h5", "--rejects", "data/gazecapture_rejects.csv"]
    done = subprocess.run(
        command, cwd=tmp_path, env={"PYTHONPATH": str(ROOT)}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "6 strips of 2 people; 0 rejects" in done.stdout
    (progress,) = done.stderr.splitlines()  # and no warning
    assert progress.startswith("preprocess: 6/6 frames")
    assert (tmp_path / "data" / "gazecapture_rejects.csv").read_text() == "person,file_name,reason\n"


def test_a_second_run_makes_only_what_the_first_has_not_finished(
    tmp_path: Path, run: Callable, capsys: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Finished shards are reused unless settings, code, annotation or frames differ."""
    raw_data.write_mpiifacegaze(tmp_path / "raw")
    asked = []

    def make_and_stop(shards: list, *arguments: object) -> None:
        asked.append([shard.person_id for shard in shards])
        make_shards(shards, *arguments)
        raise OSError("the lights went out")

    make_shards = preprocess.make_shards
    monkeypatch.setattr(preprocess, "make_shards", make_and_stop)
    assert [run("mpiigaze"), run("mpiigaze")] == [1, 1]
    assert asked == [["p00", "p01"], []]
    assert "6 of 6 frames were processed in an earlier run" in capsys.readouterr().err
    annotation = tmp_path / "raw" / "p01" / "p01.txt"
    annotation.write_text("".join(reversed(annotation.read_text().splitlines(keepends=True))))
    assert run("mpiigaze") == 1
    assert asked[2:] == [["p01"]]
    assert run("mpiigaze", compatibility="two_step") == 1
    assert "made from other data, settings or code" in capsys.readouterr().err
    assert asked[3:] == [["p00", "p01"]]
    assert not (tmp_path / "strips.h5").exists()
    monkeypatch.setattr(preprocess, "make_shards", make_shards)
    assert run("mpiigaze", compatibility="two_step") == 0
    assert {path.name for path in tmp_path.iterdir() if path.is_dir()} == {"raw"}
    with StripStore(tmp_path / "strips.h5") as strips:
        assert strips.file_names("p01")[-1] == "p01/day01/0000.jpg"


def test_damaged_shards_are_named_and_made_again(
    tmp_path: Path, run: Callable, capsys: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The files are as a power failure leaves them: renamed, but never written."""
    raw_data.write_mpiifacegaze(tmp_path / "raw", people=3)
    assert run("mpiigaze") == 0
    wanted = (tmp_path / "strips.h5").read_bytes()
    for suffix in (".strips", ".npz"):
        with monkeypatch.context() as patch:
            patch.setattr(preprocess, "join_shards", None)
            with pytest.raises(TypeError):
                run("mpiigaze")
        for person in ("p00", "p02"):
            (shard,) = (tmp_path / ".work.strips.h5").glob(f"*/p-{person}*{suffix}")
            shard.write_bytes(b"\0" * shard.stat().st_size)
        (tmp_path / "strips.h5").unlink()
        assert run("mpiigaze") == 1
        assert "shard of an earlier run is damaged" in capsys.readouterr().err
        assert not (tmp_path / "strips.h5").exists()
        assert [path.name[:5] for path in (tmp_path / ".work.strips.h5").glob("*/*.npz")] == ["p-p01"]
        assert run("mpiigaze") == 0
        assert (tmp_path / "strips.h5").read_bytes() == wanted
