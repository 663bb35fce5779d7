# The ablation of a workload other than DT-ED: proofs first, then training and benchmark.
import importlib.util

from snakemake.exceptions import WorkflowError


def workload_code(workload):
    """Return `path@hash` of the file that defines the workload, and of all that it imports from faze."""
    path = faze.config.workloads.class_path(workload).partition(":")[0]
    if path.startswith("faze."):
        return faze.base.code_hash.sources(path)
    sys.path.insert(0, os.getcwd())
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


rule benchmark_workload:
    input:
        proofs="results/{name}/benchmark/proofs.json",
    output:
        "results/{name}/benchmark/benchmark.json",
    log:
        "results/{name}/logs/benchmark_workload.log",
    benchmark:
        "results/{name}/benchmarks/benchmark_workload.tsv"
    conda:
        "../../envs/faze.yaml"
    threads: CORES
    params:
        *values("benchmark_workload"),
        *code("benchmark_workload"),
        *WORKLOAD_CODE,
        config=config_file("benchmark_workload"),
    shell:
        r"""
        exclusive python -m faze benchmark_workload \
            --config {params.config:q} \
            --threads {threads} \
            --out {output:q} \
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
        page=directory(f"results/{config['name']}/report"),
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
