from pathlib import Path

import pytest

from faze.base.job_times import GUESSES, Forecast, Job, first_guess_s, read_seconds
from faze.config.yaml_files import merge, read_yaml

ROOT = Path(__file__).resolve().parents[2]
DEFAULTS = read_yaml(ROOT / "config/config.yaml")


def job(last_s=None, *, after=(), cores=1, rule="train", guess_s=0.0):
    return Job(rule, rule, cores, frozenset(after), last_s, guess_s)


def test_jobs_run_side_by_side_where_cores_are_free():
    jobs = {0: job(10.0), 1: job(10.0), 2: job(10.0), 3: job(30.0, after=(0,))}
    assert Forecast(jobs, 1).left(0.0) == (60.0, False)
    assert Forecast(jobs, 2).left(0.0) == (40.0, False)  # 0 and 1, then 2 beside 3
    assert Forecast(jobs, 4).left(0.0) == (40.0, False)


def test_a_job_that_claims_every_core_runs_alone():
    jobs = {0: job(10.0), 1: job(20.0, cores=2), 2: job(10.0), 3: job(5.0, cores=16)}
    assert Forecast(jobs, 2).left(0.0)[0] == 10.0 + 20.0 + 5.0


def test_what_is_done_and_what_runs_counts_no_more():
    forecast = Forecast({0: job(10.0), 1: job(10.0, after=(0,))}, 2)
    forecast.start(0, 100.0)
    assert forecast.left(104.0)[0] == pytest.approx(6.0 + 10.0)
    forecast.stop(0, 110.0)
    forecast.start(1, 110.0)
    assert forecast.left(113.0)[0] == pytest.approx(7.0)
    forecast.stop(1, 120.0)
    assert forecast.left(120.0) == (0.0, False)


def test_a_failed_job_is_still_to_be_done():
    forecast = Forecast({0: job(10.0)}, 1)
    forecast.start(0, 0.0)
    forecast.stop(0, 4.0, finished=False)
    assert forecast.running == {} and forecast.left(4.0)[0] == 10.0


def test_a_job_that_takes_longer_than_expected_is_not_over():
    forecast = Forecast({0: job(10.0)}, 1)
    forecast.start(0, 0.0)
    assert forecast.left(100.0)[0] == pytest.approx(10.0)


def test_a_slower_machine_slows_what_is_left():
    forecast = Forecast({0: job(600.0), 1: job(600.0, after=(0,))}, 1)
    forecast.start(0, 0.0)
    forecast.stop(0, 1200.0)
    left_s, guessed = forecast.left(1200.0)
    assert left_s == pytest.approx(600.0 * (1200 + 60) / (600 + 60)) and not guessed


def test_what_never_ran_takes_what_its_rule_takes_else_the_guess():
    forecast = Forecast({0: job(guess_s=500.0), 1: job(guess_s=500.0, after=(0,))}, 1)
    assert forecast.left(0.0) == (1000.0, True)
    forecast.start(0, 0.0)
    forecast.stop(0, 40.0)
    assert forecast.left(40.0) == (40.0, True)
    assert Forecast({0: job(30.0), 1: job(guess_s=500.0)}, 1).left(0.0) == (60.0, True)
    assert Forecast({0: job(30.0), 1: job(guess_s=1.0, rule="report")}, 1).left(0.0) == (31.0, False)


def test_seconds_of_a_benchmark_file(tmp_path):
    file = tmp_path / "train.tsv"
    assert read_seconds(file) is None
    for text, seconds in (("s\th:m:s\tmax_rss\n258.65\t0:04:18\t900\n", 258.65), ("", None), ("s\tx\n-\t1\n", None)):
        file.write_text(text)
        assert read_seconds(file) == seconds


def test_first_guesses_grow_with_the_configuration():
    twice = merge(DEFAULTS, {"train": {"pairs": 2 * DEFAULTS["train"]["pairs"]}})
    small = merge(DEFAULTS, read_yaml(ROOT / "config/smoke.yaml"))
    assert first_guess_s("train", twice, DEFAULTS) - first_guess_s("train", DEFAULTS, DEFAULTS) == GUESSES["train"][1]
    assert all(first_guess_s(rule, small, DEFAULTS) <= first_guess_s(rule, DEFAULTS, DEFAULTS) for rule in GUESSES)
    assert first_guess_s("configure_train", DEFAULTS, DEFAULTS) == 0.0
    people = {"gazecapture_train_people": 48, "gazecapture_train_frames": None}  # as many frames as 240 of 30
    more = merge(DEFAULTS, {"synthetic": people})
    assert first_guess_s("synthesise", more, DEFAULTS) == first_guess_s("synthesise", DEFAULTS, DEFAULTS)


def test_every_stage_has_a_first_guess():
    assert set(GUESSES) == {path.stem for path in (ROOT / "faze/stages").glob("*.py")} - {"__init__"}
