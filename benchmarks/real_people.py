"""Closed-form learners on the errors of published networks for real people, without their pictures.

    python benchmarks/real_people.py FOLDER [--nested]

The folder contains one .npz file per network. The arrays of person P are either P_predicted and P_label, (n, 2) pitch
and yaw in radians from a network that has not seen P, or P_features, (n, d) a network's last features, and P_target_cm,
(n, 2) a point on the screen. Rows from 1,500 on are ignored, because the files used here contain mirrored eyes there.

Each person is left out in turn: two thirds of the other people teach the prior, the rest scale it. The estimate of
gaze is the gaze code, and head pose is unknown (0), so `kappa` is a rotation in the camera's frame. For features, the
estimate is a linear map learnt from the other people, and the features are the code. Learners that take gradient steps
are left out, because they adapt a gaze head, which these files do not contain. "normal" marks the same learner with
normal noise instead of noise with heavy tails.

Differences from `offset` are paired by person: a person's error is the mean over draws, and for several networks over
networks. Intervals are Student's t over people at 95 %, and p-values are adjusted for the tested k by Holm's method.
--nested also chooses a learner for each person from the errors of other people only.
"""

import argparse
import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from fewshot import settings as paper_settings
from numpy.typing import NDArray

from faze.base.geometry import pitchyaw_from_vector, vector_from_pitchyaw
from faze.config.parameters import Fewshot
from faze.evaluation.diagnostics import residual_squares
from faze.evaluation.statistics import Comparison, compare, holm
from faze.evaluation.wording import signed
from faze.fewshot.interface import Adaptation, MetaTraining
from faze.fewshot.learner_file import Learned
from faze.fewshot.learners import LEARNERS
from faze.fewshot.person_codes import PersonCodes, draw_calibrations, unadapted_error_deg

LEARNT, NORMAL = ("affine", "kappa", "bayes", "gp"), " normal"
NAMES = ("offset", *LEARNT, *(name + NORMAL for name in ("affine", "bayes", "gp")))
TESTED, TOLD = (1, 3, 5, 9), (1, 3, 5, 9, 18)  # values of k in the tests and in the tables
ROWS, QUERY = 1500, 500
DEG_PER_CM = 0.1  # points on a screen become small angles, so that their geometry is flat
FOLDS, FOLD_DRAWS = 5, 3  # of the nested choice


class Network(NamedTuple):
    """The people of one file."""

    name: str
    people: list[PersonCodes]
    unit: str  # of errors: ° or cm
    features: list[NDArray[np.float64]]  # (n, d) of each person; empty for angles

    @property
    def scale(self) -> float:
        """Degrees per unit."""
        return 1.0 if self.unit == "°" else DEG_PER_CM


class Found(NamedTuple):
    """The results of one learner and network."""

    errors: NDArray[np.float64]  # (P, K) mean over draws
    covered: NDArray[np.float64]  # (P, K, 2) shares inside the 68 and 95 % regions; nan for learners without regions


def read_network(path: Path) -> Network:
    """Read one file; the module's docstring describes the arrays."""
    with np.load(path) as file:
        arrays = {name: file[name][:ROWS].astype(np.float64) for name in file.files}
    predicted = sorted(name.removesuffix("_predicted") for name in arrays if name.endswith("_predicted"))
    if predicted:
        people = [person(p, arrays[f"{p}_predicted"], arrays[f"{p}_label"]) for p in predicted]
        return Network(path.stem, people, "°", [])
    names = sorted(name.removesuffix("_features") for name in arrays if name.endswith("_features"))
    features = [arrays[f"{name}_features"] for name in names]
    points = [np.radians(DEG_PER_CM * arrays[f"{name}_target_cm"]) for name in names]
    people = [person(p, np.zeros_like(y), y, x) for p, x, y in zip(names, features, points, strict=True)]
    return Network(path.stem, people, "cm", features)


def person(name: str, estimate: NDArray, label: NDArray, code: NDArray | None = None) -> PersonCodes:
    """Create a person from an estimate and a label, (n, 2) radians; the code is the estimate unless it is given."""
    code = (estimate if code is None else code).astype(np.float32)
    gaze, gaze_hat = vector_from_pitchyaw(label), vector_from_pitchyaw(estimate)
    return PersonCodes(name, "real", "test", code, gaze, gaze_hat, np.zeros_like(label))


def left_out(network: Network, index: int, of: Sequence[int]) -> tuple[PersonCodes, list[PersonCodes]]:
    """Return one person, and the others of `of`; features are mapped to estimates learnt from these others."""
    others = [other for other in of if other != index]
    if not network.features:
        return network.people[index], [network.people[other] for other in others]
    design = [np.column_stack([np.ones(len(x)), x]) for x in network.features]
    labels = [pitchyaw_from_vector(p.gaze) for p in network.people]
    stacked = (np.concatenate([rows[other] for other in others]) for rows in (design, labels))
    weights = np.linalg.lstsq(*stacked, rcond=None)[0]

    def mapped(at: int) -> PersonCodes:
        return dataclasses.replace(network.people[at], gaze_hat=vector_from_pitchyaw(design[at] @ weights))

    return mapped(index), [mapped(other) for other in others]


