"""Compare two runs of one ablation, which must be bit-identical in everything that is not measured."""

from pathlib import Path

import pandas as pd
import torch
from stage_training import measured
from table_content import table_content

MEASURED = ("evaluation/performance.csv", "report/table.csv")  # hold nothing but what is measured


def assert_same_results(one: Path, other: Path) -> dict[str, int]:
    """Compare all results of the first run with the other run's.

    Returns:
        The number of compared files of each kind, at least one of each.
    """
    compared = {"checkpoint.pt": 0, "run.jsonl": 0, ".parquet": 0, ".csv": 0}
    for path in sorted(one.rglob("*")):
        same, kind = other / path.relative_to(one), path.suffix if path.suffix in compared else path.name
        if kind not in compared or str(path.relative_to(one)) in MEASURED:
            continue
        assert same.exists(), same
        assert _content(path, kind) == _content(same, kind), path
        compared[kind] += 1
    assert all(compared.values()), compared
    return compared


def _content(path: Path, kind: str) -> object:
    if kind == "checkpoint.pt":
        return {name: value.numpy().tobytes() for name, value in torch.load(path, weights_only=True)["model"].items()}
    if kind == "run.jsonl":
        return measured(path)
    if kind == ".parquet":
        return table_content(path)
    table = pd.read_csv(path)
    return table.drop(columns=[name for name in table if name.startswith("rate_")]).to_csv()
