"""Number formats and templates of the pages."""

import functools
import math
import re
from collections.abc import Callable, Mapping

import jinja2
from markupsafe import Markup, escape

from faze.evaluation import wording
from faze.evaluation.wording import counted, signed, title_of

DASH = "–"
_FACTS = {
    "processor": "Processor",
    "cores": "Cores used",
    "cpu_quota": "CPU quota",
    "memory_gib": "Memory",
    "gpus": "GPUs",
    "cuda": "CUDA",
    "cudnn": "cuDNN",
    "system": "System",
    "variables": "Variables",
    "python": "Python",
    "commit": "Commit",
    "torch": "PyTorch",
    "numpy": "NumPy",
    "opencv-python-headless": "OpenCV",
}
NUMBERS = {"degrees": "{:.2f}°", "ratio": "{:.2f}×", "gibibytes": "{:.2f} GiB", "digits": "{:.3g}"}


def _or_dash(form: Callable[..., str]) -> Callable[..., str]:
    """Format a missing, nan or infinite number as a dash."""

    @functools.wraps(form)
    def shown(*numbers: float | None) -> str:
        return DASH if any(n is None or not math.isfinite(n) for n in numbers) else form(*numbers)

    return shown


FILTERS: dict[str, Callable[..., str]] = {  # of the templates, by name
    **{name: _or_dash(form.format) for name, form in NUMBERS.items()},
    "p_value": _or_dash(wording.p_value),
    "counted": counted,
    "memory_change": wording.memory_change,
    "peak": wording.peak,
}


def template_filter(form: Callable[..., str]) -> Callable[..., str]:
    """Register a number format for templates; missing numbers become a dash."""
    FILTERS[form.__name__] = _or_dash(form)
    return FILTERS[form.__name__]


@template_filter
def change(value: float) -> str:
    """Format a change such as +0.083°, with three digits so that small changes do not appear as 0."""
    return f"{signed(value, 3)}°"


@template_filter
def interval(low: float, high: float) -> str:
    """Format an interval, such as 0.97 to 1.02; with few blocks it may be as wide as 0.00 to >999."""
    return f"{low:.2f} to {'>999' if high > 999 else f'{high:.2f}'}"


@template_filter
def signed_interval(low: float, high: float) -> str:
    """Format an interval with signs, such as −0.031 to +0.190."""
    return f"{signed(low, 3)} to {signed(high, 3)}"


@template_filter
def percent(share: float) -> str:
    """Format a reduction; a share of 0.51 becomes −51 %."""
    return f"{signed(-100 * share, 0)} %"


@template_filter
def share(part: float) -> str:
    """Format a share, such as 27 % or −3 %."""
    text = f"{100 * abs(part):.0f} %"
    return f"−{text}" if part < 0 and text != "0 %" else text


@template_filter
def milliseconds(value: float) -> str:
    """Format milliseconds, such as 412 ms or 1.52 s."""
    if value >= 1000:
        return f"{value / 1000:.2f} s"
    return f"{value:.0f} ms" if value >= 100 else f"{value:.1f} ms"


@template_filter
def elapsed(seconds: float) -> str:
    """Format seconds, such as 8.4 s, 412 s or 2 h 05 min."""
    if seconds >= 3600:
        hours, minutes = divmod(round(seconds / 60), 60)
        return f"{hours} h {minutes:02d} min"
    return f"{seconds:.0f} s" if seconds >= 100 else f"{seconds:.1f} s"


@template_filter
def count(value: float) -> str:
    """Format a count, such as 12,345."""
    return f"{int(value):,}"


def marked(text: str) -> Markup:
    """Convert a text to HTML, marking up words in backticks as code."""
    return Markup(re.sub(r"`([^`]*)`", r"<code>\1</code>", str(escape(text))))


def machine(described: Mapping[str, str]) -> str:
    """Return the name of a machine: its GPUs, or its processor and cores."""
    if described.get("gpus"):
        return str(described["gpus"])
    processor, cores = described.get("processor") or "an unknown processor", described.get("cores")
    return f"{processor}, {counted(int(cores), 'core')}" if cores else processor


def facts(machine: Mapping[str, str]) -> list[tuple[str, str]]:
    """List the machine and the package versions as (title, value), omitting absent packages."""
    present = [(name, str(value)) for name, value in machine.items() if value not in (None, "", "absent")]
    return [(_FACTS.get(name, name), f"{value} GiB" if name.endswith("_gib") else value) for name, value in present]


def load_template(name: str) -> jinja2.Template:
    """Load a template from this package. Undefined variables are errors."""
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("faze.report", "."),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
    environment.filters |= FILTERS | {"marked": marked}
    environment.globals |= {"title_of": title_of}
    return environment.get_template(name)
