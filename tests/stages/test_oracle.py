"""Target strips of rendered people equal the stored ones if nothing is exchanged; otherwise they have b's labels.

Checked by breaking the code: lids from b, noise from b, labels from a, another person's role.
"""

import sys
from pathlib import Path

import numpy as np
import pytest
from data_sets import LAYOUTS

from faze.config.check import build
from faze.config.parameters import Preprocess, Synthetic
from faze.config.stage_config import resolve, to_lines
from faze.config.yaml_files import merge, read_yaml
from faze.data.preparation.strip_maker import StripMaker
from faze.data.store.strips import StripStore
from faze.data.synthetic.people import Role, sample_frames
from faze.data.synthetic.render import Renderer
from faze.redirection.pairs import chosen, draw_targets
from faze.stages import oracle, preprocess, synthesise
from faze.stages.oracle import render_target_strips

PEOPLE = {
    **{"mpiigaze_people": 1, "gazecapture_train_people": 1, "gazecapture_val_people": 1},
    **{"gazecapture_test_people": 2, "frames_per_person": 6, "gazecapture_train_frames": 1},
}
CONFIG = merge(
    read_yaml(Path(__file__).parents[2] / "config" / "config.yaml"),
    {"synthetic": PEOPLE, "redirect": {"strips": 4, "seed": 12}},
)
ROLES = {
    "mpiigaze": [Role("mpiifacegaze", "test", 0)],
    "gazecapture": [Role("gazecapture", "test", 0), Role("gazecapture", "test", 1)],
}


def run(stage, root: Path, *words: object, dataset: str | None = None, config=CONFIG) -> int:
    name = stage.__name__.rpartition(".")[2]
    path = root / f"{name}_{dataset}.yaml"
    path.write_text("\n".join(to_lines(resolve(config, name, dataset=dataset))))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", [name, "--config", str(path), *map(str, words)])
        return stage.main()


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """Create a folder with the strips of a few rendered people."""
    root = tmp_path_factory.mktemp("ablation")
    layouts = [word for layout in LAYOUTS.values() for word in (f"--{layout}", root / layout)]
    files = [f"--{layout}-supplementary={root / layout}_supplementary.h5" for layout in LAYOUTS.values()]
    assert run(synthesise, root, *layouts, *files, "--truth", root / "truth.h5") == 0
    for dataset, layout in LAYOUTS.items():
        given = [] if dataset == "mpiigaze" else [f"--supplementary={root / layout}_supplementary.h5"]
        words = ["--raw", root / layout, *given, "--rejects", root / f"{dataset}.csv"]
        assert run(preprocess, root, *words, "--out", root / f"{dataset}.h5", dataset=dataset) == 0
    return root


def rendered(role: Role, rest: list[str], turned: list[str]):
    synthetic = build(Synthetic, CONFIG["synthetic"])
    maker = StripMaker.of(build(Preprocess, CONFIG["preprocess"]), role.layout)
    return render_target_strips(role, synthetic, maker, rest, turned)


@pytest.mark.parametrize("dataset", LAYOUTS)
def test_with_nothing_exchanged_it_is_the_stored_strip(data, dataset):
    for role in ROLES[dataset]:
        with StripStore(data / f"{dataset}.h5") as strips:
            names, pixels = strips.file_names(role.person_id), strips.pixels(role.person_id)
            labels = strips.labels(role.person_id)
        found, found_labels, rows = rendered(role, names, names)
        assert rows == list(range(len(names)))
        np.testing.assert_allclose(found_labels, labels, atol=1e-6)
        # MPIIFaceGaze's own annotation is text of nine digits, so that a pixel may be rounded otherwise.
        assert np.abs(found.astype(int) - pixels).max() <= (dataset == "mpiigaze")


def test_the_rest_is_of_another_strip_and_unknown_frames_are_left_out(data):
    role = ROLES["gazecapture"][0]
    with StripStore(data / "gazecapture.h5") as strips:
        names, pixels = strips.file_names(role.person_id), strips.pixels(role.person_id).astype(int)
        labels = strips.labels(role.person_id)
    rest, turned = [names[0], "80001/frames/made up.jpg", names[1]], [names[3], names[4], names[5]]
    found, found_labels, rows = rendered(role, rest, turned)
    assert rows == [0, 2]
    np.testing.assert_allclose(found_labels, labels[[3, 5]], atol=1e-6)
    difference = np.abs(found.astype(int) - pixels[[3, 5]]).mean((1, 2, 3))
    assert (difference > 1).all(), "room, light and noise are another frame's"
    assert (difference < np.abs(pixels[[0, 1]] - pixels[[3, 5]]).mean((1, 2, 3))).all(), "but the pose is its own"


def test_gaze_head_and_camera_are_of_b_and_all_else_of_a(monkeypatch):
    role, seen = ROLES["gazecapture"][0], []
    frames = sample_frames(role, build(Synthetic, CONFIG["synthetic"]))

    def render(self, scene, row, room, chance=None):
        seen.append((scene[np.array([row])], room, chance))
        return np.zeros((640, 640, 3), np.uint8)

    monkeypatch.setattr(Renderer, "render", render)
    a, b = [0, 1, 2], [3, 5, 4]
    rendered(role, [frames.file_names[row] for row in a], [frames.file_names[row] for row in b])
    assert [(room, chance) for _, room, chance in seen] == [(frames.rooms[row], row) for row in a]
    for row_a, row_b, (scene, _, _) in zip(a, b, seen, strict=True):
        assert scene.aperture[0] == frames.scene.aperture[row_a] != frames.scene.aperture[row_b]
        for name in set(vars(scene)) - {"aperture"}:
            assert (getattr(scene, name)[0] == getattr(frames.scene, name)[row_b]).all(), name


@pytest.mark.parametrize("dataset", LAYOUTS)
def test_the_stage_renders_the_pairs_of_every_test_person(data, tmp_path, dataset):
    words = ["--data", data / f"{dataset}.h5", "--out"]
    assert run(oracle, tmp_path, *words, tmp_path / "one.h5", dataset=dataset) == 0
    assert run(oracle, tmp_path, *words, tmp_path / "two.h5", "--threads", 2, dataset=dataset) == 0
    with StripStore(data / f"{dataset}.h5") as strips, StripStore(tmp_path / "one.h5") as found:
        assert found.persons() == strips.persons("test") == [role.person_id for role in ROLES[dataset]]
        for person in found.persons():
            rows = chosen(strips.count(person), 4)
            b = rows[draw_targets(12, 4)]
            assert found.frame_index(person).tolist() == [0, 1, 2, 3]
            assert found.file_names(person) == [strips.file_names(person)[row] for row in b]
            np.testing.assert_allclose(found.labels(person), strips.labels(person)[b], atol=1e-6)
        with StripStore(tmp_path / "two.h5") as again:
            assert all((again.pixels(p) == found.pixels(p)).all() for p in found.persons())


def test_people_who_were_not_rendered_are_said(data, tmp_path, capfd):
    nobody = merge(CONFIG, {"synthetic": {"gazecapture_test_people": 1, "mpiigaze_people": 1}})
    words = ["--data", data / "gazecapture.h5", "--out", tmp_path / "out.h5"]
    assert run(oracle, tmp_path, *words, dataset="mpiigaze", config=nobody) == 1
    assert "gazecapture.h5: contains no rendered test person" in capfd.readouterr().err
    assert not (tmp_path / "out.h5").exists()
