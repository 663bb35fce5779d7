# The ablation of a workload other than DT-ED: proofs first, then training and benchmark.


rule prove_workload:
    output:
        "results/{name}/benchmark/proofs.json",
    log:
        "results/{name}/logs/prove_workload.log",
    benchmark:
        "results/{name}/benchmarks/prove_workload.tsv"
    conda:
        "../../envs/faze.yaml"
    threads: CORES
    resources:
        gpu=GPUS,
    params:
        *values("prove_workload"),
        *code("prove_workload"),
        *WORKLOAD_CODE,
        config=config_file("prove_workload"),
    shell:
        r"""
        GPUS={resources.gpu} shared python -m faze prove_workload \
            --config {params.config:q} \
            --threads {threads} \
            --out {output:q} \
            2>&1 | tee -p {log:q}
        """


rule train_workload:
    input:
        proofs="results/{name}/benchmark/proofs.json",
    output:
        checkpoint="results/{name}/{tier}/seed{seed}/checkpoint.pt",
        run_log="results/{name}/{tier}/seed{seed}/run.jsonl",
    log:
        "results/{name}/{tier}/seed{seed}/logs/train_workload.log",
    benchmark:
        "results/{name}/{tier}/seed{seed}/benchmarks/train_workload.tsv"
    priority: order_of_training
    conda:
        "../../envs/faze.yaml"
    threads: cores_of_training
    resources:
        gpu=gpus_of_training,
    params:
        *values("train_workload"),
        *code("train_workload"),
        *WORKLOAD_CODE,
        config=config_file("train_workload"),
    shell:
        r"""
        trap '' TERM # as in the rule train
        GPUS={resources.gpu} shared python -m faze train_workload \
            --config {params.config:q} \
            --out {output.checkpoint:q} \
            --run-log {output.run_log:q} \
            --output-cache results/{wildcards.name:q}/output_cache \
            2>&1 | tee -p {log:q}
        """


# No wildcards, so that `report_workload` is a target too.
rule report_workload:
    input:
        proofs=every("results/{name}/benchmark/proofs.json"),
        benchmark=every("results/{name}/benchmark/benchmark.json"),
        run_logs=every_run("results/{name}/{tier}/seed{seed}/run.jsonl"),
    output:
        evaluation=directory(f"results/{config['name']}/evaluation"),
        page=report(
            directory(f"results/{config['name']}/report"),
            patterns=["{page}.html", "{table}.csv", "figures/{figure}.svg"],
            category="Ablation",
            caption="../report/report.rst",
        ),
        evaluation_mark=mark(f"results/{config['name']}/evaluation"),
        page_mark=mark(f"results/{config['name']}/report"),
    log:
        f"results/{config['name']}/logs/report_workload.log",
    benchmark:
        f"results/{config['name']}/benchmarks/report_workload.tsv"
    conda:
        "../../envs/faze.yaml"
    threads: 1
    params:
        *values("report_workload"),
        *code("report_workload"),
        *WORKLOAD_CODE,
        config=config_file("report_workload"),
        results=results_folder,
    shell:
        r"""
        shared python -m faze report_workload \
            --config {params.config:q} \
            --results {params.results:q} \
            --evaluation {output.evaluation:q} \
            --out {output.page:q} \
            2>&1 | tee -p {log:q}
        """
