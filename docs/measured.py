"""Write measured numbers of the default's baseline into the pages.

snakemake --cores all results/numbers/evaluation --configfile docs/measured/config.yaml
python docs/measured.py results/numbers
snakemake --cores all ablation --configfile config/examples/ssd.yaml    (and the other case studies)
python docs/measured.py results/ssd

docs/measured/ contains the tables of the evaluation and, in about.json, the commit and the machine. Each table on a
page replaces the lines between `<!-- numbers: NAME -->` and `<!-- end -->`. A test fails if a page differs.
"""

import json
import re
import shutil
import sys
from pathlib import Path

import pandas as pd

from faze.evaluation.wording import markdown_table as markdown
from faze.evaluation.wording import memory_change
from faze.report.formats import machine

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / "docs/measured"
TABLES = ("tiers", "person_variance", "redirected")
EXPLANATIONS = ("calibration", "case-studies", "people", "redirection")
PAGES = [*(ROOT / f"docs/explanation/{page}.md" for page in EXPLANATIONS), ROOT / "docs/how-to/weights.md"]
TITLES = {"mpiigaze": "MPIIGaze", "gazecapture": "GazeCapture"}
MARK = re.compile(r"(?<=<!-- numbers: )([\w ]+)( -->\n).*?(?=<!-- end -->)", re.DOTALL)


def keep(evaluation: Path) -> None:
    """Copy the tables of an evaluation; record its commit and machine."""
    for name in TABLES:
        shutil.copyfile(evaluation / f"{name}.csv", FOLDER / f"{name}.csv")
    used = json.loads((evaluation / "summary.json").read_text(encoding="utf-8"))["machine"]
    about = {"commit": used["commit"], "machine": machine(used), "torch": used["torch"]}
    (FOLDER / "about.json").write_text(json.dumps(about, indent=1) + "\n", encoding="utf-8")


def keep_case_study(results: Path) -> None:
    """Copy the table of a case study's page; record its machine, score and noise."""
    shutil.copyfile(results / "report/tiers.csv", FOLDER / f"{results.name}.csv")
    used = json.loads((results / "benchmark/benchmark.json").read_text(encoding="utf-8"))["machine"]
    summary = json.loads((results / "evaluation/summary.json").read_text(encoding="utf-8"))
    scores = {(run["tier"], run["seed"]): run["metrics"]["score/final"] for run in summary["runs"]}
    seed = min(seed for tier, seed in scores if tier == "baseline")
    about = {"commit": used["commit"], "machine": machine(used), "torch": used["torch"]}
    about |= {"score": summary["about"]["score"], "noise": scores["seed", seed] - scores["baseline", seed]}
    path = FOLDER / "case_studies.json"
    known = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    path.write_text(json.dumps(known | {results.name: about}, indent=1, sort_keys=True) + "\n", encoding="utf-8")


def rendered(page: Path) -> str:
    """Return the text of a page with its marked tables."""
    text = page.read_text(encoding="utf-8")

    def filled(mark: re.Match) -> str:
        name, *words = mark[1].split()
        return f"{mark[1]}{mark[2]}{globals()[name](*words)}\n"

    return MARK.sub(filled, text)


def table(name: str, *keys: str) -> pd.DataFrame:
    """Return a stored table, indexed by the keys."""
    return pd.read_csv(FOLDER / f"{name}.csv").set_index(list(keys)).sort_index()


def learners() -> str:
    """Return mean errors by learner, data set and k, and the learners that are not shown to improve on k = 0."""
    errors = table("tiers", "learner", "dataset", "k")
    shots = sorted(set(errors.index.get_level_values("k")) - {0})
    rows = []
    for learner in pd.read_csv(FOLDER / "tiers.csv")["learner"].unique():
        cells = [[f"{value:.2f}" for value in errors.loc[(learner, name), "mean_deg"]] for name in TITLES]
        rows.append([learner if learner == "unadapted" else f"`{learner}`", *(", ".join(cell) for cell in cells)])
    header = ["learner", *(f"{TITLES[name]}, k = {', '.join(map(str, shots))}" for name in TITLES)]
    better = errors["reduction_low"] > 0
    without = [
        f"on {TITLES[name]} {', '.join(f'`{learner}` (k = {listed})' for learner, listed in found.items())}"
        for name in TITLES
        if (found := _unproved(better.xs(name, level="dataset")))
    ]
    return f"{markdown(header, rows)}\n\nNot shown to improve on the unadapted error: {'; '.join(without) or 'none'}."


def _unproved(better: pd.Series) -> dict[str, str]:
    """Return the values of k without a proved improvement, by learner."""
    found = better[~better].reset_index().query("k > 0").groupby("learner")["k"]
    return {learner: ", ".join(map(str, shots)) for learner, shots in found}


