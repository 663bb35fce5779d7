"""The colour of each tier in figures, on the page and in MLflow: grey, then Okabe and Ito's palette, then Tol's."""

from collections.abc import Sequence
from itertools import cycle

BASELINE = "#7b8794"
OTHERS = ["#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#332288", "#117733", "#882255", "#999933"]


def tier_colors(tiers: Sequence[str]) -> dict[str, str]:
    """Return a colour for each tier, grey for the baseline."""
    return {tiers[0]: BASELINE} | dict(zip(tiers[1:], cycle(OTHERS), strict=False))
