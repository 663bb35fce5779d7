"""Numbers as a reader wants them: sensible digits, units, true minus signs, a dash where there is nothing."""

import math
import re
from collections.abc import Mapping
from pathlib import Path

from markupsafe import Markup, escape

from faze.evaluation.verdict import NAMES, signed

DASH = "–"
_FACTS = {
    "processor": "Processor",
    "cores": "Cores used",
    "memory_gib": "Memory",
    "gpus": "GPUs",
    "cuda": "CUDA",
    "cudnn": "cuDNN",
    "system": "System",
    "python": "Python",
    "commit": "Commit",
    "torch": "PyTorch",
    "numpy": "NumPy",
    "opencv-python-headless": "OpenCV",
}


def _absent(*numbers: float | None) -> bool:
    return any(n is None or not math.isfinite(n) for n in numbers)


def degrees(value: float) -> str:
    """4.21°."""
    return DASH if _absent(value) else f"{value:.2f}°"


def angle(value: float) -> str:
    """−12.4°."""
    return DASH if _absent(value) else f"{signed(value, 1).removeprefix('+')}°"


def change(value: float) -> str:
    """+0.083°; a thousandth of a degree, so that small is not shown as none."""
    return DASH if _absent(value) else f"{signed(value, 3)}°"


def interval(low: float, high: float, digits: int = 2, sign: bool = False) -> str:
    """0.97 to 1.02; −0.03 to +0.19; of two or three blocks perhaps 0.00 to >999."""
    if _absent(low, high):
        return DASH
    if high > 999:
        return f"{low:.{digits}f} to >999"
    return f"{signed(low, digits)} to {signed(high, digits)}" if sign else f"{low:.{digits}f} to {high:.{digits}f}"


def ratio(value: float) -> str:
    """1.03×."""
    return DASH if _absent(value) else f"{value:.2f}×"


def saving(value: float) -> str:
    """1.60× less, 1.72× more; for a memory ratio, baseline over tier."""
    if _absent(value):
        return DASH
    text = f"{max(value, 1 / value):.2f}×"
    return "1.00×" if text == "1.00×" else f"{text} {'less' if value > 1 else 'more'}"


def percent(share: float) -> str:
    """−51 % for a share of 0.51 by which something falls."""
    return DASH if _absent(share) else f"{signed(-100 * share, 0)} %"


def share(part: float) -> str:
    """27 %."""
    return DASH if _absent(part) else f"{100 * part:.0f} %"


def digits(value: float) -> str:
    """2.12: three digits, for what has a unit of its own."""
    return DASH if _absent(value) else f"{value:.3g}"


def milliseconds(value: float) -> str:
    """412 ms, 1.52 s."""
    if _absent(value):
        return DASH
    if value >= 1000:
        return f"{value / 1000:.2f} s"
    return f"{value:.0f} ms" if value >= 100 else f"{value:.1f} ms"


def duration(seconds: float) -> str:
    """8.4 s, 412 s, 2 h 05 min."""
    if _absent(seconds):
        return DASH
    if seconds >= 3600:
        hours, minutes = divmod(round(seconds / 60), 60)
        return f"{hours} h {minutes:02d} min"
    return f"{seconds:.0f} s" if seconds >= 100 else f"{seconds:.1f} s"


def gibibytes(value: float) -> str:
    """0.44 GiB."""
    return DASH if _absent(value) else f"{value:.2f} GiB"


def marked(text: str) -> Markup:
    """Text with `code` set as code."""
    return Markup(re.sub(r"`([^`]*)`", r"<code>\1</code>", str(escape(text))))


def count(value: float) -> str:
    """12,345."""
    return f"{int(value):,}"


def walk_title(path: Path) -> str:
    """mpiigaze_p00.mp4 -> MPIIGaze p00."""
    dataset, _, person = path.stem.partition("_")
    return f"{NAMES.get(dataset, dataset)} {person}".strip()


def machine(described: Mapping[str, str]) -> str:
    """AMD EPYC 7B13, 2 cores; or the GPUs, where there are any."""
    if described.get("gpus"):
        return str(described["gpus"])
    processor, cores = described.get("processor") or "an unknown processor", described.get("cores")
    return f"{processor}, {cores} core{'' if str(cores) == '1' else 's'}" if cores else processor


def facts(machine: Mapping[str, str]) -> list[tuple[str, str]]:
    """Machine and versions as (what, which); absent packages left out."""
    told = [(name, str(value)) for name, value in machine.items() if value not in (None, "", "absent")]
    return [(_FACTS.get(name, name), f"{value} GiB" if name.endswith("_gib") else value) for name, value in told]
