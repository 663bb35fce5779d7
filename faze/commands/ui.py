"""`faze ui`: the results in MLflow's web interface, including training runs in progress."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from faze import tracking
from faze.base.errors import UserError
from faze.base.result_paths import ResultPaths
from faze.base.run_log import read_run
from faze.config.stage_config import controls, trained_tiers
from faze.config.validation import read_config


def main(*, configfile: list[Path] = (), results: Path = Path("results"), port: int = 5000) -> None:
    """Serve the MLflow store on this machine and mirror training runs until interrupted."""
    config = read_config(configfile)
    places = tracking.places(trained_tiers(config), config.run.seeds, controls(config))
    paths, sizes = ResultPaths(results / config.name), {}
    store = tracking.Store(config.tracking, results)
    print(f"{store.share_view(config.name, port)}\nPress Ctrl-C to stop.", flush=True)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    command = [sys.executable, "-m", "mlflow", "ui", "--workers", "1"]
    command += ["--backend-store-uri", store.uri, "--port", f"{port}"]
    light = os.environ | {"MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"}  # two processes instead of fifteen
    server = None if store.is_server else subprocess.Popen(command, env=light, start_new_session=True)
    try:
        while not server or server.poll() is None:
            for place in places:
                follow(store, paths, place, sizes)
            time.sleep(10)
        raise UserError(f"MLflow's server exited with code {server.returncode}: is --port {port} in use?")
    finally:
        if server and server.poll() is None:
            os.killpg(server.pid, signal.SIGTERM)


def follow(store: tracking.Store, paths: ResultPaths, place: tracking.Place, sizes: dict[Path, int]) -> None:
    """Mirror a run's log if its size has changed; after a failure, the next call retries."""
    live, log = paths.live_log(place.tier, place.seed), paths.run_log(place.tier, place.seed)
    log = live if live.exists() else log
    try:
        if log.exists() and (size := log.stat().st_size) != sizes.get(log):
            store.mirror(read_run(log), place)
            sizes[log] = size
    except (UserError, FileNotFoundError) as error:  # the log of a finished run is moved
        print(f"faze ui: {error}", file=sys.stderr)
