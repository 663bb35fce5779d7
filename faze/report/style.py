"""The style of figures and pages, with colours that colour-blind readers can distinguish."""

import functools
from collections.abc import Sequence

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure

WIDTH = 11.2  # of figures, inches
INK, MUTED, RULE, BAND = "#1f2933", "#616e7c", "#d9dfe5", "#e9eef3"
REFERENCE = "#b42318"  # results of the talk and the paper next to ours
ON_LINES = {"facecolor": "white", "edgecolor": "none", "pad": 1.0}  # box of a label in front of lines
_LEARNERS = (
    *("#5b21b6", "#0f766e", "#b45309", "#9f1239", "#1e3a8a"),
    *("#3f6212", "#0284c7", "#db2777", "#525252", "#ca8a04"),
)
MARKERS = ("o", "s", "D", "^", "v", "P", "X", "<", ">", "h", "p", "*")

_RC = {
    "font.family": "DejaVu Sans",
    "font.size": 10,
    "axes.edgecolor": MUTED,
    "axes.labelcolor": INK,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.titlelocation": "left",
    "axes.titlesize": 11,
    "axes.titleweight": "bold",
    "axes.titlepad": 10,
    "axes.axisbelow": True,
    "hatch.linewidth": 0.6,
    "grid.color": RULE,
    "grid.linewidth": 0.8,
    "legend.frameon": False,
    "text.color": INK,
    "xtick.color": MUTED,
    "ytick.color": MUTED,
    "xtick.labelcolor": INK,
    "ytick.labelcolor": INK,
    "text.parse_math": False,  # names of people may contain $
    "svg.hashsalt": "faze",  # makes files reproducible
}
drawing = functools.partial(matplotlib.rc_context, _RC)  # context manager that applies this style


def learner_colors(learners: Sequence[str]) -> dict[str, str]:
    """Return the colour of each learner."""
    return {learner: _LEARNERS[i % len(_LEARNERS)] for i, learner in enumerate(learners)}


def panels(width: float, height: float, rows: int, columns: int, **settings: object) -> tuple[Figure, list[list[Axes]]]:
    """Create a figure (size in inches) and its grid of axes."""
    figure = Figure(figsize=(width, height), layout="constrained")
    figure.get_layout_engine().set(w_pad=0.12, h_pad=0.08, wspace=0.04, hspace=0.06)
    return figure, figure.subplots(rows, columns, squeeze=False, **settings).tolist()
