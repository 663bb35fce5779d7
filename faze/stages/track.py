"""Rule `track`: run logs, results, walks and report -> one flat MLflow run per tier and seed.

If the store does not respond, only this rule fails, after everything else has been written. No value is lost; run the
same command again to retry.
"""

import json
from argparse import Namespace

from faze.base.command_line import CONFIG, argument, command, needed
from faze.base.files import whole_file
from faze.base.locks import output_lock
from faze.base.result_paths import ResultPaths
from faze.config.stage_config import load
from faze.tracking.mirror import mirror_runs
from faze.tracking.run_record import read_runs, read_sweep, run_places
from faze.tracking.store import address, bare, open_store, share_view


@command(
    __doc__,
    CONFIG,
    needed("--results", "results/<name>, with every run evaluated"),
    argument("--points", nargs="+", help="points of a sweep: mirror their training runs and the sweep's page instead"),
    needed("--out", "tracked.json to write"),
)
def main(args: Namespace) -> None:
    """Mirror every run of the ablation and print the address of its chart view."""
    config = load(args.config, "track")
    with output_lock(args.out):
        paths, run = ResultPaths(args.results), config.run
        if args.points:
            records = read_sweep(paths, run_places(args.points, run.seeds))
        else:
            records = read_runs(paths, run_places(run.tiers, run.seeds, run.controls))
        store = open_store(config.tracking, results=args.results.resolve().parent)
        runs = dict(zip((record.place.name for record in records), mirror_runs(store, records), strict=True))
        share_view(store, config.name)
        url = address(store, config.name)
        tracked = {
            "store": bare(store.uri),
            "experiment": config.tracking.experiment,
            "experiment_id": store.experiment_id,
            "runs": runs,
            "address": url,
            "invitation": f"Compare the runs in MLflow: {'' if store.is_server else 'make ui, then '}{url}",
        }
        with whole_file(args.out) as out:
            out.write_text(json.dumps(tracked, indent=2) + "\n", encoding="utf-8")
    print(tracked["invitation"])
