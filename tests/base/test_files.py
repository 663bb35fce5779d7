"""Outputs are complete or absent."""

import os
from pathlib import Path

import pytest

from faze.base.errors import UserError
from faze.base.files import check_replaceable, read_json, whole_file, whole_folder, write_json


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_file_appears_at_the_end_with_its_suffix(tmp_path: Path) -> None:
    path = tmp_path / "new" / "a.csv"
    with whole_file(path) as temporary:
        assert temporary.suffix == ".csv"
        temporary.write_text("x")
        assert not path.exists()
    assert path.read_text() == "x"
    assert names(path.parent) == ["a.csv"]


@pytest.mark.parametrize(
    ("umask", "modes"), [(0o022, (0o644, 0o755)), (0o077, (0o600, 0o700)), (0o002, (0o664, 0o775))]
)
def test_outputs_have_the_permissions_that_the_umask_leaves(umask: int, modes: tuple, tmp_path: Path) -> None:
    """Regression: strips, which are personal data, were readable by everybody."""
    before = os.umask(umask)
    try:
        with whole_folder(tmp_path / "page") as folder, whole_file(tmp_path / "a.h5") as file:
            file.write_text("x")
            (folder / "index.html").touch()
    finally:
        os.umask(before)
    found = [(tmp_path / name).stat().st_mode & 0o777 for name in ("a.h5", "page/index.html", "page")]
    assert found == [modes[0], modes[0], modes[1]]


def test_failed_writer_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("old")
    with pytest.raises(OSError, match="disk full"), whole_file(path) as temporary:
        temporary.write_text("half")
        raise OSError("disk full")
    assert path.read_text() == "old"
    assert names(tmp_path) == ["a.csv"]


def test_folder_replaces_the_old_one_as_a_whole(tmp_path: Path) -> None:
    path = tmp_path / "walks"
    path.mkdir()
    (path / "stale.mp4").touch()
    with whole_folder(path) as temporary:
        (temporary / "new.mp4").touch()
        assert names(path) == ["stale.mp4"]
    assert names(path) == ["new.mp4"]
    assert names(tmp_path) == ["walks"]


def test_failed_folder_leaves_the_old_one(tmp_path: Path) -> None:
    path = tmp_path / "walks"
    path.mkdir()
    (path / "old.mp4").touch()
    with pytest.raises(ValueError, match="boom"), whole_folder(path) as temporary:
        (temporary / "new.mp4").touch()
        raise ValueError("boom")
    assert names(path) == ["old.mp4"]
    assert names(tmp_path) == ["walks"]


def test_a_folder_that_cannot_take_its_place_leaves_the_old_one(tmp_path: Path, monkeypatch) -> None:
    path, replace = tmp_path / "walks", Path.replace
    path.mkdir()
    (path / "old.mp4").touch()

    def not_the_new_one(source: Path, target: Path) -> Path:
        if target == path and (source / "new.mp4").exists():
            raise OSError("boom")
        return replace(source, target)

    monkeypatch.setattr(Path, "replace", not_the_new_one)
    with pytest.raises(OSError, match="boom"), whole_folder(path) as temporary:
        (temporary / "new.mp4").touch()
    assert names(path) == ["old.mp4"] and names(tmp_path) == ["walks"]


def test_an_output_takes_the_place_of_its_like_only(tmp_path: Path) -> None:
    """Regression: only the first of the required file names was checked."""
    check_replaceable(tmp_path / "absent", ["a", "b"])
    check_replaceable(tmp_path, ["a", "b"])
    (tmp_path / "a").touch()
    with pytest.raises(UserError, match="exists, but does not contain a and b"):
        check_replaceable(tmp_path, ["a", "b"])
    with pytest.raises(UserError, match="exists"):
        check_replaceable(tmp_path / "a", ["a"])
    (tmp_path / "b").touch()
    check_replaceable(tmp_path, ["a", "b"])


def test_the_folder_where_one_is_is_no_output(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Regression: in the folder of a finished page, `--out .` lost both the old and the new page."""
    (tmp_path / "page").mkdir()
    (tmp_path / "page" / "a").touch()
    monkeypatch.chdir(tmp_path / "page")
    for folder in (Path(), tmp_path, Path("..") / "page"):
        with pytest.raises(UserError, match="contains the current directory"):
            check_replaceable(folder, [])
    with whole_folder(Path()) as temporary:
        (temporary / "b").touch()
    assert names(tmp_path / "page") == ["b"] and names(tmp_path) == ["page"]


def test_json_that_was_changed_is_refused(tmp_path):
    """Regression: numbers changed by a flipped bit were not noticed."""
    path = tmp_path / "errors.json"
    write_json(path, {"errors": [{"gaze_deg": 3.25, 1: (1, 2)}], "none": None})
    assert read_json(path, ["errors"], "run it again") == {"errors": [{"gaze_deg": 3.25, "1": [1, 2]}], "none": None}
    path.write_text(path.read_text().replace("3.25", "3.27"))
    with pytest.raises(UserError, match="errors.json is corrupt .*run it again"):
        read_json(path, ["errors"], "run it again")
    path.write_text('{"errors": []}')  # as older versions wrote it
    assert read_json(path, ["errors"], "run it again") == {"errors": []}
