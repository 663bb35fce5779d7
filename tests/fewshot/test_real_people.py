"""benchmarks/real_people.py on made-up people whose offsets, slopes and noise are known.

Checked by breaking the code: mirrored rows that are kept, a person in the prior's people, differences with the wrong
sign, p-values that are not adjusted, centimetres reported in degrees.
"""

import importlib.util
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from faze.evaluation.statistics import holm

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "benchmarks" / "real_people.py"
OFFSET, NOISE, SHOTS = 3.0, 2.0, (1, 3, 5, 9)  # standard deviations of pitch and of yaw in degrees


@pytest.fixture(scope="module")
def script():
    sys.path.insert(0, str(SCRIPT.parent))
    spec = importlib.util.spec_from_file_location("real_people", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    sys.modules["real_people"] = module
    spec.loader.exec_module(module)
    return module


def write_angles(path: Path, people: int = 15, rows: int = 800, *, mirrored: bool = False) -> Path:
    """Write people who differ in an offset only; mirrored rows follow at 1,500 with another offset."""
    rng, arrays = np.random.default_rng(3), {}
    for index in range(people):
        label = rng.normal(0, 8, (1600 if mirrored else rows, 2))
        predicted = label + rng.normal(0, OFFSET, 2) + rng.normal(0, NOISE, label.shape)
        predicted[1500:] += 50.0
        arrays |= {f"p{index:02d}_label": np.radians(label), f"p{index:02d}_predicted": np.radians(predicted)}
    np.savez(path, **arrays)
    return path


def write_points(path: Path, people: int = 9, rows: int = 700) -> Path:
    """Write features that contain the point on the screen, a person's offset of 2 cm and noise of 1 cm."""
    rng, arrays, mixing = np.random.default_rng(4), {}, np.array([[1.0, 0.5, 0.0], [0.0, 1.0, -1.0]])
    for index in range(people):
        point = rng.normal(0, 40, (rows, 2))
        seen = point + rng.normal(0, 2, 2) + rng.normal(0, 1, point.shape)
        arrays |= {f"{index:05d}_features": (seen @ mixing).astype(np.float32), f"{index:05d}_target_cm": point}
    np.savez(path, **arrays)
    return path


def test_mirrored_rows_are_left_out(script, tmp_path: Path) -> None:
    network = script.read_network(write_angles(tmp_path / "a.npz", 3, mirrored=True))
    assert [len(p.gaze) for p in network.people] == [1500] * 3
    assert script.unadapted_error_deg(network.people[0], 500) < 20


def test_the_errors_are_those_of_the_known_variances(script, tmp_path: Path) -> None:
    """A mean angle of a two-dimensional normal error with variance v per axis is sqrt(pi v / 2)."""
    network = script.read_network(write_angles(tmp_path / "a.npz"))
    settings = script.paper_settings(shots=SHOTS, repeats=5, query_entries=500, record_steps=())
    found = script.evaluate(network, ("offset", "affine"), settings)
    k = np.array(SHOTS)
    for name, variance in (("offset", NOISE**2 / k), ("affine", 1 / (1 / OFFSET**2 + k / NOISE**2))):
        expected = np.sqrt(np.pi * (NOISE**2 + variance) / 2)
        np.testing.assert_allclose(found[name].errors.mean(axis=0), expected, rtol=0.06)
    assert np.ptp(found["none"].errors.mean(axis=0)) == 0
    assert found["affine"].covered[:, 3].mean(axis=0) == pytest.approx([0.68, 0.95], abs=0.05)
    shares = script.components(network).split("|")[3:7]
    share = 100 * OFFSET**2 / (OFFSET**2 + NOISE**2)
    assert float(shares[0].strip(" %")) == pytest.approx(share, abs=20) and float(shares[1].strip(" %")) <= 1


def test_points_are_estimated_from_the_other_people_in_centimetres(script, tmp_path: Path) -> None:
    network = script.read_network(write_points(tmp_path / "points.npz"))
    someone, others = script.left_out(network, 2, range(9))
    assert [p.name for p in others] == [f"{i:05d}" for i in range(9) if i != 2] and someone.name == "00002"
    settings = script.paper_settings(shots=(9,), repeats=5, query_entries=500, record_steps=())
    found = script.evaluate(network, ("offset",), settings)["offset"].errors
    assert found.mean() == pytest.approx(np.sqrt(np.pi / 2 * (1 + 1 / 9)), rel=0.1)


def test_differences_are_paired_and_adjusted(script) -> None:
    rng = np.random.default_rng(0)
    errors = rng.normal(5, 2, (15, 4))
    gain = np.array([1.0, 0.3, 0.0, -0.5]) + rng.normal(0, 0.2, (15, 4))
    results = [
        {"offset": script.Found(errors, None), "affine": script.Found(errors - gain, None)},
        {"offset": script.Found(errors, None), "affine": script.Found(errors - gain, None)},
    ]
    row = list(script.pooled(results, SHOTS, "offset"))[-1]
    cells = [cell.strip() for cell in row.split("|")[2:-1]]
    found = [script.difference(-gain[:, at], np.zeros(15)) for at in range(4)]
    adjusted = holm([one.difference_p for one in found])
    assert [float(cell.split()[0].replace("−", "-")) for cell in cells[:4]] == pytest.approx(-gain.mean(0), abs=0.006)
    assert [float(cell.rpartition(" ")[2]) for cell in cells[:4]] == pytest.approx(adjusted, abs=1e-4)
    assert cells[4] == "2 of 8"  # k = 9 in both networks


def test_the_nested_choice_prefers_shrinkage_and_does_not_use_the_person(script, tmp_path: Path, monkeypatch) -> None:
    network = script.read_network(write_angles(tmp_path / "a.npz", 8))
    monkeypatch.setattr(script, "NAMES", ("offset", "affine"))
    monkeypatch.setattr(script, "LEARNT", ("affine",))
    taught = []
    monkeypatch.setattr(script, "learnt", lambda name, people, settings, learn=script.learnt: (
        taught.append({p.name for p in people}), learn(name, people, settings))[1])  # fmt: skip
    settings = script.paper_settings(shots=SHOTS, repeats=3, query_entries=500, record_steps=())
    results = [script.evaluate(network, script.NAMES, settings)]
    taught.clear()
    lines = list(script.nested([network], results, settings))
    assert int(lines[0].removeprefix("chosen: affine ")[0]) >= 6
    calls = len(taught) // 8  # per person
    for index, person in enumerate(network.people):
        assert all(person.name not in names for names in taught[index * calls : (index + 1) * calls])


def test_the_script_prints_all_tables(tmp_path: Path) -> None:
    write_angles(tmp_path / "a.npz", 6, 600)
    write_points(tmp_path / "points.npz", 6, 600)
    command = [sys.executable, SCRIPT, tmp_path, "--shots", "1", "9", "--repeats", "1"]
    printed = subprocess.run(command, check=True, capture_output=True, text=True, cwd=ROOT).stdout
    for expected in ("| a (°) |", "| points (cm) |", "1 networks, minus `offset`", "| `bayes normal` |", "| a | "):
        assert expected in printed
    empty = tmp_path / "empty"
    empty.mkdir()
    failed = subprocess.run([sys.executable, SCRIPT, empty], capture_output=True, text=True, cwd=ROOT, check=False)
    assert failed.returncode == 2 and "contains no .npz file" in failed.stderr
