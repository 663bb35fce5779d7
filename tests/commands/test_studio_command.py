"""The command `faze studio`: its arguments, and where it serves the page.

Checked by breaking the code: two networks with the same name confused, a foreign folder replaced.
"""

import shutil
import socket
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from damaged import add_nobody

from faze.commands import studio
from faze.config.parameters import Model
from faze.data.store.strips import PersonStrips, StripStore, write_strips
from faze.model.dted import DTED
from faze.model.weights import save_weights

MODEL = Model(2, 4, 32, 128, 4, 2, 3, 4, normalize_axis=1, backprop_gaze=True)


@pytest.fixture
def store(tmp_path) -> Path:
    def of(number: int, split: str) -> PersonStrips:
        pixels, labels = np.zeros((1, 64, 256, 3), np.uint8), np.zeros((1, 4), np.float32)
        return PersonStrips(f"{number:05d}", split, ["0.jpg"], pixels, labels)

    people = [of(1, "train"), *(of(number, "test") for number in range(2, 13))]
    write_strips(tmp_path / "gazecapture.h5", "gazecapture", people)
    add_nobody(tmp_path / "gazecapture.h5", "00014")  # who has no strip is not chosen
    return tmp_path / "gazecapture.h5"


@pytest.fixture
def trained(tmp_path) -> Path:
    torch.manual_seed(0)
    path = tmp_path / "recompute/seed0/checkpoint.pt"
    path.parent.mkdir(parents=True)
    save_weights(path, DTED(MODEL))
    return path


def run(monkeypatch, *arguments: object) -> int:
    monkeypatch.setattr(sys, "argv", ["faze studio", *map(str, arguments)])
    return studio.main()


def test_people_are_taken_evenly_from_the_test_people(store):
    with StripStore(store) as strips:
        assert studio.choose(strips, 3, store) == ["00002", "00007", "00012"]
        assert len(studio.choose(strips, 99, store)) == 11


def test_networks_are_called_as_their_tiers_or_files():
    tiers = [
        Path("results/default/baseline/seed0/checkpoint.pt"),
        Path("results/default/recompute/seed0/checkpoint.pt"),
    ]
    assert [studio.name_of(path, tiers) for path in tiers] == ["baseline", "recompute"]
    alike = [Path("a/recompute/seed0/checkpoint.pt"), Path("b/recompute/seed0/checkpoint.pt"), Path("weights/dted.pt")]
    assert [studio.name_of(path, alike) for path in alike] == [str(alike[0]), str(alike[1]), "dted"]


@pytest.mark.parametrize(("there", "shown"), [(studio.OWN, "dted"), (studio.OWN[1:], "baseline")])
def test_without_a_name_it_is_the_network_that_a_run_left(store, trained, tmp_path, monkeypatch, there, shown):
    monkeypatch.chdir(tmp_path)
    for path in there:
        path.parent.mkdir(parents=True)
        shutil.copyfile(trained, path)
    written = []
    monkeypatch.setattr(
        studio, "write_studio", lambda out, networks, _, people: written.append((out, [*networks], people))
    )
    assert run(monkeypatch, "--data", store, "--out", tmp_path / "page", "--people", 3) == 0
    assert written == [(tmp_path / "page", [shown], ["00002", "00007", "00012"])]


def test_what_is_missing_is_one_sentence(store, trained, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert run(monkeypatch, "--data", store) == 1
    assert (
        "results/default/weights/dted.pt: no such checkpoint; train one first: make weights" in capsys.readouterr().err
    )
    assert run(monkeypatch, "--checkpoint", trained, "--data", tmp_path / "none.h5") == 1
    assert "none.h5" in capsys.readouterr().err
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/letter.txt").write_text("to keep")
    assert run(monkeypatch, "--checkpoint", trained, "--data", store, "--out", tmp_path / "mine") == 1
    assert (tmp_path / "mine/letter.txt").read_text() == "to keep"


def test_a_port_that_is_taken_is_one_sentence(tmp_path, monkeypatch):
    monkeypatch.setattr("socketserver.BaseServer.serve_forever", lambda server: None)  # another port must not hang
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with pytest.raises(studio.UserError, match="cannot be used .*: choose another --port"):
            studio.serve(tmp_path, taken.getsockname()[1])
