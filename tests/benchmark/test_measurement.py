"""Clock, memory and intervals of the benchmark, and what it refuses to measure under.

Refusals seen red by breaking the code: each tested mode, a variable and `off` left out; a process that does not ask.
Also seen red: a peak that counts torch's late imports, a full energy counter, a package counted with its parts.
"""

import ast
import contextlib
import subprocess
import sys
import threading
import tracemalloc
from collections.abc import Iterator
from multiprocessing.connection import Listener
from pathlib import Path
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest
import scipy.stats
import torch
from faze.benchmark.debugging import refuse_debugging
from faze.benchmark.energy import Meter, _rapl, build_meter
from faze.benchmark.intervals import ratio_interval, student_quantile
from faze.benchmark.memory_peak import MemoryPeak
from faze.benchmark.timing import PhaseClock

from faze.benchmark.processes import MeasuringProcess
from faze.benchmark.tier_steps import TierSteps
from faze.config.tiers import resolve_tier
from faze.config.yaml_files import read_yaml

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("freedom", [1, 2, 3, 9, 40, 200])
@pytest.mark.parametrize("p", [0.5, 0.9, 0.975, 0.995])
def test_student_quantile_equals_scipy(p, freedom):
    assert student_quantile(p, freedom) == pytest.approx(scipy.stats.t.ppf(p, freedom), rel=2e-4, abs=1e-6)


def test_ratio_interval_is_the_t_interval_of_the_logs():
    rng = np.random.default_rng(0)
    slow, fast = np.exp(rng.normal(1.0, 0.1, 12)), np.exp(rng.normal(0.0, 0.1, 12))
    found = ratio_interval(slow, fast)
    expected = scipy.stats.ttest_1samp(np.log(slow / fast), 0).confidence_interval(0.95)
    assert found["ratio"] == pytest.approx(scipy.stats.gmean(slow / fast))
    assert (found["low"], found["high"]) == pytest.approx(np.exp([expected.low, expected.high]), rel=1e-3)


def test_drift_that_meets_both_alike_leaves_the_ratio():
    drift = np.linspace(1, 3, 10)
    found = ratio_interval(2.0 * drift, 1.0 * drift)
    assert found["low"] == pytest.approx(2.0) and found["high"] == pytest.approx(2.0)


def test_memory_peak_sees_a_block_that_is_gone_again():
    held = torch.ones(2**22)  # before: not counted
    peak = MemoryPeak(torch.device("cpu"))
    torch.ones(2**24).sum()  # 64 MiB, freed at once
    found = peak.read()["peak_gib"]
    assert 0.06 < found < 0.2
    assert held.sum() > 0


def test_memory_peak_leaves_out_what_torch_imports_late() -> None:
    """In a fresh process, since modules are imported once."""
    program = """
import torch
from faze.benchmark.memory_peak import MemoryPeak
peak = MemoryPeak(torch.device("cpu"))
torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=0.1).step()
print(peak.read()["peak_gib"])
"""
    ended = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True)
    assert float(ended.stdout) < 0.02


def test_phase_clock_adds_up():
    clock = PhaseClock(torch.device("cpu"))
    for _ in range(2):
        with clock("forward"):
            torch.ones(1000).sum()
    assert set(clock.seconds) == {"forward"} and clock.seconds["forward"] > 0


@contextlib.contextmanager
def traced_memory() -> Iterator[None]:
    tracemalloc.start()
    try:
        yield
    finally:
        tracemalloc.stop()


@contextlib.contextmanager
def traced_python() -> Iterator[None]:
    before = sys.getprofile()
    sys.setprofile(lambda *_: None)
    try:
        yield
    finally:
        sys.setprofile(before)


MODES = {
    "autograd's anomaly mode": lambda: torch.autograd.set_detect_anomaly(True),
    "torch's profiler": torch.profiler.profile,
    "a tracer or profiler of Python": traced_python,
    "tracemalloc": traced_memory,
}


