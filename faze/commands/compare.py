"""`faze compare RUN [RUN]`: how speed, memory and errors of a tier changed between two runs, and what else changed.

A run is an MLflow run's id or name, or a commit, which stands for the last run of each tier with this commit's code.
A single run is compared with the newest run of the same tier.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

from faze import tracking
from faze.base.errors import UserError
from faze.config.validation import read_config
from faze.evaluation.records import Record, list_changes
from faze.evaluation.wording import markdown_table
from faze.report.answer import Row, compare_records


def main(runs: list[str], *, configfile: list[Path] = (), results: Path = Path("results")) -> None:
    """Print a table for each tier that both runs contain.

    Args:
        runs: one or two runs, the earlier one first
        configfile: configuration files, if `tracking` differs from the defaults
        results: folder of the default MLflow store
    """
    records = tracking.Store(read_config(configfile).tracking, results).records()
    before, after = find(records, runs[0]), find(records, "".join(runs[1:2]))
    for key in (shared := [key for key in after if key in before]):
        old, new = before[key], after[key]
        columns = [f"{record['run_name']}, {record['machine']['commit'][:9]}" for record in (old, new)]
        header = [f"{new['tier']} of {new['name']}", *columns, *Row._fields[3:]]
        print("\n".join([markdown_table(header, compare_records(old, new)), "", *list_changes(old, new), ""]))
    if not shared:
        raise UserError(f"no tier is part of both {' and '.join(runs)}")


def find(records: Sequence[Record], run: str) -> Mapping[tuple[str, str], Record]:
    """Return the newest record of each ablation's tiers that belong to a run; an empty name stands for all runs."""
    found = {}
    for record in reversed(records):
        if record["run_name"] == run or record["run"] == run or record["machine"]["commit"].startswith(run):
            found[record["name"], record["tier"]] = record
    if not found:
        known = sorted({f"{record['run_name']} ({record['machine']['commit'][:9]})" for record in records})
        raise UserError(f"no MLflow run has the id, name or commit {run}; known runs: {', '.join(known) or 'none'}")
    return found
