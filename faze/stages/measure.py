"""Rule `measure`: the benchmark of one tier, next to the baseline and to the tier's own previous state."""

from faze.stages.benchmark import main as main  # its configuration names the tier