@pytest.fixture
def no_tracer(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who runs the tests under coverage or a debugger is not refused."""
    monkeypatch.setattr(sys, "gettrace", lambda: None)


@pytest.mark.usefixtures("no_tracer")
@pytest.mark.parametrize("name", MODES)
def test_each_debugging_mode_is_refused_by_its_name(name: str) -> None:
    refuse_debugging()
    with pytest.raises(ValueError, match=f"switch off {name}$"), MODES[name]():
        refuse_debugging()
    refuse_debugging()


@pytest.mark.usefixtures("no_tracer")
def test_debugging_variables_are_refused_with_their_values(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, off in (("CUDA_LAUNCH_BLOCKING", "0"), ("TORCH_DISTRIBUTED_DEBUG", "OFF"), ("PYTHONDEVMODE", "")):
        monkeypatch.setenv(name, off)
    refuse_debugging()
    monkeypatch.setenv("CUDA_LAUNCH_BLOCKING", "1")
    monkeypatch.setenv("TORCH_DISTRIBUTED_DEBUG", "DETAIL")
    with pytest.raises(ValueError, match="off CUDA_LAUNCH_BLOCKING=1, TORCH_DISTRIBUTED_DEBUG=DETAIL$"):
        refuse_debugging()


@pytest.mark.usefixtures("no_tracer")
@pytest.mark.parametrize("do", ["block", "phases"])
def test_a_measuring_process_that_debugs_measures_nothing(do: str, tmp_path: Path) -> None:
    steps = []
    world = SimpleNamespace(rank=0, size=1, device=torch.device("cpu"), wait=lambda: steps.append("wait"))
    step = SimpleNamespace(switches=(), settling_steps=0, __call__=steps.append)
    feed = SimpleNamespace(switches=(), notes=(), transfer=SimpleNamespace(ahead=0))
    engine = resolve_tier(read_yaml(ROOT / "config" / "config.yaml")["tiers"], "baseline")
    process = MeasuringProcess(
        tier=TierSteps(SimpleNamespace(world=world, engine=engine), step, feed),
        block_steps=1,
        peak=SimpleNamespace(read=None),
        meter=Meter("none"),
    )
    with Listener(str(tmp_path / "c")) as listener:

        def conduct() -> None:
            with listener.accept() as connection, contextlib.suppress(EOFError):
                connection.recv()
                connection.send((do, {"steps": 0}))
                connection.recv()

        coordinator = threading.Thread(target=conduct, daemon=True)
        coordinator.start()
        with pytest.raises(ValueError, match="anomaly mode"), torch.autograd.set_detect_anomaly(True):
            process.serve((str(tmp_path / "c"), "baseline"))
        coordinator.join(timeout=5)
    assert not steps


def test_energy_of_a_processor_adds_its_packages_and_survives_the_counters_end(tmp_path: Path) -> None:
    """Seen red with the whole platform added to its packages."""
    counters = {
        "intel-rapl:0": ("package-0", 900_000),
        "intel-rapl:1": ("package-1", 0),
        "intel-rapl:0:0": ("core", 5),
        "intel-rapl:2": ("psys", 5),
    }
    for name, (domain, counter) in counters.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "name").write_text(f"{domain}\n")
        (tmp_path / name / "energy_uj").write_text(f"{counter}\n")
        (tmp_path / name / "max_energy_range_uj").write_text("999999\n")
    meter = _rapl(tmp_path)
    before = meter.read()
    (tmp_path / "intel-rapl:0" / "energy_uj").write_text("400000\n")  # through its end: 0.5 J
    (tmp_path / "intel-rapl:1" / "energy_uj").write_text("250000\n")
    (tmp_path / "intel-rapl:0:0" / "energy_uj").write_text("999999\n")  # a part of package 0, counted there
    (tmp_path / "intel-rapl:2" / "energy_uj").write_text("999999\n")  # what all of this is a part of
    assert meter.since(before) == pytest.approx(0.75)


def test_no_energy_comes_with_its_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("faze.benchmark.energy.POWERCAP", tmp_path)
    meter = build_meter(torch.device("cpu"))
    assert meter.since(meter.read()) is None
    assert "no energy counters" in meter.reason


class FakeNvml(ModuleType):
    """The functions of nvidia-ml-py that are used; a GPU that has used so many millijoules at each reading."""

    class NVMLError(Exception):
        """As there: no OSError."""

    def __init__(self, *millijoules: float, broken: str = "") -> None:
        super().__init__("pynvml")
        self.millijoules, self.broken, self.uuid = list(millijoules), broken, ""

    def nvmlInit(self) -> None:  # noqa: N802
        if self.broken:
            raise self.NVMLError(self.broken)

    def nvmlDeviceGetHandleByUUID(self, uuid: str) -> str:  # noqa: N802
        self.uuid = uuid
        return "handle"

    def nvmlDeviceGetTotalEnergyConsumption(self, handle: str) -> float:  # noqa: N802
        assert handle == "handle"
        return self.millijoules.pop(0)


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> torch.device:
    """Whichever the process sees as its own: NVML does not know CUDA_VISIBLE_DEVICES, but the UUID."""
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: SimpleNamespace(uuid="abc-1"))
    return torch.device("cuda", 0)


def test_energy_of_a_gpu_is_that_of_the_board_that_computes(gpu, monkeypatch: pytest.MonkeyPatch) -> None:
    nvml = FakeNvml(0, 1500, 4000)
    monkeypatch.setitem(sys.modules, "pynvml", nvml)
    meter = build_meter(gpu)
    assert (meter.source, meter.reason, nvml.uuid) == ("NVML, GPU board", "", "GPU-abc-1")
    assert meter.since(meter.read()) == 2.5


@pytest.mark.parametrize(
    ("nvml", "reason"),
    [(FakeNvml(broken="Driver Not Loaded"), "NVML says Driver Not Loaded"), (None, "nvidia-ml-py: pip install")],
)
def test_no_energy_of_a_gpu_comes_with_its_reason(gpu, monkeypatch: pytest.MonkeyPatch, nvml, reason: str) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", nvml)
    meter = build_meter(gpu)
    assert meter.source == "none" and reason in meter.reason and meter.since(meter.read()) is None


def test_no_code_of_ours_checks_gradients() -> None:
    """torch.autograd.gradcheck is a call, not a mode: there is nothing to refuse as long as nobody calls it."""
    modules = list((ROOT / "faze").rglob("*.py"))
    names = {
        getattr(node, "attr", getattr(node, "id", getattr(node, "name", None)))
        for path in modules
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
    }
    assert "refuse_debugging" in names  # the search finds names
    assert not names & {"gradcheck", "gradgradcheck"}


def test_memory_that_was_freed_before_is_counted_when_it_is_used_again() -> None:
    """In a process of its own, whose heap nobody else has cut up. Seen red: freed memory not given back."""
    code = """
import numpy as np, torch
from faze.benchmark.memory_peak import MemoryPeak
def fill():
    return [np.ones(12_000) for _ in range(2000)]  # 96 kB each, less than glibc maps by itself
blocks = fill()
last = np.ones(12_000)  # above them all, so that the heap's end stays where it is
del blocks
peak = MemoryPeak(torch.device("cpu"))
blocks = fill()
print(peak.read()["peak_gib"] * 2**30 / (2000 * 96_000))
"""
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert 0.9 < float(found.stdout) < 1.5
