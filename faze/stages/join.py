"""Rule `join`: the leave-one-person-out folds -> one run, which contains the test people of all folds.

Each person's codes and errors come from a network and learners that were not trained on that person. The checkpoint and
the run log come from the first fold.
"""

import shutil
from collections.abc import Sequence
from pathlib import Path

import pandas as pd
import pyarrow.parquet as pq

from faze.base.files import whole_file
from faze.data.codes import CodeStore, write_codes
from faze.evaluation.runs import LEFT_OUT, SECONDS, VAL, read_metadata
from faze.fewshot.interface import write_tables


def main(*, run: Path, num_folds: int, files: list[str]) -> None:
    """Join each file: concatenate tables and the test people's codes, and copy other files from the first fold."""
    joined = {".h5": join_codes, ".parquet": join_tables}
    for name in files:
        out, parts = run / name, [run / f"fold{number}" / name for number in range(num_folds)]
        if out.suffix in joined:
            joined[out.suffix](parts, out)
        else:  # from the first fold
            with whole_file(out) as temporary:
                shutil.copyfile(parts[0], temporary)


def join_codes(parts: Sequence[Path], out: Path) -> None:
    """Write the codes of each fold's test people to one store."""
    stores = [CodeStore(path) for path in parts]
    people = ((person, "test", store[person]) for store in stores for person in store.persons("test"))
    write_codes(out, stores[0].dataset, people, pixel_source=stores[0].pixel_source)


def join_tables(parts: Sequence[Path], out: Path) -> None:
    """Concatenate error tables; combine the reasons for leaving people out, average val errors, and sum durations."""
    about = pd.DataFrame([read_metadata(path) for path in parts])
    found = {key.decode(): about[key].sum() for key in LEFT_OUT}
    found |= {"val_deg": pd.DataFrame(list(about[VAL])).mean().to_dict()}
    found |= {"seconds": pd.DataFrame(list(about[SECONDS])).sum().to_dict()}
    write_tables((pq.read_table(path) for path in parts), out, found)