def learnt(name: str, others: Sequence[PersonCodes], settings: Fewshot) -> Learned:
    """Train a learner on two thirds of the people, and scale its prior on the rest."""
    first = round(len(others) * 2 / 3)
    training = MetaTraining(others[:first], others[first:], settings, seed=0)
    return LEARNERS[name].meta_train(training)


def with_noise(name: str, learned: Learned) -> Learned:
    """Replace the noise of a learner by normal noise if its name says so."""
    if not name.endswith(NORMAL):
        return learned
    return dataclasses.replace(learned, state=learned.state | {"dof": torch.tensor([1e9], dtype=torch.float64)})


def adapted(name: str, learned: Learned, someone: PersonCodes, settings: Fewshot) -> tuple[NDArray, NDArray]:
    """Return the error in degrees (K,), and the covered shares (K, 2), of one person."""
    calibrations = draw_calibrations([someone], settings, repeats=settings.repeats)
    errors = LEARNERS[name.removesuffix(NORMAL)].errors(with_noise(name, learned), Adaptation(calibrations, settings))
    shape = len(settings.shots), settings.repeats
    return errors.adapted_deg.reshape(shape).mean(axis=1), errors.covered.reshape(*shape, 2).mean(axis=1)


def evaluate(network: Network, names: Sequence[str], settings: Fewshot) -> dict[str, Found]:
    """Leave each person out in turn; the result for "none" is the unadapted error at every k."""
    everyone, rows = range(len(network.people)), {name: [] for name in ("none", *names)}
    for index in everyone:
        someone, others = left_out(network, index, everyone)
        nothing = np.full(len(settings.shots), unadapted_error_deg(someone, QUERY))
        rows["none"].append((nothing, np.full((len(settings.shots), 2), np.nan)))
        trained = {name: learnt(name, others, settings) for name in {n.removesuffix(NORMAL) for n in names}}
        for name in names:
            rows[name].append(adapted(name, trained[name.removesuffix(NORMAL)], someone, settings))
    found = {name: [np.stack(part) for part in zip(*of, strict=True)] for name, of in rows.items()}
    return {name: Found(errors / network.scale, covered) for name, (errors, covered) in found.items()}


def difference(errors: NDArray[np.float64], reference: NDArray[np.float64]) -> Comparison:
    """Compare the errors of the same people (P,), with a two-sided interval at 95 %."""
    return compare(errors - reference, margin=1.0, alpha=0.025)


def table_of(network: Network, found: Mapping[str, Found], shots: Sequence[int]) -> Iterator[str]:
    """Format the mean errors with their intervals, the differences from `offset`, and the coverage at k = 9."""
    told = [k for k in TOLD if k in shots]
    yield f"| {network.name} ({network.unit}) | " + " | ".join(f"k = {k}" for k in told) + " | covered 68, 95 % |"
    yield "|---" * (len(told) + 2) + "|"
    for name, (errors, covered) in found.items():
        cells = []
        for place in map(list(shots).index, told):
            mean = difference(errors[:, place], np.zeros(len(errors)))
            cell = f"{mean.difference:.2f} ± {mean.high - mean.difference:.2f}"
            if name not in ("none", "offset"):
                cell += f" ({told_difference(difference(errors[:, place], found['offset'].errors[:, place]))})"
            cells.append(cell)
        shares = covered[:, list(shots).index(9)].mean(axis=0) * 100 if 9 in shots else np.full(2, np.nan)
        told_shares = "" if np.isnan(shares).any() else f"{shares[0]:.0f}, {shares[1]:.0f}"
        yield f"| `{name}` | " + " | ".join(cells) + f" | {told_shares} |"


def told_difference(found: Comparison) -> str:
    """Format a difference with half the width of its interval, such as −0.13 ± 0.07."""
    return f"{signed(found.difference)} ± {found.high - found.difference:.2f}"


def pooled(results: Sequence[Mapping[str, Found]], shots: Sequence[int], reference: str) -> Iterator[str]:
    """Compare each learner with a reference, with people as the unit and their mean over networks as the error."""
    tested = [k for k in TESTED if k in shots]
    yield f"| {len(results)} networks, minus `{reference}` | " + " | ".join(f"k = {k}" for k in tested) + " | worse |"
    yield "|---" * (len(tested) + 2) + "|"
    for name in [name for name in results[0] if name not in ("none", reference)]:
        pairs = [(result[name].errors, result[reference].errors) for result in results]
        ours, theirs = (np.mean(errors, axis=0) for errors in zip(*pairs, strict=True))  # (P, K)
        compared = [difference(ours[:, at], theirs[:, at]) for at in map(list(shots).index, tested)]
        adjusted = holm([one.difference_p for one in compared])
        cells = [f"{told_difference(one)}, p = {p:.4f}" for one, p in zip(compared, adjusted, strict=True)]
        each = [difference(a[:, at], b[:, at]) for a, b in pairs for at in range(len(shots))]
        yield f"| `{name}` | " + " | ".join(cells) + f" | {sum(one.low > 0 for one in each)} of {len(each)} |"


