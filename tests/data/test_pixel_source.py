"""Only the required data sets are rendered, with a mark by which preprocess recognises rendered people."""

import sys
from argparse import Namespace
from pathlib import Path

import numpy as np
import pytest
from test_preprocess import write_config
from truth import read_truth

from faze.data.readers import RENDERED_MARK
from faze.data.store.strips import StripStore
from faze.data.store.supplementary import read_supplementary, supplementary_persons
from faze.stages import preprocess, synthesise

PEOPLE = ("mpiigaze_people", "gazecapture_train_people", "gazecapture_val_people", "gazecapture_test_people")
SYNTHETIC = dict.fromkeys(PEOPLE, 1) | {"frames_per_person": 2, "gazecapture_train_frames": None}


def run(folder: Path, monkeypatch: pytest.MonkeyPatch, *layouts: str) -> int:
    folder.mkdir()
    config = write_config(folder, "synthesise", synthetic=SYNTHETIC)
    arguments = ["--config", config, "--threads", 1, "--truth", folder / "raw/truth.h5"]
    for layout in layouts:
        arguments += [f"--{layout}", folder / "raw" / layout, f"--{layout}-supplementary", folder / f"raw/{layout}.h5"]
    monkeypatch.setattr(sys, "argv", ["synthesise", *map(str, arguments)])
    return synthesise.main()


@pytest.mark.parametrize(
    ("layout", "people"), [("mpiifacegaze", ["p00"]), ("gazecapture", ["00001", "60001", "80001"])]
)
def test_one_data_set_is_rendered_as_with_the_other(
    layout: str, people: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Regression: both were rendered although the user has one of them."""
    assert run(tmp_path / "one", monkeypatch, layout) == 0
    assert run(tmp_path / "both", monkeypatch, "mpiifacegaze", "gazecapture") == 0
    found = {path.name for path in (tmp_path / "one/raw").iterdir() if not path.name.endswith(".lock")}
    assert found == {layout, f"{layout}.h5", "truth.h5"}
    assert sorted(read_truth(tmp_path / "one/raw/truth.h5")) == people
    files = [path.relative_to(tmp_path / "one") for path in (tmp_path / "one/raw" / layout).rglob("*.*")]
    assert len([file for file in files if file.suffix == ".jpg"]) == 2 * len(people)
    assert all((tmp_path / "one" / file).read_bytes() == (tmp_path / "both" / file).read_bytes() for file in files)
    annotations = [tmp_path / name / f"raw/{layout}.h5" for name in ("one", "both")]
    for person in people:
        one, both = (read_supplementary(annotation, person) for annotation in annotations)
        for array in ("camera_parameters", "distortion_parameters", "head_pose", "gaze_target_mm"):
            np.testing.assert_array_equal(getattr(one, array), getattr(both, array))
    assert [supplementary_persons(annotation) for annotation in annotations] == [dict.fromkeys(people, 2)] * 2


@pytest.mark.parametrize(
    "arguments",
    [
        {},
        {"mpiifacegaze": Path("raw")},
        {"gazecapture_supplementary": Path("x.h5")},
        {"mpiifacegaze": Path("raw"), "gazecapture_supplementary": Path("x.h5")},
    ],
)
def test_outputs_that_do_not_fit_together_are_refused(arguments: dict[str, Path]) -> None:
    keys = [f"{layout}{end}" for layout in ("mpiifacegaze", "gazecapture") for end in ("", "_supplementary")]
    with pytest.raises(ValueError, match="--mpiifacegaze.*--gazecapture"):
        synthesise.choose_outputs(Namespace(**dict.fromkeys(keys) | arguments))


@pytest.mark.parametrize("marked", [True, False])
def test_strips_know_whether_their_people_are_rendered(
    marked: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert run(tmp_path / "x", monkeypatch, "mpiifacegaze") == 0
    if not marked:  # as a data set of photographs
        (tmp_path / "x/raw/mpiifacegaze" / RENDERED_MARK).unlink()
    for layout, raw, out in (("mpiifacegaze", "x/raw/mpiifacegaze", "first.h5"), ("strips", "first.h5", "copied.h5")):
        config = write_config(tmp_path, "preprocess", "mpiigaze", {"layout": layout})
        arguments = ["--config", config, "--raw", tmp_path / raw]
        arguments += ["--out", tmp_path / out, "--rejects", tmp_path / "rejects.csv"]
        monkeypatch.setattr(sys, "argv", ["preprocess", *map(str, arguments)])
        assert preprocess.main() == 0
        with StripStore(tmp_path / out) as strips:
            assert strips.pixel_source == ("rendered by faze" if marked else "MPIIFaceGaze")
