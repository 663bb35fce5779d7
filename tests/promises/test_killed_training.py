"""Promise 1: a training that is killed three times has the weights and the log of an undisturbed one, to the bit."""

import contextlib
import random
from pathlib import Path

import pytest
from processes import until
from stage_training import Training, assert_same_end, kill_group, write_store

pytestmark = pytest.mark.kills

PAIRS, LATEST = 640, 15  # of 20 log lines, so that work remains after the last kill


def logged(training: Training) -> int:
    """Return the number of values' lines in the log of a running training."""
    with contextlib.suppress(FileNotFoundError):
        return (training.work.parent / "run.jsonl").read_text().count('"event": "metrics"')
    return 0


@pytest.mark.parametrize("tier", ["baseline", "ddp"])
def test_a_training_killed_at_drawn_moments_ends_as_an_undisturbed_one(tier: str, tmp_path: Path) -> None:
    data = write_store(tmp_path / "gazecapture.h5")
    for folder in ("undisturbed", "killed"):
        (tmp_path / folder).mkdir()
    undisturbed, killed = (Training(tmp_path / f, data, tier, pairs=PAIRS) for f in ("undisturbed", "killed"))
    undisturbed.finish()
    for lines in sorted(random.Random(tier).sample(range(1, LATEST + 1), 3)):
        process = killed.start()
        until(lambda: logged(killed) >= lines or process.poll() is not None, "a line", pause=0.005)  # noqa: B023
        kill_group(process)
        assert killed.work.exists() and not killed.out.exists(), "nothing was killed"
    assert "resumed after" in killed.finish()
    assert_same_end(killed, undisturbed)
