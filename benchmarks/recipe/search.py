r"""Search for a recipe: train variants of the baseline with several seeds in parallel; evaluate each on val people.

    python benchmarks/recipe/search.py --data results/default/data/gazecapture.h5 \
        --estimator results/default/estimator/estimator.pt --out results/recipe --only default

The results are the gaze error, measures of redirected strips (L1, spread, right person: faze/model/reconstruction.py),
how far gaze and head turn per requested degree (faze/evaluation/redirected_angles.py), the noise between seeds, and the
CPU time of a training run. A variant is an entry in variants.yaml that overrides the default by dotted keys. For other
people, pass another --data. Finished training runs are read from --out, so an interrupted search resumes, and an
additional variant costs only its own training runs.

`noise`: standard deviation of what remains of the gaze errors when each person's mean over seeds and each seed's mean
over people are subtracted. Differences between tiers must exceed it to support a verdict.
"""

import argparse
import json
import os
import resource
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from faze.base.files import whole_file
from faze.base.geometry import vector_from_pitchyaw
from faze.config.stage_config import resolve, to_lines
from faze.config.tiers import tier_bases
from faze.config.validation import validate
from faze.config.yaml_files import merge, read_yaml, unflatten
from faze.data.network_input import to_network
from faze.data.pairs import load_people
from faze.engine.precision import exact
from faze.evaluation.redirected_angles import GAINS, turning
from faze.model.inference import for_inference
from faze.model.losses import angle_deg
from faze.model.reconstruction import mean_strips, redirect_person, summary
from faze.model.weights import load_model
from faze.redirection.estimator import load_estimator
from faze.redirection.evaluator import evaluate_person, redirect
from faze.redirection.pairs import draw_targets

ROOT = Path(__file__).resolve().parents[2]
STRIPS = 60  # of each val person, redirected


def main() -> None:
    """Train the missing runs, and print a table with a row per variant."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="store of strips with train and val people")
    parser.add_argument("--estimator", type=Path, required=True, help="that sees how far gaze and head turn")
    parser.add_argument("--variants", type=Path, default=Path(__file__).with_name("variants.yaml"))
    parser.add_argument("--out", type=Path, required=True, help="folder of trainings, kept")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--only", nargs="+", help="variants")
    parser.add_argument("--at-once", type=int, default=os.cpu_count(), help="trainings side by side")
    args = parser.parse_args()
    variants = {name: of or {} for name, of in read_yaml(args.variants).items() if not args.only or name in args.only}
    jobs = [(name, of, seed) for seed in args.seeds for name, of in variants.items()]
    with ThreadPoolExecutor(args.at_once) as pool:
        for job in [pool.submit(train_and_judge, args, *job) for job in jobs]:
            job.result()
            print(table(args.out, variants, args.seeds).to_string(float_format="%.3f"), flush=True)


def train_and_judge(args: argparse.Namespace, name: str, overrides: dict[str, object], seed: int) -> None:
    """Train one variant with one seed in a separate process and evaluate it there, unless that is already done."""
    folder = args.out / name / f"seed{seed}"
    config = validate(merge(read_yaml(ROOT / "config" / "config.yaml"), unflatten(overrides)))
    lines = to_lines(resolve(config, "train", next(iter(tier_bases(config))), seed))
    told = folder / "judged.json"
    if told.exists() and json.loads(told.read_text())["config"] == lines:
        return
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "train.yaml").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    for file in ("checkpoint.pt", "run.jsonl"):
        (folder / file).unlink(missing_ok=True)
    command = [sys.executable, __file__, "judge", folder, args.data, args.estimator]
    subprocess.run([str(word) for word in command], check=True, stdout=sys.stderr)


def judge(folder: Path, data: Path, estimator: Path) -> None:
    """Train with the folder's train.yaml, and write the results on its val people."""
    command = [sys.executable, "-m", "faze", "train", "--config", folder / "train.yaml", "--data", data]
    command += ["--out", folder / "checkpoint.pt", "--run-log", folder / "run.jsonl"]
    with (folder / "train.log").open("w") as log:
        subprocess.run([str(word) for word in command], check=True, stdout=log, stderr=log)
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    torch.set_num_threads(1)
    dted = load_model(folder / "checkpoint.pt")
    size = (dted.model.image_height_px, dted.model.image_width_px)
    people, _ = load_people(data, "val", size, min_entries=2)
    places = people.person_indices()

    def read(person: int) -> tuple[Tensor, Tensor]:
        first = slice(STRIPS)
        return to_network(people.gather(places[person][first]), *size), torch.from_numpy(people.labels[person][first])

    estimator = load_estimator(estimator)
    with torch.inference_mode(), exact(dted):
        fast, errors, turned = for_inference(dted), [], []
        for place, labels in zip(places, people.labels, strict=True):
            gaze = fast.gaze_vector(fast.encode(to_network(people.gather(place), *size)).gaze)
            wanted = vector_from_pitchyaw(torch.from_numpy(labels[:, :2]), torch)
            errors.append(float(angle_deg(gaze, wanted).mean()))
        means = mean_strips(len(places), read)
        pictures = summary([redirect_person(fast, read, p, means) for p in range(len(places))], means)
        for number in range(len(places)):
            image, labels = read(number)
            targets, labels = draw_targets(0, len(labels)), labels.numpy()
            images = dict(redirect(fast, image, labels, targets)) | {"real": image[targets]}
            table = evaluate_person(estimator.network, images, labels, targets, np.arange(0))
            turned.append(table.assign(dataset="val", person=number))
    gains = turning(pd.concat(turned))[list(GAINS)].mean()
    lines = (folder / "train.yaml").read_text(encoding="utf-8").splitlines()
    found = {"gaze_deg": errors, "cpu_s": used.ru_utime + used.ru_stime} | dict(pictures)
    with whole_file(folder / "judged.json") as temporary:
        temporary.write_text(json.dumps({"config": lines} | found | gains.to_dict()))


def table(out: Path, variants: dict[str, dict], seeds: list[int]) -> pd.DataFrame:
    """Average the results of each variant over its seeds."""
    rows = {}
    for name in variants:
        paths = [path for seed in seeds if (path := out / name / f"seed{seed}" / "judged.json").exists()]
        if not paths:
            continue
        told = [json.loads(path.read_text()) for path in paths]
        errors = np.array([one["gaze_deg"] for one in told])  # (S, P)
        left = errors - errors.mean(0) - errors.mean(1, keepdims=True) + errors.mean()
        freedom = (errors.shape[0] - 1) * (errors.shape[1] - 1)
        row = {"seeds": len(told), "gaze_deg": errors.mean()}
        row["noise"] = np.sqrt(np.square(left).sum() / freedom) if freedom else np.nan
        keys = ("l1", "own_mean_l1", "spread", "real_spread", "right_person", "real_right_person", *GAINS, "cpu_s")
        rows[name] = row | {key: np.mean([one[key] for one in told]) for key in keys}
    return pd.DataFrame(rows).T


if __name__ == "__main__":
    if sys.argv[1:2] == ["judge"]:
        judge(*map(Path, sys.argv[2:5]))
    else:
        main()
