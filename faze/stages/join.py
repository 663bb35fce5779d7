"""Rule `join`: the folds of leave-one-person-out -> one run, whose test people are those of all folds.

Each person's codes and errors come from the network and the learners that have not seen the person. The checkpoint and
the run log are those of the first fold.
"""

import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
from numpy.typing import NDArray

from faze.base.files import whole_file
from faze.data.codes import CodeStore, write_codes
from faze.evaluation.runs import LEFT_OUT, SECONDS, VAL, read_metadata
from faze.fewshot.result_tables import write_tables


def main(*, run: Path, num_folds: int, files: list[str]) -> None:
    """Join each file: copy it, or concatenate the tables or the test people's codes."""
    joined = {".h5": join_codes, ".parquet": join_tables}
    for name in files:
        out, parts = run / name, [run / f"fold{number}" / name for number in range(num_folds)]
        if out.suffix in joined:
            joined[out.suffix](parts, out)
        else:  # of the first fold
            with whole_file(out) as temporary:
                shutil.copyfile(parts[0], temporary)


def join_codes(parts: Sequence[Path], out: Path) -> None:
    """Write the codes of each fold's test people to one store."""
    stores = [CodeStore(path) for path in parts]

    def people() -> Iterator[tuple[str, str, dict[str, NDArray]]]:
        for store in stores:
            for person in store.persons("test"):
                yield person, "test", store[person]

    write_codes(out, stores[0].dataset, people(), pixel_source=stores[0].pixel_source)


def join_tables(parts: Sequence[Path], out: Path) -> None:
    """Concatenate the rows of tables of few-shot learning, and combine their metadata."""
    about = [read_metadata(path) for path in parts]
    write_tables((pq.read_table(path) for path in parts), out, combine(about))


def combine(about: Sequence[dict[bytes, Any]]) -> dict[str, Any]:
    """Combine metadata: reasons are listed together, errors of val people are averaged, and durations are summed."""
    found = {key.decode(): [reason for each in about for reason in each.get(key, [])] for key in LEFT_OUT}
    for key, mean in ((VAL, np.mean), (SECONDS, np.sum)):
        if names := about[0].get(key, {}):
            found[key.decode()] = {name: float(mean([each[key][name] for each in about])) for name in names}
    return found
