"""The colour of each tier in figures, on the page and in MLflow. Standard library only."""

from collections.abc import Sequence

BASELINE = "#7b8794"  # grey
DISTINCT = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00")  # Okabe and Ito 2008
# matplotlib's viridis up to 90 %: beyond, it is too pale on white.
VIRIDIS = ("#440154", "#482878", "#3e4a89", "#30698e", "#25848e", "#1fa088", "#38b977", "#73d056", "#bddf26")


def tier_colors(tiers: Sequence[str]) -> dict[str, str]:
    """Return a colour for each tier, grey for the baseline; many tiers get colours from an ordered scale."""
    count = len(tiers) - 1
    found = DISTINCT[:count] if count <= len(DISTINCT) else [_between(tier / (count - 1)) for tier in range(count)]
    return dict(zip(tiers, (BASELINE, *found), strict=True))


def _between(share: float) -> str:
    """Return a colour from the ordered scale, from dark (0) to light (1)."""
    left = min(int(share * (len(VIRIDIS) - 1)), len(VIRIDIS) - 2)
    part = share * (len(VIRIDIS) - 1) - left
    ends = [[int(color[i : i + 2], 16) for i in (1, 3, 5)] for color in VIRIDIS[left : left + 2]]
    return "#" + "".join(f"{round(a + part * (b - a)):02x}" for a, b in zip(*ends, strict=True))
