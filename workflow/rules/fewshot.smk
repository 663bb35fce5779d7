# Codes of every strip, then few-shot adaptation on them, per person.

# With leave-one-person-out, all of this runs for each fold.
CODES = [f"results/{{name}}/{{tier}}/seed{{seed}}{{fold}}/codes/{dataset}.h5" for dataset in DATASETS]

# One process handles all data sets or learners of a run: starting it takes longer than running most learners. `kept`
# keeps Snakemake from deleting the learners' outputs: the stages reuse those whose inputs, values and code are the same,
# so that adding a learner does not re-run the others. For the same reason, their names are not params.
LEARNERS = config["fewshot"]["learners"]
# The targets request every table: if an output is missing and nothing requests it, Snakemake does not compare params.
TABLES = ["errors", "trace"] + ["predictions"] * config["fewshot"]["predictions"]


rule encode:
    input:
        checkpoint="results/{name}/{tier}/seed{seed}{fold}/checkpoint.pt",
        data=STORES,
    output:
        CODES,
    log:
        "results/{name}/{tier}/seed{seed}{fold}/logs/encode.log",
    benchmark:
        "results/{name}/{tier}/seed{seed}{fold}/benchmarks/encode.tsv"
    conda:
        "../../envs/faze.yaml"
    threads: max(1, CORES // 2)
    resources:
        gpu=ONE_GPU,
    params:
        *values("encode"),
        *code("encode"),
        config=config_file("encode"),
    shell:
        r"""
        GPUS={resources.gpu} shared python -m faze encode \
            --config {params.config:q} \
            --checkpoint {input.checkpoint:q} \
            --data {input.data:q} \
            --threads {threads} \
            --out {output:q} \
            2>&1 | tee -p {log:q}
        """


rule meta_train:
    input:
        codes=f"results/{{name}}/{{tier}}/seed{{seed}}{{fold}}/codes/{TRAINING_SET}.h5",
    output:
        kept(each_learner("results/{name}/{tier}/seed{seed}{fold}/fewshot/{learner}.pt")),
    log:
        "results/{name}/{tier}/seed{seed}{fold}/logs/meta_train.log",
    benchmark:
        "results/{name}/{tier}/seed{seed}{fold}/benchmarks/meta_train.tsv"
    conda:
        "../../envs/faze.yaml"
    threads: 1  # matrices so small that a second thread only spins
    params:
        *values("meta_train"),
        *code("meta_train"),
        config=config_file("meta_train"),
    shell:
        r"""
        shared python -m faze meta_train \
            --config {params.config:q} \
            --learner {LEARNERS} \
            --codes {input.codes:q} \
            --threads {threads} \
            --out {output:q} \
            --keep-existing \
            2>&1 | tee -p {log:q}
        """


rule adapt:
    input:
        learners=each_learner("results/{name}/{tier}/seed{seed}{fold}/fewshot/{learner}.pt"),
        codes=CODES,
    output:
        errors=kept(each_learner("results/{name}/{tier}/seed{seed}{fold}/fewshot/{learner}_errors.parquet")),
        trace=kept(each_learner("results/{name}/{tier}/seed{seed}{fold}/fewshot/{learner}_trace.parquet")),
        predictions=kept(
            each_learner("results/{name}/{tier}/seed{seed}{fold}/fewshot/{learner}_predictions.parquet")
            if config["fewshot"]["predictions"]
            else []
        ),
    log:
        "results/{name}/{tier}/seed{seed}{fold}/logs/adapt.log",
    benchmark:
        "results/{name}/{tier}/seed{seed}{fold}/benchmarks/adapt.tsv"
    conda:
        "../../envs/faze.yaml"
    threads: max(1, CORES // 2)
    params:
        *values("adapt"),
        *code("adapt"),
        config=config_file("adapt"),
    shell:
        r"""
        shared python -m faze adapt \
            --config {params.config:q} \
            --learner {LEARNERS} \
            --learner-file {input.learners:q} \
            --codes {input.codes:q} \
            --threads {threads} \
            --out {output.errors:q} \
            --trace {output.trace:q} \
            --predictions {output.predictions:q} \
            --keep-existing \
            2>&1 | tee -p {log:q}
        """


if FOLDS:

    JOINED = ["checkpoint.pt", "run.jsonl", *(f"codes/{dataset}.h5" for dataset in DATASETS)]
    JOINED += [f"fewshot/{learner}_{table}.parquet" for learner in LEARNERS for table in TABLES]

    rule join:
        input:
            expand("results/{{name}}/{{tier}}/seed{{seed}}{fold}/{file}", fold=FOLDS, file=JOINED),
        output:
            expand("results/{{name}}/{{tier}}/seed{{seed}}/{file}", file=JOINED),
        log:
            "results/{name}/{tier}/seed{seed}/logs/join.log",
        benchmark:
            "results/{name}/{tier}/seed{seed}/benchmarks/join.tsv"
        conda:
            "../../envs/faze.yaml"
        threads: 1
        params:
            *code("join"),
            run=lambda wildcards, output: str(Path(output[0]).parent),
            folds=lambda wildcards, input: sorted(
                {str(Path(path).parent) for path in input if path.endswith("run.jsonl")}
            ),
            files=JOINED,
        shell:
            r"""
            shared python -m faze join \
                --folds {params.folds:q} \
                --files {params.files:q} \
                --out {params.run:q} \
                2>&1 | tee -p {log:q}
            """
