"""Measure the effect of a flipped bit or a truncation on each kind of file.

    python tests/chaos/bits.py results/smoke --flips 300

Each file is read as the stages read it. `noticed` is a one-sentence error, `fault` a traceback, `harmless` the same
content as before, `SILENT` other content without an error, `hung` a reader that does not finish within some seconds.
"""

import argparse
import collections
import contextlib
import dataclasses
import io
import random
import signal
import sys
import tempfile
import zlib
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "tests/shared")]

import numpy as np  # noqa: E402
import pandas as pd  # noqa: E402
import torch  # noqa: E402
from damage import flipped, truncated  # noqa: E402
from data_sets import DATASETS  # noqa: E402
from facts import digest  # noqa: E402

from faze.base.errors import UserError  # noqa: E402
from faze.base.files import read_json  # noqa: E402
from faze.base.logged_run import read_ended_run  # noqa: E402
from faze.config.stage_config import load  # noqa: E402
from faze.data.store.codes import CodeStore  # noqa: E402
from faze.data.store.strips import StripStore  # noqa: E402
from faze.data.store.supplementary import read_supplementary, supplementary_persons  # noqa: E402
from faze.evaluation import runs  # noqa: E402
from faze.evaluation.redirected_angles import read_pairs  # noqa: E402
from faze.evaluation.redirection_tables import read_people  # noqa: E402
from faze.fewshot.learner_file import Learned, load_learned  # noqa: E402
from faze.model.weights import load_model  # noqa: E402
from faze.redirection.estimator import load_estimator  # noqa: E402
from faze.report.results import read_csv  # noqa: E402

PATIENCE_S = 10
TABLE_CHECKSUM = 0  # of the table that is damaged


def content(value: object) -> object:
    """Make a value comparable: arrays and tensors become bytes, objects become their fields."""
    if isinstance(value, torch.Tensor):
        return str(value.dtype), tuple(value.shape), digest(value.contiguous().view(-1).numpy().tobytes())
    if isinstance(value, np.ndarray):
        return str(value.dtype), value.shape, digest(value.tobytes())
    if isinstance(value, pd.DataFrame):
        return digest(value.to_csv())
    if isinstance(value, dict):
        return {key: content(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [content(part) for part in value]
    if dataclasses.is_dataclass(value):
        return {field.name: content(getattr(value, field.name)) for field in dataclasses.fields(value)}
    return value


def strips(path: Path) -> object:
    with StripStore(path) as store:
        store.check(store.persons())
        read = (store.split, store.pixels, store.labels, store.device, store.frame_index)
        read = (*read, store.label_sources, store.validity)
        return {name: [store.file_names(name), *(part(name) for part in read)] for name in store.persons()}


def codes(path: Path) -> object:
    store = CodeStore(path)
    return store.gaze_head, {name: (store.split(name), store[name]) for name in store.persons()}


def annotation(path: Path) -> object:
    return {name: read_supplementary(path, name) for name in supplementary_persons(path)}


def learner(path: Path) -> object:
    learned: Learned = load_learned(path, path.stem, [])
    return dataclasses.replace(learned, seconds=0.0)


KINDS: dict[str, tuple[str, Callable[[Path], object]]] = {
    "strips": ("data/mpiigaze.h5", strips),
    "annotation": ("raw/gazecapture_supplementary.h5", annotation),
    "checkpoint": ("baseline/seed0/checkpoint.pt", lambda path: load_model(path).state_dict()),
    "codes": ("baseline/seed0/codes/mpiigaze.h5", codes),
    "learner": ("baseline/seed0/fewshot/maml.pt", learner),
    "estimator": ("estimator/estimator.pt", lambda path: load_estimator(path).network.state_dict()),
    "errors": ("baseline/seed0/fewshot/maml_errors.parquet", lambda path: runs._read_learner(path, "maml", DATASETS)),
    "redirected people": ("baseline/seed0/redirection.parquet", read_people),
    "redirected pairs": ("baseline/seed0/redirected_pairs.parquet", read_pairs),
    "run log": ("baseline/seed0/run.jsonl", read_ended_run),
    "stage's config": ("baseline/seed0/configs/train.yaml", lambda path: load(path, "train").flat),
    "JSON": ("benchmark/benchmark.json", lambda path: read_json(path, ("tiers",), "")),
    "table": ("evaluation/persons.csv", lambda path: read_csv(path, "", TABLE_CHECKSUM)),
}


def hang(*_: object) -> None:
    raise TimeoutError


def outcome(path: Path, read: Callable[[Path], object], wanted: object) -> str:
    """Read a damaged file, and return the outcome."""
    signal.alarm(PATIENCE_S)
    try:
        with contextlib.redirect_stderr(io.StringIO()):
            return "harmless" if content(read(path)) == wanted else "SILENT"
    except UserError:
        return "noticed"
    except TimeoutError:
        return "hung"
    except Exception:
        return "fault"
    finally:
        signal.alarm(0)


def measure(path: Path, read: Callable[[Path], object], tries: int, seed: int) -> dict[str, collections.Counter]:
    """Damage copies of a file repeatedly, by flipped bits and by truncations, and count the outcomes."""
    draw, before, wanted = random.Random(seed), path.read_bytes(), content(read(path))
    found: dict[str, collections.Counter] = {}
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / path.name
        for harm in (flipped, truncated):
            found[harm.__name__] = collections.Counter()
            for _ in range(tries):
                copy.write_bytes(harm(before, draw)[0])
                found[harm.__name__][outcome(copy, read, wanted)] += 1
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", type=Path, help="results/<name> of a finished ablation")
    parser.add_argument("--flips", type=int, default=300, help="of each kind of file; as many are cut")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", nargs="+", choices=KINDS, default=list(KINDS))
    args = parser.parse_args()
    signal.signal(signal.SIGALRM, hang)
    global TABLE_CHECKSUM
    TABLE_CHECKSUM = zlib.crc32((args.results / KINDS["table"][0]).read_bytes())
    columns = ("noticed", "harmless", "SILENT", "fault", "hung")
    print(f"| file | damage | {' | '.join(columns)} |\n|{'---|' * (2 + len(columns))}")
    for kind, (name, read) in ((kind, KINDS[kind]) for kind in args.only):
        for harm, counts in measure(args.results / name, read, args.flips, args.seed).items():
            print(f"| {kind} | {harm} | {' | '.join(str(counts[column]) for column in columns)} |", flush=True)


if __name__ == "__main__":
    main()
