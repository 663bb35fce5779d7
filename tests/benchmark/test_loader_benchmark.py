"""benchmarks/loader.py plays both sides on the same strips, and sees it when they are not the same."""

import importlib
import shutil
import sys
from pathlib import Path
from types import ModuleType

import h5py
import pytest
import torch

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def loader(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    for name in ("loader", "baselines", "baselines.loader"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    module = importlib.import_module("loader")
    monkeypatch.setattr(module, "ENTRIES", 12)
    return module


def test_all_rows_are_timed_and_compared(loader, monkeypatch, capsys, tmp_path):
    threads = torch.get_num_threads()
    options = "--blocks 2 --batch 8 --batches 2 --workers 0 --threads 1"
    monkeypatch.setattr(sys, "argv", ["loader.py", *options.split(), "--folder", str(tmp_path)])
    loader.main()
    torch.set_num_threads(threads)
    lines = capsys.readouterr().out.splitlines()[-5:]
    assert [line.split()[:2] for line in lines] == [
        ["store", "warm"],
        ["equalised", "warm"],
        ["memory", "warm"],
        ["store", "cold"],
        ["equalised", "cold"],
    ]
    assert all("x (" in line for line in lines)
    assert not list(tmp_path.iterdir())  # its files are gone


@pytest.mark.parametrize("row", ["store", "equalised"])
def test_other_strips_are_noticed(loader, tmp_path, row):
    paths = loader.write(tmp_path)
    ours = loader.Ours(paths[0], 8)
    batch = next(iter(ours.feed(row)([0])))
    other = Path(shutil.copy(paths[1], tmp_path / "other.h5"))
    loader.check_same(loader.baseline.PairSamples(paths[1], row == "equalised"), batch, ours)
    with h5py.File(other, "r+") as file:
        for person in file:
            file[f"{person}/pixels"][:, 30, 100] ^= 64
    with pytest.raises(AssertionError):
        loader.check_same(loader.baseline.PairSamples(other, row == "equalised"), batch, ours)
