# Shared by all rules: the validated configuration, the values and the code of each stage, locks.
import functools
import importlib.util
import json
import os
import re
import socket
import sys
import time
from pathlib import Path

from snakemake.exceptions import WorkflowError

import faze.config.check
import faze.config.datasets
import faze.config.parameters
import faze.config.shipped
import faze.config.stage_config
import faze.config.tiers
import faze.config.validation
import faze.config.workloads
import faze.config.yaml_files
import faze.base.cgroup
import faze.base.code_hash
import faze.base.environment
import faze.base.progress
import faze.base.output_cache
import faze.base.errors
import faze.base.locks
import faze.base.slurm_nodes
import faze.tracking.store

faze.base.environment.name_user()  # for Snakemake itself and for all jobs
DEFAULTS = os.path.relpath(Path(workflow.basedir, "config/config.yaml"))  # with --directory, results are elsewhere


def in_one_sentence(check, *args):
    """Call a check; report an error in one sentence, without a traceback, before anything starts."""
    try:
        return check(*args)
    except faze.base.errors.UserError as error:
        raise WorkflowError(f"the configuration cannot be used:\n{error}") from None


def check_surroundings(tracking_uri):
    """Check inherited environment variables, which would otherwise make individual jobs fail, some of them at the end."""
    try:
        faze.base.environment.check_environment()
        faze.tracking.store.check_kind(tracking_uri)
    except faze.base.errors.UserError as error:
        raise WorkflowError(f"nothing was started: {error}") from None


def check_path(key, path, others=""):
    """Check that a path of the user's exists, and that Snakemake can use it as an input; `others`: what else is possible."""
    if not Path(path).exists():
        raise faze.config.check.ConfigError(f"{key}: no such file or folder: {path}{others}")
    if set("{}") & set(path):
        raise faze.config.check.ConfigError(
            f"{key}: {path} contains braces, which Snakemake treats as wildcards: rename it, or pass a link to it"
        )
    changed = max(os.stat(path).st_mtime, os.lstat(path).st_mtime)
    if changed > time.time():  # otherwise it would remove the outputs of a job that ended, since they look older
        raise faze.config.check.ConfigError(
            f"{key}: {path} is dated {time.ctime(changed)}, in the future: run `touch` on it, or correct this machine's clock"
        )


def check_data(datasets):
    """Check the paths of the user's data sets."""
    for name, data in datasets.items():
        for key, path in {"path": data.path, "supplementary": data.supplementary}.items():
            if path and not in_storage(path):
                check_path(f"preprocess.datasets: {key} of {name}", path)
        if splits_file(data):  # the stage opens it itself, and cannot read from a storage provider
            check_path(f"preprocess.datasets: splits of {name}", data.splits)


def check_starts(config):
    """Check the weights from which trainings start, or which are only evaluated, before anything starts."""
    tiers = faze.config.tiers
    evaluated = tiers.evaluated_tiers(config)
    points = tiers.points(config)
    trainings = [] if points else [("train.start", config)]
    trainings += [
        (f"tiers.{tier}.weights", tiers.at_weights(config, path))
        for tier, path in tiers.given_weights(config).items()
        if tier in evaluated
    ]
    trainings += [
        (f"train.start at {point}", tiers.at_point(config, point, values)) for point, values in points.items()
    ]
    checked = []
    for key, training in trainings:
        start = training["train"]["start"], training["model"], training["train"]["pairs"] > 0
        if start[0] and start not in checked:
            checked.append(start)
            check_start(key, *start)


def check_start(key, path, model, trained):
    """Check one checkpoint; `trained`: whether a training starts from it."""
    refuse = faze.config.check.ConfigError
    if in_storage(path):  # the stage opens it itself, and cannot read from a storage provider
        raise refuse(f"{key}: {path} is in a storage: copy it to this machine")
    file = faze.config.shipped.network_path(path)
    check_path(key, str(file), f" (or {faze.config.shipped.SHIPPED}, for the network of the package)")
    if not file.is_file():
        raise refuse(f"{key}: {file} is not a file: add the name of the checkpoint in it")
    if Path("results", config["name"]).resolve() in file.resolve().parents:  # a training would replace it
        raise refuse(f"{key}: {path} belongs to these results, which it would replace: give this file another `name`")
    if workflow.is_main_process:
        parts = importlib.import_module("faze.model.parts")  # with torch, which takes seconds
        sizes = faze.config.check.build(faze.config.parameters.Model, model)
        try:
            parts.load_start(file, sizes, faze.config.stage_config.camera_of(config), trained)
        except faze.base.errors.UserError as error:
            raise refuse(f"{key}: {error}") from None


