"""What the readers of benchmark.json share: its older forms. Standard library only."""

from collections.abc import Mapping
from typing import Any


def left_out_rows(leave_one_out: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """Read the leave-one-outs of a benchmark.json: the rung that is left out -> what was measured without it."""
    if "left_out" in leave_one_out:
        return leave_one_out["left_out"]
    # Until version 0.1.0 they stood under `without`, each as without_RUNG.
    return {name.removeprefix("without_"): row for name, row in leave_one_out["without"].items()}
