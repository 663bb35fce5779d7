# A sweep: training runs with different values of the keys under `sweep`, compared by validation.


def trainings_of_points(wildcards):
    """List the run logs of every point and seed."""
    if not POINTS:
        raise WorkflowError("nothing to sweep: set sweep.grid or sweep.sobol, as in config/sweep.yaml")
    return every("results/{name}/{tier}/seed{seed}/run.jsonl", tier=POINTS)


# No wildcards, like `report`.
rule compare:
    input:
        run_logs=trainings_of_points,
    output:
        report(
            directory(f"results/{config['name']}/sweep"),
            patterns=["{page}.html", "{table}.csv", "figures/{figure}.svg"],
            category="Sweep",
            caption="../report/sweep.rst",
        ),
        mark(f"results/{config['name']}/sweep"),
    log:
        f"results/{config['name']}/logs/compare.log",
    benchmark:
        f"results/{config['name']}/benchmarks/compare.tsv"
    conda:
        "../../envs/faze.yaml"
    threads: 1
    params:
        *values("compare"),
        *code("compare"),
        config=config_file("compare"),
        results=results_folder,
    shell:
        r"""
        shared python -m faze compare \
            --config {params.config:q} \
            --results {params.results:q} \
            --out {output[0]:q} \
            2>&1 | tee -p {log:q}
        """


# Mirror the runs of a sweep to MLflow, like `track`.
rule track_sweep:
    input:
        run_logs=trainings_of_points,
        page=rules.compare.output,
    output:
        f"results/{config['name']}/tracking/sweep.json",
    log:
        f"results/{config['name']}/logs/track_sweep.log",
    benchmark:
        f"results/{config['name']}/benchmarks/track_sweep.tsv"
    conda:
        "../../envs/faze.yaml"
    threads: 1
    params:
        *values("track"),
        *code("track"),
        config=config_file("track"),
        results=results_folder,
    shell:
        r"""
        shared python -m faze track \
            --config {params.config:q} \
            --results {params.results:q} \
            --points {POINTS} \
            --out {output:q} \
            2>&1 | tee -p {log:q}
        """