def splits_file(data):
    """Return the path of a data set's list of splits, or "" if it has none."""
    return "" if data.splits in faze.config.datasets.WORDS else data.splits


def check_cluster():
    """Check that every job fits a SLURM node; otherwise it would stay in the queue without a reason."""
    if workflow.executor_plugin.name != "slurm":
        return
    nodes = faze.base.slurm_nodes
    jobs = [job for job in workflow.dag.needrun_jobs() if not job.is_local]
    try:
        nodes.check([nodes.Request.of(job.rule.name, job.threads, job.resources) for job in jobs], nodes.read_nodes())
    except faze.base.errors.UserError as error:
        raise WorkflowError(f"nothing was sent to SLURM: {error}") from None


def check_gpus():
    """Check that this machine has the GPUs of --resources gpu=N; on a cluster N limits the jobs instead."""
    if workflow.executor_plugin.name != "local":
        return
    try:
        faze.base.locks.check_gpus(GPUS)
    except faze.base.errors.UserError as error:
        raise WorkflowError(f"--resources gpu={GPUS}: {error}") from None


def warn_of_quota():
    """Warn about more cores than a container's CPU quota allows; Snakemake's `--cores all` does not respect quotas."""
    if workflow.executor_plugin.name == "local" and (warning := faze.base.cgroup.quota_warning(CORES)):
        print(warning, file=sys.stderr)


def check_name(name):
    """Check that no other results have the same name except for its case: some file systems store both in one folder."""
    folded = faze.config.check.folded
    others = [path.name for path in Path("results").glob("*") if folded(path.name) == folded(name)]
    if others and name not in others:
        raise faze.config.check.ConfigError(
            f"name: {name} differs from results/{others[0]} only in case: use {others[0]} to continue it, or choose another name"
        )


def check_overrides(overrides, values):
    """Check that overrides come from files and have a `name`, and therefore a results folder, of their own."""
    if sum(word.partition("=")[0] in ("--configfile", "--configfiles") for word in sys.argv) > 1:
        raise faze.config.check.ConfigError(
            "--configfile is given twice, and Snakemake would ignore the first: list all files after one --configfile"
        )
    if values:
        raise faze.config.check.ConfigError(
            f"--config {next(iter(values))}=...: Snakemake takes numbers in it for text; write it to a YAML file of your"
            " own that has a `name`, and give that with --configfile"
        )
    if overrides and "name" not in faze.config.yaml_files.read_yaml(*overrides):
        raise faze.config.check.ConfigError(
            f"{overrides[-1]}: needs a `name`: its results would mix with those of {DEFAULTS}"
        )


def chmod_if_possible(path, mode, *, chmod=os.chmod, **options):
    """Set a mode; ignore refusals by WSL's drvfs, CIFS and exFAT in .snakemake, where modes do not matter."""
    try:
        chmod(path, mode, **options)
    except PermissionError:
        if ".snakemake" not in str(path):
            raise


os.chmod = chmod_if_possible  # otherwise Snakemake would stop after the first job


# Snakemake's own reader does not report the line of a YAML error.
defaults = in_one_sentence(faze.config.yaml_files.read_yaml, DEFAULTS)


configfile: DEFAULTS


# Snakemake puts the keys of --configfile first, but tiers have an order: that of the defaults.
config = faze.config.yaml_files.merge(defaults, config)
in_one_sentence(check_overrides, workflow.overwrite_configfiles, workflow.config_settings.config)
config = in_one_sentence(faze.config.validation.validate, config, [DEFAULTS, *workflow.overwrite_configfiles])
in_one_sentence(check_name, config["name"])
GAZE = config["workload"] == faze.config.workloads.DTED  # otherwise only the rules of workload.smk apply
# All data sets by name, the name of the one with training people, and the paths of all stores of strips.
DATASETS = faze.config.datasets.data_sets(config)
TRAINING_SET = faze.config.datasets.training_set(config)
# With leave-one-person-out, each run has folders of its folds, whose results the rule `join` combines.
FOLDS = [f"/fold{number}" for number in range(faze.config.datasets.training_folds(config))]
FIRST_FOLD = FOLDS[0] if FOLDS else ""
STORES = [f"results/{{name}}/data/{dataset}.h5" for dataset in DATASETS]
in_one_sentence(check_data, DATASETS)
if GAZE:
    in_one_sentence(check_starts, config)
