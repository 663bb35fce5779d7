# From every run's files to tables, the page, and MLflow.


rule evaluate:
    input:
        codes=every("results/{name}/{tier}/seed{seed}/codes/{dataset}.h5"),
        errors=every_run("results/{name}/{tier}/seed{seed}/fewshot/{learner}_errors.parquet"),
        run_logs=every_run("results/{name}/{tier}/seed{seed}/run.jsonl"),
        redirection=every_run("results/{name}/{tier}/seed{seed}/redirection.parquet"),
        redirected_pairs=every_run("results/{name}/{tier}/seed{seed}/redirected_pairs.parquet"),
        estimator="results/{name}/estimator/errors.json",
        benchmark="results/{name}/benchmark/benchmark.json",
    output:
        directory("results/{name}/evaluation"),
        mark("results/{name}/evaluation"),
    log:
        "results/{name}/logs/evaluate.log",
    benchmark:
        "results/{name}/benchmarks/evaluate.tsv"
    conda:
        "../../envs/faze.yaml"
    threads: 1
    params:
        *values("evaluate"),
        *code("evaluate"),
        config=config_file("evaluate"),
        results=results_folder,
    shell:
        r"""
        shared python -m faze evaluate \
            --config {params.config:q} \
            --results {params.results:q} \
            --out {output[0]:q} \
            2>&1 | tee -p {log:q}
        """


# The contents of a store; for any other store, run `faze inspect STORE`.
rule inspect:
    input:
        data="results/{name}/data/{dataset}.h5",
        rejects="results/{name}/data/{dataset}_rejects.csv",
    output:
        report(
            directory("results/{name}/inspection/{dataset}"),
            patterns=["{page}.html", "{table}.csv"],
            category="Data",
            subcategory="{dataset}",
            caption="../report/data.rst",
        ),
        mark("results/{name}/inspection/{dataset}"),
    log:
        "results/{name}/logs/inspect_{dataset}.log",
    benchmark:
        "results/{name}/benchmarks/inspect_{dataset}.tsv"
    conda:
        "../../envs/faze.yaml"
    threads: 1
    params:
        *code("inspect"),
    shell:
        r"""
        shared python -m faze inspect \
            {input.data:q} \
            --rejects {input.rejects:q} \
            --verify \
            --out {output[0]:q} \
            2>&1 | tee -p {log:q}
        """


# It has no wildcards, so that `report` is a target too.
rule report:
    input:
        evaluation=every("results/{name}/evaluation"),
        inspection=every("results/{name}/inspection/{dataset}"),
        run_logs=every("results/{name}/{tier}/seed{seed}/run.jsonl"),
        walks=every("results/{name}/{tier}/seed{seed}/walks"),
        benchmark=every("results/{name}/benchmark/benchmark.json"),
    output:
        report(
            directory(f"results/{config['name']}/report"),
            patterns=["{page}.html", "{table}.csv", "figures/{figure}.svg"],
            category="Ablation",
            caption="../report/report.rst",
        ),
        mark(f"results/{config['name']}/report"),
    log:
        f"results/{config['name']}/logs/report.log",
    benchmark:
        f"results/{config['name']}/benchmarks/report.tsv"
    conda:
        "../../envs/faze.yaml"
    threads: 1
    params:
        *values("report"),
        *code("report"),
        config=config_file("report"),
        results=results_folder,
    shell:
        r"""
        shared python -m faze report \
            --config {params.config:q} \
            --results {params.results:q} \
            --out {output[0]:q} \
            2>&1 | tee -p {log:q}
        """


def files_to_publish(wildcards):
    """List the files of the baseline's run that the model card reads."""
    if FOLDS:
        raise WorkflowError(
            "weights: leave_one_person_out trains a network for each fold of the people. To publish one network, train it"
            " on all of them, with a JSON file of splits"
        )
    files = ["checkpoint.pt", "run.jsonl", "redirection.parquet"]
    files += ["fewshot/{learner}.pt", "fewshot/{learner}_errors.parquet"]
    run = {"tier": TIERS[0], "seed": config["run"]["seeds"][0]}
    return every([f"results/{{name}}/{{tier}}/seed{{seed}}/{file}" for file in files], **run)


# Publish the baseline; for any other run, use `faze weights`. No wildcards, like `report`.
rule weights:
    input:
        data=every("results/{name}/data/{dataset}.h5"),
        run=files_to_publish,
    output:
        directory(f"results/{config['name']}/weights"),
        mark(f"results/{config['name']}/weights"),
    log:
        f"results/{config['name']}/logs/weights.log",
    benchmark:
        f"results/{config['name']}/benchmarks/weights.tsv"
    conda:
        "../../envs/faze.yaml"
    threads: 1
    params:
        *code("weights"),
        results=results_folder,
        tier=TIERS[0],
        seed=config["run"]["seeds"][0],
    shell:
        r"""
        shared python -m faze weights \
            --results {params.results:q} \
            --tier {params.tier:q} \
            --seed {params.seed:q} \
            --learners {LEARNERS} \
            --out {output[0]:q} \
            2>&1 | tee -p {log:q}
        """
