"""The workflow with its results in moto's S3, compared with a local run, and with an S3 that fails."""

import contextlib
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from checkout import NOTHING, Answer, Checkout
from data_sets import overrides
from raw_data import write_mpiifacegaze
from same_results import assert_same_results

from faze.base.run_log import read_events

MADE = "made"  # the prefix of the ablation in the bucket
PROFILE = ("--cores", "2", "--profile", "profiles/s3")
DATA = "results/smoke/data/mpiigaze.h5"  # a target behind two jobs, one of which makes folders


@pytest.fixture(scope="module", autouse=True)
def reached(s3):
    """Set the environment variables that a user would export."""
    from services import KEYS

    with pytest.MonkeyPatch.context() as patch:
        for key, value in {**KEYS, "SNAKEMAKE_STORAGE_S3_ENDPOINT_URL": s3.url}.items():
            patch.setenv(key, value)
        yield


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory):
    """Return checkout(name), which copies the project with only one tier of the smoke ablation."""

    def copied(name: str) -> Checkout:
        own = Checkout(tmp_path_factory.mktemp(name) / "faze", "config/smoke.yaml")
        smoke = own.folder / "config/smoke.yaml"
        text = smoke.read_text(encoding="utf-8")
        for several, one in (("[baseline, amp, ddp, recompute on baseline]", "[baseline]"), ("[rounding]", "[]")):
            assert several in text
            text = text.replace(several, one)
        smoke.write_text(text, encoding="utf-8")
        return own

    return copied


def in_s3(own: Checkout, target: str, prefix: str, *options: str) -> Answer:
    return own.snakemake(target, *storing(prefix), *options)


def storing(prefix: str) -> list[str]:
    return [*PROFILE, "--default-storage-prefix", f"s3://faze/{prefix}"]


@pytest.fixture(scope="module")
def made(checkout) -> tuple[Checkout, Checkout]:
    """Run the ablation twice: with its results on this machine, and with its results in S3."""
    local, stored = checkout("local"), checkout("stored")
    for answer in (local.snakemake("ablation", "--cores", "2"), in_s3(stored, "ablation", MADE)):
        assert answer.code == 0, answer.text[-8000:]
    return local, stored


