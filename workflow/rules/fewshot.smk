# Codes of every strip, then few-shot adaptation on them, per person.

PREDICTIONS = (
    {"predictions": "results/{name}/{tier}/seed{seed}/fewshot/{learner}_predictions.parquet"}
    if config["fewshot"]["predictions"]
    else {}
)


rule encode:
    input:
        config="results/{name}/{tier}/seed{seed}/configs/encode.yaml",
        checkpoint="results/{name}/{tier}/seed{seed}/checkpoint.pt",
        data="results/{name}/data/{dataset}.h5",
    output:
        "results/{name}/{tier}/seed{seed}/codes/{dataset}.h5",
    log:
        "results/{name}/{tier}/seed{seed}/logs/encode_{dataset}.log",
    benchmark:
        "results/{name}/{tier}/seed{seed}/benchmarks/encode_{dataset}.tsv"
    conda:
        "../../envs/faze.yaml"
    threads: max(1, CORES // 2)
    params:
        *code("encode"),
    shell:
        r"""
        beside python -m faze encode \
            --config {input.config:q} \
            --checkpoint {input.checkpoint:q} \
            --data {input.data:q} \
            --threads {threads} \
            --out {output:q} \
            --made-once results/{wildcards.name:q}/made_once \
            2>&1 | tee -p {log:q}
        """


rule meta_train:
    input:
        config="results/{name}/{tier}/seed{seed}/configs/meta_train.yaml",
        codes="results/{name}/{tier}/seed{seed}/codes/gazecapture.h5",
    output:
        "results/{name}/{tier}/seed{seed}/fewshot/{learner}.pt",
    log:
        "results/{name}/{tier}/seed{seed}/logs/meta_train_{learner}.log",
    benchmark:
        "results/{name}/{tier}/seed{seed}/benchmarks/meta_train_{learner}.tsv"
    conda:
        "../../envs/faze.yaml"
    threads: 1  # matrices so small that a second thread only spins
    params:
        *code("meta_train"),
    shell:
        r"""
        beside python -m faze meta_train \
            --config {input.config:q} \
            --learner {wildcards.learner} \
            --codes {input.codes:q} \
            --threads {threads} \
            --out {output:q} \
            --made-once results/{wildcards.name:q}/made_once \
            2>&1 | tee -p {log:q}
        """


rule adapt:
    input:
        config="results/{name}/{tier}/seed{seed}/configs/adapt.yaml",
        learner="results/{name}/{tier}/seed{seed}/fewshot/{learner}.pt",
        mpiigaze="results/{name}/{tier}/seed{seed}/codes/mpiigaze.h5",
        gazecapture="results/{name}/{tier}/seed{seed}/codes/gazecapture.h5",
    output:
        **PREDICTIONS,
        errors="results/{name}/{tier}/seed{seed}/fewshot/{learner}_errors.parquet",
        trace="results/{name}/{tier}/seed{seed}/fewshot/{learner}_trace.parquet",
    log:
        "results/{name}/{tier}/seed{seed}/logs/adapt_{learner}.log",
    benchmark:
        "results/{name}/{tier}/seed{seed}/benchmarks/adapt_{learner}.tsv"
    conda:
        "../../envs/faze.yaml"
    threads: max(1, CORES // 2)
    params:
        *code("adapt"),
        predictions=lambda wildcards, output: [word for key in PREDICTIONS for word in (f"--{key}", output[key])],
    shell:
        r"""
        beside python -m faze adapt \
            --config {input.config:q} \
            --learner {wildcards.learner} \
            --learner-file {input.learner:q} \
            --codes {input.mpiigaze:q} {input.gazecapture:q} \
            --threads {threads} \
            --out {output.errors:q} \
            --trace {output.trace:q} {params.predictions:q} \
            --made-once results/{wildcards.name:q}/made_once \
            2>&1 | tee -p {log:q}
        """
