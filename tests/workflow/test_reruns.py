"""Changes, the jobs that they re-run in a finished ablation, and the reason that a dry run shows."""

import contextlib
from typing import NamedTuple

import pytest
from checkout import NOTHING, Checkout
from test_ablation import PER_RUN, RUNS, SMOKE, TIERS

pytestmark = pytest.mark.workflow

END = "the end of the file"
PAGE = {"evaluate": 1, "report": 1, "track": 1}
OF_ENGINE = RUNS | PAGE | {"benchmark": 1}
OF_AMP = dict.fromkeys((*PER_RUN, "walk"), 2)  # and of ddp, which builds on it


class Change(NamedTuple):
    """Changes in files, the jobs that run then, and in which rule's block a reason is expected."""

    edits: list[tuple[str, str, str]]  # file, old, new
    jobs: dict[str, int]
    reasons: dict[str, str] = {}


CHANGES = {
    "nothing": Change(
        [("faze/engine/step.py", END, "# a thought\n"), (SMOKE, END, "\nencode:\n  batch: 64\n")],  # the default
        {},
    ),
    "engine": Change([("faze/engine/step.py", END, "\nANOTHER = 1\n")], OF_ENGINE, {"prove": "faze/engine/step.py@"}),
    "walk and learner": Change(
        [
            ("faze/redirection/walk.py", END, "\nANOTHER = 1\n"),
            (SMOKE, "[maml, offset, bayes]", "[maml, bayes]"),
        ],
        dict.fromkeys(("meta_train", "adapt"), len(TIERS) + 1) | {"walk": len(TIERS)} | PAGE,
        {"walk": "faze/redirection/walk.py@"},
    ),
    "page": Change(
        [("faze/report/page.html.j2", END, "<!-- -->\n")], {"report": 1, "track": 1}, {"report": "page.html.j2@"}
    ),
    "value": Change(
        [(SMOKE, "resamples: 100", "resamples: 101")],
        PAGE,
        {"evaluate": "before: 'evaluate.resamples: 100' now: 'evaluate.resamples: 101'"},
    ),
    "tier": Change(
        [(SMOKE, "name: smoke\n", "name: smoke\n\ntiers:\n  amp:\n    tf32: true\n")],
        OF_AMP | PAGE | {"prove": 2, "benchmark": 1},
        {"prove": "before: 'engine.tf32: false' now: 'engine.tf32: true'"},
    ),
    "seed": Change(
        [(SMOKE, "  controls:", "  seeds: [0, 1]\n  controls:")],
        dict.fromkeys((*PER_RUN, "walk"), len(TIERS)) | PAGE,
        {"train": "seed=1"},
    ),
}


@pytest.mark.parametrize("name", CHANGES)
def test_a_change_re_runs_what_depends_on_it(name: str, done: Checkout) -> None:
    change = CHANGES[name]
    with contextlib.ExitStack() as edits:
        for path, old, new in change.edits:
            edits.enter_context(done.appended(path, new) if old == END else done.edited(path, old, new))
        answer = done.dry_run("ablation")
    assert answer.jobs == change.jobs and (NOTHING in answer.text) == (not change.jobs)
    for rule, reason in change.reasons.items():
        assert all(reason in block for block in answer.blocks(rule))
