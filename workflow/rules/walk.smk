# Latent walks and redirected strips, and their evaluation.


rule walk:
    input:
        checkpoint=f"results/{{name}}/{{tier}}/seed{{seed}}{FIRST_FOLD}/checkpoint.pt",
        estimator="results/{name}/estimator/estimator.pt",
        pairs=f"results/{{name}}/{config['run']['tiers'][0]}/seed{config['run']['seeds'][0]}/redirected_pairs.parquet",
        data=STORES,
    output:
        report(
            directory("results/{name}/{tier}/seed{seed}/walks"),
            patterns=["{walk}.mp4", "{walk}.png", "{walk}.csv"],
            category="Latent walks",
            labels={"tier": "{tier}", "seed": "{seed}", "walk": "{walk}"},
            caption="../report/walk.rst",
        ),
        mark("results/{name}/{tier}/seed{seed}/walks"),
    log:
        "results/{name}/{tier}/seed{seed}/logs/walk.log",
    benchmark:
        "results/{name}/{tier}/seed{seed}/benchmarks/walk.tsv"
    conda:
        "../../envs/faze.yaml"
    threads: max(1, CORES // 2)
    resources:
        gpu=ONE_GPU,
    params:
        *values("walk"),
        *code("walk"),
        config=config_file("walk"),
    shell:
        r"""
        GPUS={resources.gpu} shared python -m faze walk \
            --config {params.config:q} \
            --checkpoint {input.checkpoint:q} \
            --estimator {input.estimator:q} \
            --pairs {input.pairs:q} \
            --data {input.data:q} \
            --threads {threads} \
            --out {output[0]:q} \
            2>&1 | tee -p {log:q}
        """


# The estimator that evaluates redirected strips, once for all tiers.
rule estimator:
    input:
        data=f"results/{{name}}/data/{TRAINING_SET}.h5",
        evaluated=[store for store in STORES if store != f"results/{{name}}/data/{TRAINING_SET}.h5"],
    output:
        network="results/{name}/estimator/estimator.pt",
        errors="results/{name}/estimator/errors.json",
    log:
        "results/{name}/logs/estimator.log",
    benchmark:
        "results/{name}/benchmarks/estimator.tsv"
    conda:
        "../../envs/faze.yaml"
    threads: config["train"]["threads"]
    resources:
        gpu=ONE_GPU,
    params:
        *values("estimator"),
        *code("estimator"),
        config=config_file("estimator"),
    shell:
        r"""
        GPUS={resources.gpu} shared python -m faze estimator \
            --config {params.config:q} \
            --data {input.data:q} \
            --evaluated {input.evaluated:q} \
            --threads {threads} \
            --out {output.network:q} \
            --errors {output.errors:q} \
            {SHARED_RECORDS:q} \
            2>&1 | tee -p {log:q}
        """


# Rendered test people with the requested gaze and head pose: a perfect redirection.
rule oracle:
    input:
        data="results/{name}/data/{dataset}.h5",
    output:
        "results/{name}/data/{dataset}_oracle.h5",
    log:
        "results/{name}/logs/oracle_{dataset}.log",
    benchmark:
        "results/{name}/benchmarks/oracle_{dataset}.tsv"
    conda:
        "../../envs/faze.yaml"
    threads: max(1, CORES // 2)
    params:
        *values("oracle"),
        *code("oracle"),
        config=config_file("oracle"),
    shell:
        r"""
        shared python -m faze oracle \
            --config {params.config:q} \
            --data {input.data:q} \
            --threads {threads} \
            --out {output:q} \
            {SHARED_RECORDS:q} \
            2>&1 | tee -p {log:q}
        """


def oracles(wildcards):
    """Return the rendered targets of the rendered data sets."""
    rendered = [dataset for dataset, data in DATASETS.items() if not data.path]
    return every("results/{name}/data/{dataset}_oracle.h5", dataset=rendered)


rule redirect:
    input:
        checkpoint=f"results/{{name}}/{{tier}}/seed{{seed}}{FIRST_FOLD}/checkpoint.pt",
        estimator="results/{name}/estimator/estimator.pt",
        data=STORES,
        oracle=oracles,
    output:
        people="results/{name}/{tier}/seed{seed}/redirection.parquet",
        pairs="results/{name}/{tier}/seed{seed}/redirected_pairs.parquet",
    log:
        "results/{name}/{tier}/seed{seed}/logs/redirect.log",
    benchmark:
        "results/{name}/{tier}/seed{seed}/benchmarks/redirect.tsv"
    conda:
        "../../envs/faze.yaml"
    threads: max(1, CORES // 2)
    resources:
        gpu=ONE_GPU,
    params:
        *values("redirect"),
        *code("redirect"),
        config=config_file("redirect"),
    shell:
        r"""
        GPUS={resources.gpu} shared python -m faze redirect \
            --config {params.config:q} \
            --checkpoint {input.checkpoint:q} \
            --estimator {input.estimator:q} \
            --data {input.data:q} \
            --oracle {input.oracle:q} \
            --threads {threads} \
            --out {output.people:q} \
            --pairs {output.pairs:q} \
            2>&1 | tee -p {log:q}
        """
