"""Number formats for the report page. Missing, nan and infinite numbers become dashes."""

import math
import re
from collections.abc import Callable, Mapping

from markupsafe import Markup, escape

from faze.evaluation import wording

DASH = "–"


def or_dash(form: Callable[..., str]) -> Callable[..., str]:
    """Extend a format so that it returns a dash if any number is missing, nan or infinite."""
    return lambda *numbers: DASH if any(n is None or not math.isfinite(n) for n in numbers) else form(*numbers)


degrees = or_dash("{:.2f}°".format)
ratio = or_dash("{:.2f}×".format)
number = or_dash("{:.2f}".format)
digits = or_dash("{:.3g}".format)
count = or_dash("{:,.0f}".format)
change = or_dash(lambda value: f"{wording.signed(value, 3)}°")  # three digits, so that small changes do not appear as 0
signed_interval = or_dash(lambda low, high: f"{wording.signed(low, 3)} to {wording.signed(high, 3)}")
interval = or_dash(lambda low, high: f"{low:.2f} to {'>999' if high > 999 else f'{high:.2f}'}")
percent = or_dash(lambda share: f"{wording.signed(-100 * share, 0)} %")  # of a reduction: 0.51 becomes −51 %
share = or_dash(lambda part: f"{100 * part:.0f} %".replace("-0 ", "0 ").replace("-", "−"))
distance = or_dash(lambda part: f"{100 * part:.2g} %")  # 0.000031 becomes 0.0031 %
p_value = or_dash(lambda p: "p < 0.001" if p < 0.001 else f"p = {p:.2g}")


@or_dash
def milliseconds(value: float) -> str:
    """Format a duration given in milliseconds, for example as 412 ms or 1.52 s."""
    if value >= 1000:
        return f"{value / 1000:.2f} s"
    return f"{value:.0f} ms" if value >= 100 else f"{value:.1f} ms"


@or_dash
def elapsed(seconds: float) -> str:
    """Format a duration given in seconds, for example as 8.4 s, 412 s or 2 h 05 min."""
    if seconds >= 3600:
        hours, minutes = divmod(round(seconds / 60), 60)
        return f"{hours} h {minutes:02d} min"
    return f"{seconds:.0f} s" if seconds >= 100 else f"{seconds:.1f} s"


def marked(text: str) -> Markup:
    """Convert text to HTML, marking up anything in backticks as code."""
    return Markup(re.sub(r"`([^`]*)`", r"<code>\1</code>", str(escape(text))))


def machine(described: Mapping[str, str]) -> str:
    """Return a machine's name: its GPUs or, if it has none, its processor and cores."""
    return described.get("gpus") or f"{described['processor']}, {wording.counted(int(described['cores']), 'core')}"
