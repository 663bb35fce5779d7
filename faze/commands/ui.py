"""`faze ui`: MLflow's page of results, including training runs in progress.

faze ui                                      the ablation of config/config.yaml
faze ui --configfile config/smoke.yaml       another one
"""

import signal
import subprocess
import time
from argparse import Namespace
from pathlib import Path

from faze.base.command_line import CONFIGFILE, argument, command, port_number
from faze.base.errors import UserError
from faze.base.result_paths import ResultPaths
from faze.config.check import build
from faze.config.parameters import Run, Tracking
from faze.config.tiers import evaluated_tiers
from faze.config.validation import read_config
from faze.tracking.mirror import Follower
from faze.tracking.run_record import run_places
from faze.tracking.store import PORT, address, open_store, serving, share_view

EVERY_SECONDS = 10.0


@command(
    __doc__,
    CONFIGFILE,
    argument("--results", type=Path, default=Path("results"), help="folder of all ablations"),
    argument("--port", type=port_number(1), default=PORT, help="port of the page, on this machine only"),
)
def main(args: Namespace) -> None:
    """Serve the store and mirror training runs until interrupted."""
    config = read_config(args.configfile)
    run = build(Run, config["run"] | {"tiers": evaluated_tiers(config)})
    store = open_store(build(Tracking, config["tracking"]), args.results)
    share_view(store, config["name"])
    places = run_places(run.tiers, run.seeds, run.controls)
    follower = Follower(store, ResultPaths(args.results / config["name"]), places)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        with serving(store, args.results, args.port) as server:
            print(f"{address(store, config['name'], args.port)}\nEnd with Ctrl-C.", flush=True)
            follow(follower, server)
    except KeyboardInterrupt:
        print("faze ui: ended")


def follow(follower: Follower, server: subprocess.Popen | None) -> None:
    """Mirror the logs of training runs while the server runs."""
    while server is None or server.poll() is None:
        follower.look()
        time.sleep(EVERY_SECONDS)
    raise UserError(f"MLflow's server ended with exit code {server.returncode}")