check_storage(config["name"])
check_surroundings(config["tracking"]["uri"])

# Jobs read the configuration too, perhaps on nodes with other devices.
os.environ[faze.config.tiers.DEVICE] = faze.config.tiers.auto_device(config)
TIERS = faze.config.tiers.evaluated_tiers(config)


# Points of a sweep: training runs of the first tier with other values. Their names are used like those of tiers.
POINTS = list(faze.config.tiers.points(config))


wildcard_constraints:
    name=re.escape(config["name"]),
    tier="|".join(map(re.escape, [*config["tiers"], *faze.config.parameters.CONTROLS, *POINTS])),
    seed=r"\d+",
    fold=r"/fold\d+" if FOLDS else "(?:)",
    dataset="|".join(DATASETS),


# `python` in a shell command is the one that runs Snakemake, even if its environment is not activated.
os.environ["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
# Jobs run the code of this checkout, whose hashes are their params, even with --directory, PYTHONSAFEPATH or another
# clone's PYTHONPATH.
os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(faze.base.code_hash.ROOT), os.environ.get("PYTHONPATH")]))

# The benchmark reserves all cores, so Snakemake runs nothing else meanwhile. On a cluster, the profile sets the number.
CORES = workflow.resource_settings.cores or 1

# With `--resources gpu=N`, N GPUs are shared: a job on one GPU gets one (faze.base.locks), and training runs share the machine.
# Without it (0), a job sees all of them. On a cluster the profile requests GPUs, and the scheduler assigns them.
GPUS = getattr(workflow.global_resources.get("gpu"), "value", None) or 0 if workflow.is_main_process else 0
ONE_GPU = min(GPUS, 1)

# Snakemake does not know about jobs of a killed Snakemake, or about a second one in this checkout. Therefore the benchmark runs
# `exclusive` and all other jobs `shared`, under one lock per machine, which the kernel releases with its last holder. The
# stages themselves lock out other checkouts (faze.base.locks). `GPUS=2 shared ...` also takes GPUs. (A prefix replaces
# Snakemake's own strict mode.)
MACHINE_LOCK = faze.base.locks.lockable(f".snakemake/{socket.gethostname()}.lock")
SHARES_GPUS = str(GPUS > 0).lower()
shell.prefix(r"""
    set -euo pipefail
    hold() {{
        local on_gpus=()
        if {SHARES_GPUS} && [ "${{GPUS:-0}}" != 0 ]; then
            on_gpus=(python -m faze.base.locks "$GPUS")
        fi
        flock --nonblock "$1" {MACHINE_LOCK:q} true || echo "$4: waiting for other jobs on this machine to end" >&2
        flock "$1" {MACHINE_LOCK:q} "${{on_gpus[@]}}" "${{@:2}}"
    }}
    exclusive() {{ hold --exclusive "$@"; }}
    shared() {{ hold --shared "$@"; }}
    """)


# Rendered frames and preprocessed strips are reused from other ablations with the same values. This is not a param,
# because their location does not affect results.
SHARED_RECORDS = [f"--output-cache={folder}" for folder in [faze.base.output_cache.shared_folder()] if folder]


def known_of_training(wildcards):
    return faze.config.stage_config.resolve(
        config, "train" if GAZE else "train_workload", wildcards.tier, int(wildcards.seed)
    )


def gpus_of_training(wildcards):
    """Return how many shared GPUs a training takes: one, one per process, or all of them."""
    known = known_of_training(wildcards)
    if known["engine.device"] == "cpu":
        return 0
    wanted = {"single": 1, "dp": GPUS, "ddp": known["engine.processes"] or GPUS}[known["engine.parallel"]]
    return min(wanted, GPUS)


