"""Numbers as a reader wants them: sensible digits, units, true minus signs, a dash where there is nothing."""

import functools
import math
import re
from collections.abc import Callable, Mapping
from pathlib import Path

from markupsafe import Markup, escape

from faze.evaluation import wording
from faze.evaluation.wording import NAMES, counted, signed

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


NUMBERS = {"degrees": "{:.2f}°", "ratio": "{:.2f}×", "gibibytes": "{:.2f} GiB", "digits": "{:.3g}"}


def _or_dash(form: Callable[..., str]) -> Callable[..., str]:
    """Make a dash of a number that is missing, nan or infinite."""

    @functools.wraps(form)
    def shown(*numbers: float | None) -> str:
        return DASH if any(n is None or not math.isfinite(n) for n in numbers) else form(*numbers)

    return shown


FILTERS: dict[str, Callable[..., str]] = {  # of the templates, by name
    **{name: _or_dash(form.format) for name, form in NUMBERS.items()},
    "saving": _or_dash(wording.saving),
    "p_value": _or_dash(wording.p_value),
    "counted": counted,
    "memory_change": wording.memory_change,
    "peak": wording.peak,
}


def template_filter(form: Callable[..., str]) -> Callable[..., str]:
    """Let templates use a format of numbers; one that is missing becomes a dash."""
    FILTERS[form.__name__] = _or_dash(form)
    return FILTERS[form.__name__]


@template_filter
def angle(value: float) -> str:
    """Write −12.4°."""
    return f"{'−' * (value < 0)}{abs(value):.1f}°"


@template_filter
def change(value: float) -> str:
    """Write +0.083°; a thousandth of a degree, so that small is not shown as none."""
    return f"{signed(value, 3)}°"


@template_filter
def interval(low: float, high: float) -> str:
    """Write 0.97 to 1.02; of two or three blocks perhaps 0.00 to >999."""
    return f"{low:.2f} to {'>999' if high > 999 else f'{high:.2f}'}"


@template_filter
def signed_interval(low: float, high: float) -> str:
    """Write −0.031 to +0.190."""
    return f"{signed(low, 3)} to {signed(high, 3)}"


@template_filter
def percent(share: float) -> str:
    """Write −51 % for a share of 0.51 by which something falls."""
    return f"{signed(-100 * share, 0)} %"


@template_filter
def share(part: float) -> str:
    """Write 27 %."""
    return f"{100 * part:.0f} %"


@template_filter
def milliseconds(value: float) -> str:
    """Write 412 ms, 1.52 s."""
    if value >= 1000:
        return f"{value / 1000:.2f} s"
    return f"{value:.0f} ms" if value >= 100 else f"{value:.1f} ms"


@template_filter
def duration(seconds: float) -> str:
    """Write 8.4 s, 412 s, 2 h 05 min."""
    if seconds >= 3600:
        hours, minutes = divmod(round(seconds / 60), 60)
        return f"{hours} h {minutes:02d} min"
    return f"{seconds:.0f} s" if seconds >= 100 else f"{seconds:.1f} s"


@template_filter
def count(value: float) -> str:
    """Write 12,345."""
    return f"{int(value):,}"


@template_filter
def needed(number: int, most: int) -> str:
    """Write 12; or, of a number that may also not exist, none up to 100."""
    return f"{number:,}" if number <= most else f"none up to {most:,}"


def marked(text: str) -> Markup:
    """Set `code` in a text as code."""
    return Markup(re.sub(r"`([^`]*)`", r"<code>\1</code>", str(escape(text))))


def walk_title(path: Path) -> str:
    """Name a video: mpiigaze_p00.mp4 is MPIIGaze p00."""
    dataset, _, person = path.stem.partition("_")
    return f"{NAMES.get(dataset, dataset)} {person}".strip()


def machine(described: Mapping[str, str]) -> str:
    """Name a machine: AMD EPYC 7B13, 2 cores; or its GPUs, where it has any."""
    if described.get("gpus"):
        return str(described["gpus"])
    processor, cores = described.get("processor") or "an unknown processor", described.get("cores")
    return f"{processor}, {counted(int(cores), 'core')}" if cores else processor


def facts(machine: Mapping[str, str]) -> list[tuple[str, str]]:
    """List machine and versions as (what, which); absent packages are left out."""
    told = [(name, str(value)) for name, value in machine.items() if value not in (None, "", "absent")]
    return [(_FACTS.get(name, name), f"{value} GiB" if name.endswith("_gib") else value) for name, value in told]
