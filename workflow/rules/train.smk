# Train DT-ED for one tier and seed.


def known_of_training(wildcards):
    return faze.config.stage_config.resolve(config, "train", wildcards.tier, int(wildcards.seed))


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


rule train:
    input:
        data=f"results/{{name}}/data/{TRAINING_SET}.h5",
    output:
        checkpoint="results/{name}/{tier}/seed{seed}{fold}/checkpoint.pt",
        run_log="results/{name}/{tier}/seed{seed}{fold}/run.jsonl",
    log:
        "results/{name}/{tier}/seed{seed}{fold}/logs/train.log",
    benchmark:
        "results/{name}/{tier}/seed{seed}{fold}/benchmarks/train.tsv"
    priority: order_of_training
    conda:
        "../../envs/faze.yaml"
    threads: cores_of_training
    resources:
        gpu=gpus_of_training,
    params:
        *values("train"),
        *code("train"),
        config=config_file("train"),
    shell:
        r"""
        trap '' TERM # SLURM sends it to every process of a job: the stage handles it, and tee must not exit before
        GPUS={resources.gpu} shared python -m faze train \
            --config {params.config:q} \
            --data {input.data:q} \
            --out {output.checkpoint:q} \
            --run-log {output.run_log:q} \
            --output-cache results/{wildcards.name:q}/output_cache \
            2>&1 | tee -p {log:q}
        """
