import json
import signal
import socket
import subprocess
import sys
import time
import urllib.request

import pytest
from ports import answers, free_port
from tracking_tree import ROOT, TIERS, write_results

from faze.config.parameters import Tracking
from faze.tracking.store import current_runs, open_store, serving


def wait_until(true, seconds=120):
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.2)


def test_the_page_serves_runs_under_way_and_ends_with_all_its_processes(tmp_path):
    results, port = tmp_path / "results", free_port()
    paths = write_results(results / "live", TIERS[:1], steps=4)
    work = paths.run("amp", 0) / "train.work"
    work.mkdir(parents=True)
    lines = paths.run_log("baseline", 0).read_text().splitlines()
    start = json.loads(lines[0]) | {"tier": "amp"}
    (work / "run.jsonl").write_text("\n".join([json.dumps(start), *lines[1:6]]) + "\n")
    (tmp_path / "live.yaml").write_text("name: live\nrun: {tiers: [baseline, amp]}\n")
    command = [sys.executable, "-m", "faze", "ui", "--configfile", tmp_path / "live.yaml"]
    command += ["--results", results, "--port", str(port)]
    with open(tmp_path / "out", "w") as out:
        page = subprocess.Popen(command, cwd=ROOT, stdout=out, stderr=subprocess.STDOUT)
        try:
            wait_until(lambda: "Ctrl-C" in (tmp_path / "out").read_text() or page.poll() is not None)
            assert f"http://127.0.0.1:{port}/#/experiments/" in (tmp_path / "out").read_text()
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/health") as answer:
                assert answer.status == 200
            store = open_store(Tracking("faze", None), results)
            wait_until(lambda: len(store.client.search_runs([store.experiment_id], current_runs("live"))) == 2)
        finally:
            page.send_signal(signal.SIGTERM)
            assert page.wait(60) == 0
    wait_until(lambda: not answers(port))
    status = {r.info.run_name: r.info.status for r in store.client.search_runs([store.experiment_id])}
    assert status == {"0-baseline": "FINISHED", "1-amp": "RUNNING"}
    assert "mlflow.sharedViewState.live" in store.client.get_experiment(store.experiment_id).tags

    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(ValueError, match=f"port {port} is taken"), serving(store, results, port):
            pass
