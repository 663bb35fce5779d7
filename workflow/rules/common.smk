# Shared by all rules: the checked configuration, and the values and code on which each job depends besides its files.
import functools
import os
import sys
from pathlib import Path

from snakemake.exceptions import WorkflowError

from faze.base.code_hash import sources
from faze.base.errors import UserError
from faze.base.machine import check_environment, usable_cores
from faze.config.parameters import CONTROLS, DTED, RENDERED, STAGES
from faze.config.stage_config import DEVICE, auto_device, controls, data_sets, given_tiers, learners, listed, resolve
from faze.config.stage_config import resolve_tier, to_lines, trained_tiers, training_set
from faze.config.validation import SPLITS, read_config
from faze.weights import network_path

try:
    check_environment()
    if workflow.config_settings.config:
        raise UserError("--config is not supported: put the values in a YAML file with a `name`, and use --configfile")
    settings = read_config(workflow.overwrite_configfiles)
except UserError as error:
    raise WorkflowError(f"nothing was started:\n{error}") from None
os.environ[DEVICE] = auto_device(settings)  # for jobs on other nodes
os.environ["PATH"] = f"{Path(sys.executable).parent}:{os.environ['PATH']}"

GAZE = settings.workload == DTED  # otherwise, a user's own training
ROOT = f"results/{settings.name}"
TIERS, SEEDS, GIVEN = trained_tiers(settings), settings.run.seeds, list(given_tiers(settings))
OWN = [tier for tier in settings.tiers if not settings.tiers[tier].given]  # the rest are networks of other projects
config |= {"name": settings.name, "tiers": TIERS, "range_deg": settings.walk.range_deg}  # for captions
DATASETS, TRAINING_SET = data_sets(settings), training_set(settings).name
TRAINED_ON = [f"{ROOT}/data/{TRAINING_SET}.h5"] if GAZE else []  # other workloads provide their own data
START = [str(network_path(settings.train.start))] if settings.train.start else []
PROOF, PROOFS = f"{ROOT}/benchmark/proofs/{{tier}}.json", f"{ROOT}/benchmark/proofs.json"
# With leave-one-person-out, each run has one folder per fold; the rule `join` combines their results.
FOLDS = [f"/fold{number}" for number in range(training_set(settings).folds or 0)]
RUN, FOLD = f"{ROOT}/{{tier}}/seed{{seed}}", f"{ROOT}/{{tier}}/seed{{seed}}{{fold}}"
CORES = min(workflow.resource_settings.cores or 1, usable_cores())
if workflow.resource_settings.cores:
    workflow.global_resources["_cores"] = CORES  # --cores all ignores a container's quota


wildcard_constraints:
    tier="|".join([*OWN, *CONTROLS]),
    seed=r"\d+",
    fold=r"/fold\d+" if FOLDS else "(?:)",
    dataset="|".join(DATASETS),


def every_run(paths, with_controls=True):
    """Return the paths for every tier and seed and, with the first seed only, for every noise control."""
    found = expand(paths, tier=TIERS, seed=SEEDS, allow_missing=True)
    return found + expand(paths, tier=controls(settings) * with_controls, seed=SEEDS[0], allow_missing=True)


@functools.cache
def own_config(stage, tier=None, seed="0", dataset=TRAINING_SET, fold="/fold0"):
    """Return the lines of a stage's own configuration: the values on which the stage depends."""
    fold_number = int(fold.removeprefix("/fold") or 0)
    return to_lines(resolve(settings, stage, tier, int(seed) if tier else None, dataset, fold_number))


def file_of(stage, wildcards, folder, suffix):
    """Return the path of a stage's own configuration (folder `configs`) or log (folder `logs`)."""
    run = FOLD.format(**{"fold": ""} | wildcards) if "seed" in wildcards else ROOT
    names = [wildcards[key] for key in ("tier", "dataset") if key in wildcards and (key == "dataset" or run == ROOT)]
    return f"{run}/{folder}/{'_'.join([stage, *names])}.{suffix}"


# A workload's class and its imports are in the current folder or, like the examples, next to the package faze.
MODULE = settings.workload.partition(":")[0]
WORKLOAD_CODE = [] if GAZE else sources(MODULE, Path.cwd()) or sources(MODULE)


def stage_params(stage, *words, workload=False):
    """Return the params of a stage's rule: options, log, and every value and module, so that a dry run shows changes.

    Args:
        stage: the stage.
        words: command-line arguments besides the named inputs and outputs; they may contain wildcards.
        workload: whether the stage imports the workload's class.
    """
    count = max(len(own_config(stage, tier=tier)) for tier in settings.tiers) if stage in STAGES else 0  # tiers differ
    line = lambda wildcards, number: dict(enumerate(own_config(stage, **dict(wildcards.items())))).get(number, "")
    params = [functools.partial(line, number=number) for number in range(count)]
    params += [*sources(f"faze.stages.{stage}"), *(WORKLOAD_CODE if workload else [])]
    numbered = {f"v{number}": param for number, param in enumerate(params)}
    log = lambda wildcards: file_of(stage, dict(wildcards.items()), "logs", "log")
    return numbered | {"stage": stage, "options": functools.partial(options, stage, words), "log": log}


def options(stage, words, wildcards, input, output):
    """Return a stage's command-line arguments; every named input and output except `after` is an option."""
    found = [word.format(**wildcards) for word in words]
    found += ["--config", file_of(stage, dict(wildcards.items()), "configs", "yaml")] if stage in STAGES else []
    for name, paths in [*input.items(), *output.items()]:
        if paths and name != "after":
            found += [f"--{name.replace('_', '-')}", *([paths] if isinstance(paths, str) else paths)]
    return found


def proof_of(wildcards):
    """Return the proof on which a training run depends; a noise control is trained like the baseline."""
    return PROOF.format(tier=TIERS[0] if wildcards.tier in CONTROLS else wildcards.tier)


def cores_of_training(wildcards):
    """Return a training run's number of cores: all with a GPU, otherwise train.threads for every two ddp processes."""
    tier = TIERS[0] if wildcards.tier in CONTROLS else wildcards.tier
    engine, threads = resolve_tier(settings, tier), settings.train.threads
    if auto_device(settings) == "cuda" and engine.device != "cpu":
        return CORES
    processes = (engine.processes or 2) if engine.parallel == "ddp" else 1
    return (processes + 1) // 2 * threads


onstart:
    if (workflow.resource_settings.cores or 1) > CORES and workflow.executor_plugin.name == "local":
        print(f"usable cores (affinity, CPU quota): {CORES}; all jobs share them", file=sys.stderr)
    needed = [(job.params.get("stage"), job.wildcards_dict) for job in workflow.dag.needrun_jobs()]
    needed = [(stage, wildcards) for stage, wildcards in needed if stage in STAGES]
    for stage, wildcards in [*needed, ("report", {}), ("track", {})]:  # possible as soon as one tier is measured
        path = Path(file_of(stage, wildcards, "configs", "yaml"))
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("\n".join(own_config(stage, **wildcards)) + "\n", encoding="utf-8")


onsuccess:
    for job in workflow.dag.jobs:
        if job.rule.name in ("report", "answer"):
            print(f"report: {job.output.out}/index.html")