def variance() -> str:
    """Return the shares of the squared error that each component of a person's error explains."""
    parts = table("person_variance", "dataset")
    rows = [
        [TITLES[name], f"{parts.rms_deg[name]:.2f}°"]
        + [f"{100 * parts[part][name]:.0f} %" for part in ("offset", "slope", "linear", "rest")]
        for name in TITLES
    ]
    header = ["data set", "root mean square", "a constant", "a slope", "head pose, the other axis", "the rest"]
    return markdown(header, rows)


def redirection() -> str:
    """Return error and gain of redirected strips and their controls."""
    errors = table("redirected", "variant", "number", "dataset")

    def error(variant: str, number: str, name: str, interval: bool = False) -> str:
        found = errors.loc[variant, number, name]
        return f"{found['mean']:.2f}°" + (f" ({found.low:.2f} to {found.high:.2f})" if interval else "")

    variants = {"not_turned": "not turned (upper bound)", "redirected": "redirected", "real": "real (lower bound)"}
    rows = [
        [title]
        + [
            ", ".join(error(key, f"{part}_error_deg", name, key == "redirected") for part in ("gaze", "head"))
            for name in TITLES
        ]
        for key, title in variants.items()
    ]
    for title, key in (("gain", "redirected"), ("gain of real strips", "real")):
        gains = errors["mean"].loc[key]
        rows.append(
            [title] + [", ".join(f"{gains[f'{part}_gain', name]:.2f}" for part in ("gaze", "head")) for name in TITLES]
        )
    rows.append(
        ["to E(b)"]
        + [", ".join(error("redirected", f"{part}_to_real_deg", name) for part in ("gaze", "head")) for name in TITLES]
    )
    return markdown(["", *(f"{TITLES[name]}: gaze, head" for name in TITLES)], rows)


def network() -> str:
    """Return what the default's network achieves, in the order GazeCapture, MPIIGaze, and the references."""
    errors = table("tiers", "learner", "k", "dataset")["mean_deg"]
    similarity = table("redirected", "variant", "number", "dataset")["mean"]

    def cell(values: pd.Series, form: str) -> str:
        return "{} ({})".format(*(form.format(values[name]) for name in reversed(TITLES)))

    rows = [
        ["gaze error, unadapted", cell(errors["unadapted", 0], "{:.2f}°"), ""],
        ["gaze error, `bayes` with 9 samples", cell(errors["bayes", 9], "{:.2f}°"), ""],
        [
            "L1 between redirected and real strips",
            cell(similarity["redirected", "l1"], "{:.3f}"),
            f"not turned: {cell(similarity['not_turned', 'l1'], '{:.3f}')}",
        ],
        [
            "head gain (degrees turned per degree requested)",
            cell(similarity["redirected", "head_gain"], "{:.2f}"),
            f"real strips: {cell(similarity['real', 'head_gain'], '{:.2f}')}",
        ],
    ]
    return markdown(["rendered test people, GazeCapture (MPIIGaze)", "default", "reference"], rows).replace("%", " %")


def case_study(name: str) -> str:
    """Return the tiers of a case study: sameness, speed, memory and score."""
    about = json.loads((FOLDER / "case_studies.json").read_text(encoding="utf-8"))[name]
    tiers = pd.read_csv(FOLDER / f"{name}.csv", keep_default_na=False, na_values=["", "nan"])
    rows = []
    for number, tier in enumerate(tiers.to_dict("records")):
        if number == 0:
            cells = [
                "",
                "",
                f"1 ({tier['step_ms']:.3g} ms)",
                f"1 ({tier['peak_gib']:.3f} GiB)",
                f"{tier['score_mean']:.2f}",
            ]
            rows.append([f"`{tier['tier']}`", *cells])
            continue
        speed = f"{tier['speedup_ratio']:.2f}× ({tier['speedup_low']:.2f} to {tier['speedup_high']:.2f})"
        trained = pd.notna(tier["change_mean"])
        change = (
            f"{tier['change_mean']:+.2f} ({tier['change_low']:+.2f} to {tier['change_high']:+.2f})" if trained else ""
        )
        same = "**no**" if not tier["same"] else "inactive" if pd.notna(tier["idle"]) else "yes"
        if same == "yes" and pd.notna(tier["not_compared"]):
            same = "in float64"
        base = "" if tier["before"] == tiers["tier"][0] else f"on `{tier['before']}`: "
        memory = memory_change(tier["memory_ratio"], tier["memory_differs"])
        rows.append([f"`{tier['tier']}`", base + tier["changed"], same, speed, memory, change])
    header = ["tier", "change", "same experiment", "speed", "peak memory", f"change of: {about['score']}"]
    return (
        f"{markdown(header, rows)}\n\nAnother seed changes the baseline's score by {about['noise']:+.2f}. Measured on "
        f"{about['machine']}, torch {about['torch']}, commit {about['commit'][:8]}."
    )


if __name__ == "__main__":
    for results in map(Path, sys.argv[1:]):
        if (results / "benchmark/proofs.json").exists():
            keep_case_study(results)
        else:
            keep(results / "evaluation")
    for path in PAGES:
        path.write_text(rendered(path), encoding="utf-8")
