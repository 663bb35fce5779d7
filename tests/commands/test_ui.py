"""`faze ui` serves MLflow's page and mirrors training runs while they train."""

import json
import signal
import subprocess
import sys
import time
import urllib.request

from mlflow import MlflowClient
from ports import answers, free_port


def wait_until(true, seconds=120):
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.2)


def test_page_shows_training_runs_and_ends_with_all_its_processes(tmp_path):
    results, port = tmp_path / "results", free_port()
    start = {"event": "start", "stage": "train", "name": "live", "seed": 0, "config": {}, "config_hash": "c0ffee"}
    start |= {"fingerprint": "0123", "machine": {"processor": "A CPU", "commit": "1a2b"}, "time": 1e9}
    metrics = {"event": "metrics", "step": 1, "values": {"train/loss": 2.0}, "time": 1e9 + 1}
    end = {"event": "end", "seconds": 2, "time": 1e9 + 2}
    logs = {"baseline": ("run.jsonl", [metrics, end]), "amp": ("checkpoint.work/run.jsonl", [metrics])}
    for tier, (name, events) in logs.items():
        log = results / "live" / tier / "seed0" / name
        log.parent.mkdir(parents=True)
        log.write_text("".join(json.dumps(event) + "\n" for event in [start | {"tier": tier}, *events]))
    (tmp_path / "live.yaml").write_text("name: live\nrun: {tiers: [baseline, amp], controls: []}\n")
    command = [sys.executable, "-m", "faze", "ui", "--configfile", tmp_path / "live.yaml"]
    command += ["--results", results, "--port", str(port)]
    with open(tmp_path / "out", "w") as out:
        page = subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT)

    def statuses():
        client = MlflowClient(f"sqlite:///{results}/mlflow.db")
        experiment = client.get_experiment_by_name("faze")
        runs = client.search_runs([experiment.experiment_id]) if experiment else []
        return {run.info.run_name: run.info.status for run in runs}

    try:
        wait_until(lambda: answers(port) or page.poll() is not None)
        assert f"http://127.0.0.1:{port}/#/experiments/" in (tmp_path / "out").read_text()
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/health") as answer:
            assert answer.status == 200
        wait_until(lambda: statuses() == {"0-baseline": "FINISHED", "1-amp": "RUNNING"})
    finally:
        page.send_signal(signal.SIGTERM)
        page.wait(60)
    wait_until(lambda: not answers(port))