def components(network: Network) -> str:
    """Format the shares of a person's squared error, as faze.evaluation.diagnostics.person_variance does."""
    codes = [
        {"gaze": pitchyaw_from_vector(p.gaze), "gaze_hat": p.gaze_hat, "head": np.zeros_like(p.head)}
        for p in network.people
    ]
    total, offset, slope, rest = np.mean([residual_squares(one) for one in codes], axis=0)
    shares = np.array([total - offset, offset - slope, slope - rest, rest]) / total * 100
    return f"| {network.name} | {total**0.5:.2f}° | " + " | ".join(f"{share:.0f} %" for share in shares) + " |"


def nested(networks: Sequence[Network], results: Sequence[Mapping[str, Found]], settings: Fewshot) -> Iterator[str]:
    """Choose a learner for each person from the other people only, and compare its errors with those of `offset`.

    The others are divided into folds. A learner trained without a fold and without the person is measured on the fold,
    and the one with the least mean error over folds, networks and tested k is chosen.
    """
    fewer = dataclasses.replace(settings, shots=TESTED, repeats=FOLD_DRAWS)
    places, chosen, rows = [settings.shots.index(k) for k in TESTED], [], []
    for index in range(len(networks[0].people)):
        others = [other for other in range(len(networks[0].people)) if other != index]
        sums = dict.fromkeys(NAMES, 0.0)
        for network in networks:
            for fold in np.array_split(others, FOLDS):
                of_rest = [network.people[other] for other in others if other not in fold]
                trained = {name: learnt(name, of_rest, fewer) for name in ("offset", *LEARNT)}
                for name in NAMES:
                    learned = trained[name.removesuffix(NORMAL)]
                    sums[name] += sum(adapted(name, learned, network.people[at], fewer)[0].mean() for at in fold)
        chosen.append(min(sums, key=lambda name: sums[name]))
        pairs = [result[chosen[-1]].errors[index] - result["offset"].errors[index] for result in results]
        rows.append(np.mean(pairs, axis=0)[places])
    compared = [difference(column, np.zeros(len(column))) for column in np.array(rows).T]
    adjusted = holm([one.difference_p for one in compared])
    yield "chosen: " + ", ".join(f"{name} {chosen.count(name)}" for name in sorted(set(chosen)))
    for k, one, p in zip(TESTED, compared, adjusted, strict=True):
        yield f"k = {k}: {told_difference(one)}, p = {p:.4f}"


def main() -> None:
    """Print the tables of every network in the folder, and of all networks that estimate angles together."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--shots", type=int, nargs="+", default=list(range(1, 19)))
    parser.add_argument("--repeats", type=int, default=10, help="draws per person and k")
    parser.add_argument("--nested", action="store_true", help="also choose a learner on other people")
    args = parser.parse_args()
    paths = sorted(args.folder.glob("*.npz"))
    if not paths:
        parser.error(f"{args.folder}: contains no .npz file")
    if args.nested and not set(TESTED) <= set(args.shots):
        parser.error(f"--nested needs k = {', '.join(map(str, TESTED))} in --shots")
    settings = paper_settings(shots=tuple(args.shots), repeats=args.repeats, query_entries=QUERY, record_steps=())
    networks = [read_network(path) for path in paths]
    results = []
    for network in networks:
        results.append(evaluate(network, NAMES, settings))
        print("\n".join(table_of(network, results[-1], args.shots)), flush=True)
    angles = [pair for pair in zip(networks, results, strict=True) if pair[0].unit == "°"]
    if angles:
        of_angles, found = zip(*angles, strict=True)
        print("\n".join(pooled(found, args.shots, "offset")))
        print("\n".join(gain_of_noise(found, args.shots)))
        print("\n".join(["| network | rms | offset | slope | linear | rest |", "|---" * 6 + "|"]))
        print("\n".join(map(components, of_angles)), flush=True)
        if args.nested:
            print("\n".join(nested(of_angles, found, settings)))


def gain_of_noise(results: Sequence[Mapping[str, Found]], shots: Sequence[int]) -> Iterator[str]:
    """Compare each learner with the same learner with normal noise."""
    for name in NAMES:
        if name.endswith(NORMAL):
            pair = (name.removesuffix(NORMAL), name)
            yield from pooled([{one: result[one] for one in pair} for result in results], shots, name)


if __name__ == "__main__":
    main()