@pytest.fixture(scope="module")
def fetched(made, s3, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Fetch the ablation's results from S3, and return their folder."""
    folder = tmp_path_factory.mktemp("fetched")
    s3.get(f"{MADE}/results/smoke", folder)
    return folder


def files(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


def without_configs(folder: Path) -> set[str]:
    """Return the files of a folder except the jobs' configurations, which every Snakemake process writes for itself."""
    return {path for path in files(folder) if Path(path).parent.name != "configs"}


def test_results_are_those_of_this_machine_to_the_bit(made, fetched: Path) -> None:
    local = made[0].folder / "results/smoke"
    print(assert_same_results(local, fetched))
    # Neither more nor less, except locks, records of the output cache, marks of folders and the jobs' configurations.
    hidden = (".lock", ".inputs")
    ours = {path for path in without_configs(local) if not path.startswith("output_cache/")}
    ours = {path for path in ours if not path.endswith(hidden)}
    stored = files(fetched)
    assert ours == {path for path in stored if not path.endswith(".whole")}
    assert len(stored - ours) == 5  # walks, two inspections, evaluation, report


def test_page_knows_that_people_are_rendered(fetched: Path) -> None:
    """Regression: rendered people were recognised by a file that no longer exists when the page is made."""
    assert "are rendered, not photographed" in (fetched / "report/index.html").read_text(encoding="utf-8")


def test_no_result_stays_on_this_machine(made) -> None:
    stored = made[1].folder
    assert not [path for path in without_configs(stored / "results") if "/output_cache/" not in path]
    left = {path for path in files(stored / ".snakemake/storage") if "/mlartifacts/" not in path}
    assert not [path for path in left if path.endswith((".h5", ".pt", ".jsonl", ".parquet", ".mp4"))]


def test_nothing_is_left_to_do(made) -> None:
    assert NOTHING in in_s3(made[1], "ablation", MADE, "-n").text


@pytest.mark.parametrize(
    ("old", "new", "jobs"),
    [
        ("resamples: 100", "resamples: 101", {"evaluate": 1, "report": 1, "track": 1}),
        (
            "outer_steps: 20",
            "outer_steps: 21",
            dict.fromkeys(("meta_train", "adapt", "evaluate", "report", "track"), 1),
        ),
    ],
)
def test_a_value_runs_what_knows_it(made, old: str, new: str, jobs: dict[str, int]) -> None:
    with made[1].edited("config/smoke.yaml", old, new):
        assert in_s3(made[1], "ablation", MADE, "-n").jobs == jobs


def test_learners_are_made_anew_in_s3(made, s3, tmp_path: Path) -> None:
    """Regression: to update an output, the plugin tried to copy it from this machine, where it did not exist."""
    errors = "results/smoke/baseline/seed0/fewshot/bayes_errors.parquet"
    with made[1].edited("config/smoke.yaml", "query_entries: 6", "query_entries: 5"):
        answer = in_s3(made[1], errors, MADE)
    assert answer.code == 0, answer.text[-8000:]
    with made[0].edited("config/smoke.yaml", "query_entries: 6", "query_entries: 5"):
        answer = made[0].snakemake(errors, "--cores", "2")
    assert answer.code == 0, answer.text[-8000:]
    s3.get(f"{MADE}/results/smoke/baseline", tmp_path)
    assert_same_results(made[0].folder / "results/smoke/baseline", tmp_path)
    again = made[0].snakemake(errors, "--cores", "2")  # with the values of before: others compare with these results
    assert again.code == 0, again.text[-8000:]


def test_another_checkout_is_refused(made, checkout) -> None:
    """Regression: Snakemake found nothing to do, whatever values the other checkout's config contained."""
    answer = in_s3(checkout("another"), "ablation", MADE, "-n")
    assert_one_sentence(answer, f"s3://faze/{MADE}/results/smoke/ was made from another checkout")


def assert_one_sentence(answer: Answer, words: str) -> None:
    assert answer.code == 1, answer.text
    assert sum(words in line for line in answer.text.splitlines()) == 1, answer.text
    assert "Traceback" not in answer.text
    assert "\nrule " not in answer.text  # nothing was begun


def test_wrong_endpoint_bucket_and_key_are_one_sentence(checkout, s3, monkeypatch: pytest.MonkeyPatch) -> None:
    own = checkout("refused")
    missing = own.snakemake("ablation", *PROFILE, "--default-storage-prefix", "s3://missing/made")
    assert_one_sentence(missing, "s3://missing/made: this bucket cannot be used: An error occurred (404)")
    assert "missing" not in [bucket["Name"] for bucket in s3.client.list_buckets()["Buckets"]]
    s3.ask_for_keys(True)
    try:
        assert_one_sentence(in_s3(own, "ablation", "refused"), "this bucket cannot be used: An error occurred (403)")
    finally:
        s3.ask_for_keys(False)
    monkeypatch.setenv("SNAKEMAKE_STORAGE_S3_ENDPOINT_URL", "http://127.0.0.1:9")
    answer = in_s3(own, "ablation", "refused", "--storage-s3-retries", "1")
    assert_one_sentence(
        answer, 'this bucket cannot be used: Could not connect to the endpoint URL: "http://127.0.0.1:9'
    )


@pytest.fixture
def proxy(s3, monkeypatch: pytest.MonkeyPatch):
    from services import proxy_to

    with proxy_to(s3.port) as before:
        monkeypatch.setenv("SNAKEMAKE_STORAGE_S3_ENDPOINT_URL", before.uri)
        yield before


@pytest.mark.parametrize(("part", "stored"), [("raw/mpiifacegaze", 10), ("data/mpiigaze.h5", 0)])
def test_same_command_goes_on_when_the_server_was_away(made, checkout, s3, proxy, tmp_path: Path, part, stored) -> None:
    """Regression: when storing a folder was interrupted, the files stored so far were used as the complete folder."""
    own, prefix, left = checkout("away"), f"away{stored}", iter(range(stored))
    proxy.at_path("PUT", part, lambda: setattr(proxy, "away", next(left, None) is None))
    answer = in_s3(own, DATA, prefix, "--storage-s3-retries", "1")
    assert answer.code == 1
    assert f"Failed to store output in storage s3://faze/{prefix}/results/smoke/{part}" in answer.text
    proxy.before, proxy.away = lambda number: None, False
    answer = in_s3(own, DATA, prefix)
    assert answer.code == 0, answer.text[-8000:]
    s3.get(f"{prefix}/results/smoke", tmp_path)
    local = made[0].folder / "results/smoke"
    assert files(tmp_path / "raw/mpiifacegaze") == files(local / "raw/mpiifacegaze")
    assert (tmp_path / "data/mpiigaze.h5").read_bytes() == (local / "data/mpiigaze.h5").read_bytes()


def test_killed_with_all_its_jobs_the_same_command_goes_on(made, checkout, s3, proxy, tmp_path: Path) -> None:
    """Snakemake and its jobs are killed with -9 while storing a folder, a file or the page, and during training."""
    own, training = checkout("killed"), "results/smoke/baseline/seed0"
    copies = own.folder / ".snakemake/storage/s3/faze/killed"

    def killed(arm: Callable[[Callable[[], None]], None]) -> None:
        log = tmp_path / "killed.log"
        process = own.start("ablation", *storing("killed"), log=log)
        arm(lambda: os.killpg(process.pid, signal.SIGKILL))
        assert process.wait(600) == -signal.SIGKILL, log.read_text()[-8000:]
        proxy.before = lambda number: None

    def amid_training(kill: Callable[[], None]) -> None:
        ends = time.monotonic() + 300
        while not (copies / training / "train.work/checkpoint.pt").exists():
            assert time.monotonic() < ends
            time.sleep(0.01)
        kill()

    def fifth_of_raw(kill: Callable[[], None]) -> None:
        left = iter(range(4))
        proxy.at_path("PUT", "raw/mpiifacegaze", lambda: kill() if next(left, None) is None else None)

    killed(fifth_of_raw)
    killed(lambda kill: proxy.at_path("PUT", "data/gazecapture.h5", kill))
    killed(amid_training)
    killed(lambda kill: proxy.at_path("PUT", "report/index.html", kill))
    answer = in_s3(own, "ablation", "killed")
    assert answer.code == 0, answer.text[-8000:]
    s3.get("killed/results/smoke", tmp_path / "fetched")
    assert_same_results(made[0].folder / "results/smoke", tmp_path / "fetched")
    assert [event for event in read_events(tmp_path / "fetched/baseline/seed0/run.jsonl") if event["event"] == "resume"]


def test_killed_alone_its_orphan_and_the_same_command_do_not_write_together(made, checkout, s3, tmp_path: Path) -> None:
    own, checkpoint, log = checkout("orphan"), "results/smoke/baseline/seed0/checkpoint.pt", tmp_path / "orphan.log"
    work = own.folder / ".snakemake/storage/s3/faze/orphan" / Path(checkpoint).parent / "train.work"
    process = again = own.start(checkpoint, *storing("orphan"), log=log)
    try:
        while not (work / "checkpoint.pt").exists():
            assert process.poll() is None, log.read_text()[-8000:]
            time.sleep(0.01)
        process.kill()
        os.killpg(process.pid, signal.SIGSTOP)  # until the second has met it
        again = own.start(checkpoint, *storing("orphan"), log=log)
        while "held by process" not in log.read_text():
            assert again.poll() is None, log.read_text()[-8000:]
            time.sleep(0.01)
        os.killpg(process.pid, signal.SIGCONT)
        assert again.wait(300) == 0, log.read_text()[-8000:]
    finally:
        for group in (process.pid, again.pid):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(group, signal.SIGKILL)
    s3.get("orphan/results/smoke/baseline/seed0", tmp_path / "fetched")
    stored, wanted = (
        torch.load(folder / "checkpoint.pt", weights_only=True)["model"]
        for folder in (tmp_path / "fetched", made[0].folder / "results/smoke/baseline/seed0")
    )
    assert all(torch.equal(stored[name], value) for name, value in wanted.items())


def test_raw_data_and_results_lie_each_where_it_is_said(checkout, s3, tmp_path: Path) -> None:
    write_mpiifacegaze(tmp_path / "raw")
    s3.put(tmp_path / "raw", "shared/MPIIFaceGaze")
    strips = []
    for raw, options in (
        (tmp_path / "raw", [*PROFILE, "--default-storage-prefix", "s3://faze/of_raw"]),
        ("s3://faze/shared/MPIIFaceGaze", ["--cores", "2"]),
    ):
        own = checkout("of_raw")
        with own.appended("config/smoke.yaml", overrides(mpiigaze={"path": raw})):
            answer = own.snakemake(DATA, *options)
        assert answer.code == 0, answer.text[-8000:]
        assert "rule synthesise" not in answer.text
        strips.append(own.folder / DATA)
    s3.get("of_raw", tmp_path / "fetched")
    assert not strips[0].exists()
    assert (tmp_path / "fetched" / DATA).read_bytes() == strips[1].read_bytes()
