# Train DT-ED for one tier and seed.


def start_of_training(wildcards):
    """Return the checkpoint from which a training starts, if any."""
    start = known_of_training(wildcards)["train.start"]
    return given(str(faze.config.shipped.network_path(start))) if start else []


rule train:
    input:
        data=f"results/{{name}}/data/{TRAINING_SET}.h5",
        start=start_of_training,
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