def cores_of_training(wildcards):
    """Return how many cores a training takes; on GPUs, its share of them, or all if GPUs are not shared.

    Processes of ddp wait for each other, so two of them take one core. Without GPUs, ddp has two processes by default.
    """
    if GPUS:
        return max(1, CORES * (gpus_of_training(wildcards) or GPUS) // GPUS)
    if Path("/dev/nvidiactl").exists():
        return CORES
    known = known_of_training(wildcards)
    processes = (known["engine.processes"] or 2) if known["engine.parallel"] == "ddp" else 1
    return (processes + 1) // 2 * known["train.threads"]


def order_of_training(wildcards):
    """Start the baseline first, then the controls, so that a tier with the same training can reuse it."""
    return 2 if wildcards.tier == TIERS[0] else 1 if wildcards.tier in config["run"]["controls"] else 0


def every(path, **chosen):
    """Expand a path with every tier, seed, learner and data set of the ablation, or with the chosen ones."""
    run = {"tier": TIERS, "seed": config["run"]["seeds"]}
    paths = expand(
        path, **{"name": config["name"], "learner": config["fewshot"]["learners"], "dataset": DATASETS} | run | chosen
    )
    return paths + marks(paths)


def each_learner(path, **chosen):
    """Expand a path with every learner, and the chosen values; keep the run's wildcards."""
    return expand(path, learner=config["fewshot"]["learners"], **chosen, allow_missing=True)


def every_run(path, **chosen):
    """Expand a path like `every`, and with the noise controls, which use the first seed only."""
    run = config["run"]
    return every(path, **chosen) + every(path, **chosen, tier=run["controls"], seed=run["seeds"][0])


def code(stage):
    """Return `path@hash` of each module that a stage imports, so that a dry run names the module that changed."""
    return faze.base.code_hash.sources(f"faze.stages.{stage}")


def workload_code(workload):
    """Return `path@hash` of the file that defines a workload other than DT-ED, whose code the stages import."""
    if GAZE:
        return []
    path = faze.config.workloads.class_path(workload).partition(":")[0]
    built_in = workload in faze.config.workloads.BUILT_IN
    sys.path.insert(0, str(faze.base.code_hash.ROOT) if built_in else os.getcwd())
    try:
        found = importlib.util.find_spec(path)
    except ModuleNotFoundError:
        found = None
    finally:
        sys.path.pop(0)
    if found is None or not found.origin:
        raise faze.config.check.ConfigError(
            f"workload: there is no module {path} in {os.getcwd()} or among the installed packages"
        )
    return [f"{path}@{faze.base.code_hash.module_hash(found.origin)}"]


WORKLOAD_CODE = in_one_sentence(workload_code, config["workload"])


@functools.cache
def own_config(stage, tier=None, seed=None, dataset=None, fold=""):
    """Return the lines of a stage's own configuration, as `faze resolve` prints it."""
    number = int(fold.removeprefix("/fold") or 0)
    flat = faze.config.stage_config.resolve(config, stage, tier, seed and int(seed), dataset, number)
    return faze.config.stage_config.to_lines(flat)


def keys_of(stage):
    """Return the wildcards that a stage's own configuration depends on, each with any valid value."""
    run = {"tier": TIERS[0], "seed": "0"} if stage in faze.config.parameters.PER_RUN else {}
    run |= {"fold": FIRST_FOLD} if stage in faze.config.parameters.PER_FOLD else {}
    return run | ({"dataset": TRAINING_SET} if stage in faze.config.parameters.PER_DATASET else {})


def values(stage):
    """Return one param per line of a stage's own configuration, so that a dry run names the value that changed."""
    keys = keys_of(stage)

    def line(number):
        return lambda wildcards: own_config(stage, **{key: wildcards[key] for key in keys})[number]

    return [line(number) for number in range(len(own_config(stage, **keys)))]


def config_file(stage):
    """Return a param: the file that contains a stage's own configuration."""

    def path(wildcards):
        keys = {key: wildcards[key] for key in keys_of(stage)}
        file = f"{stage}_{keys['dataset']}" if "dataset" in keys else stage
        if "tier" in keys:
            fold = keys.get("fold", "")
            return f"results/{config['name']}/{keys['tier']}/seed{keys['seed']}{fold}/configs/{file}.yaml"
        return f"results/{config['name']}/configs/{file}.yaml"

    return path


def write_configs():
    """Write the own configuration of every job that is to run; a file with the same content is left alone."""
    for job in workflow.dag.needrun_jobs():
        stage = {"track_sweep": "track"}.get(job.rule.name, job.rule.name)
        if stage in faze.config.parameters.STAGES:
            lines = own_config(stage, **{key: job.wildcards_dict[key] for key in keys_of(stage)})
            faze.config.stage_config.write(Path(config_file(stage)(job.wildcards_dict)), lines)
