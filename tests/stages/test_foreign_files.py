"""Every reader describes damage to any file in one sentence, and never shows a traceback."""

import json
from argparse import Namespace
from collections.abc import Callable
from pathlib import Path

import pytest

from faze.base.errors import UserError
from faze.base.result_paths import ResultPaths
from faze.commands import ledger
from faze.config.parameters import STAGES
from faze.config.stage_config import load
from faze.config.validation import read_config
from faze.data.preparation.splits import read_splits
from faze.data.rejects import read_rejects
from faze.data.store.codes import CodeStore
from faze.data.store.strips import StripStore
from faze.data.store.supplementary import read_supplementary
from faze.evaluation.runs import Ablation, read_benchmark
from faze.fewshot.learner_file import load_learned
from faze.model.weights import load_model
from faze.report import results
from faze.report.dataset_page import read_page
from faze.tracking.run_record import RunPlace, read_training

CONTENT = {
    "nothing": b"",
    "words": b"what is this\n",
    "no text": b"\xff\xfe\x80\n" * 20,
    "list": b"[1, 2]",
    "number": b"3\n",
    "mapping": b'{"format": 1}',
    "torn hdf5": b"\x89HDF\r\n\x1a\n" + bytes(200),
    "torn zip": b"PK\x03\x04" + bytes(200),
}


def read_evaluation(path: Path, summary: bytes | None = None) -> None:
    """Use the file for every table, and for the summary if no other is given."""
    folder = path.parent / "evaluation"
    folder.mkdir()
    for table in results.TABLES:
        (folder / f"{table}.csv").write_bytes(path.read_bytes())
    (folder / "summary.json").write_bytes(summary or path.read_bytes())
    results.read_evaluation(ResultPaths(path.parent))


def read_measured(path: Path) -> None:
    paths = ResultPaths(path.parent)
    paths.benchmark.parent.mkdir()
    paths.benchmark.write_bytes(path.read_bytes())
    read_benchmark(Ablation(paths, ["baseline"], [0], ["maml"], 1, []))


def read_inspection(path: Path) -> None:
    path.rename(path.with_name("summary.json"))
    read_page(path.parent, path.parent, None)


READERS: dict[str, Callable[[Path], object]] = {
    "overrides": lambda path: read_config([path]),
    **{f"{stage}'s own": lambda path, stage=stage: load(path, stage) for stage in STAGES},
    "checkpoint": load_model,
    "learner": lambda path: load_learned(path, None, []),
    "strips": StripStore,
    "codes": CodeStore,
    "supplementary": lambda path: read_supplementary(path, "p00"),
    "splits": read_splits,
    "rejects": read_rejects,
    "run log": lambda path: read_training(path, RunPlace("baseline", 0, 0, "0-baseline")),
    "evaluation": read_evaluation,
    "inspection": read_inspection,
    "benchmark": read_measured,
    "ledger": lambda path: ledger.main.args[0](Namespace(benchmark=path)),
}


@pytest.mark.parametrize("content", CONTENT)
@pytest.mark.parametrize("reader", READERS)
def test_a_foreign_file_is_one_sentence_with_its_name(reader: str, content: str, tmp_path: Path) -> None:
    path = tmp_path / "given"
    path.write_bytes(CONTENT[content])
    try:
        READERS[reader](path)
    except (UserError, OSError) as error:
        assert str(tmp_path) in str(error)
    else:
        assert content == "nothing" and reader == "overrides", "was read as if it were one"


@pytest.mark.parametrize("content", ["nothing", "no text"])
def test_a_torn_table_is_one_sentence_with_its_name(content: str, tmp_path: Path) -> None:
    (tmp_path / "given").write_bytes(CONTENT[content])
    with pytest.raises(UserError, match=r"runs\.csv: .*run evaluate again"):
        summary = dict.fromkeys(("tiers", "learners", "seeds"), []) | {"paper_width": {}, "checksums": {}}
        read_evaluation(tmp_path / "given", json.dumps(summary).encode())
