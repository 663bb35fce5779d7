"""Only the required data sets are rendered, with a mark by which preprocess recognises rendered people."""

import sys
from pathlib import Path

import pytest
from test_preprocess import write_config

from faze.__main__ import main
from faze.data.readers import RENDERED_MARK
from faze.data.store.strips import StripStore

PEOPLE = ("mpiigaze_people", "gazecapture_train_people", "gazecapture_val_people", "gazecapture_test_people")
SYNTHETIC = dict.fromkeys(PEOPLE, 1) | {"frames_per_person": 2, "gazecapture_train_frames": None}


def run(folder: Path, monkeypatch: pytest.MonkeyPatch, *layouts: str) -> int:
    folder.mkdir()
    config = write_config(folder, "synthesise", synthetic=SYNTHETIC)
    arguments = ["--config", config, "--threads", 1, "--truth", folder / "raw/truth.h5"]
    for layout in layouts:
        arguments += [f"--{layout}", folder / "raw" / layout, f"--{layout}-supplementary", folder / f"raw/{layout}.h5"]
    monkeypatch.setattr(sys, "argv", ["faze", "synthesise", *map(str, arguments)])
    return main()


@pytest.mark.parametrize("marked", [True, False])
def test_strips_know_whether_their_people_are_rendered(
    marked: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert run(tmp_path / "x", monkeypatch, "mpiifacegaze") == 0
    if not marked:  # as a data set of photographs
        (tmp_path / "x/raw/mpiifacegaze" / RENDERED_MARK).unlink()
    for layout, raw, out in (("mpiifacegaze", "x/raw/mpiifacegaze", "first.h5"), ("strips", "first.h5", "copied.h5")):
        config = write_config(tmp_path, "preprocess", "mpiigaze", {"layout": layout, "path": str(tmp_path)})
        arguments = ["--config", config, "--raw", tmp_path / raw]
        arguments += ["--out", tmp_path / out, "--rejects", tmp_path / "rejects.csv"]
        monkeypatch.setattr(sys, "argv", ["faze", "preprocess", *map(str, arguments)])
        assert main() == 0
        with StripStore(tmp_path / out) as strips:
            assert strips.pixel_source == ("rendered by faze" if marked else "MPIIFaceGaze")
