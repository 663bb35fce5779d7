# DT-ED on one rung of the ladder, once per seed.


rule train:
    input:
        config="results/{name}/{tier}/seed{seed}/configs/train.yaml",
        data="results/{name}/data/gazecapture.h5",
    output:
        checkpoint="results/{name}/{tier}/seed{seed}/checkpoint.pt",
        run_log="results/{name}/{tier}/seed{seed}/run.jsonl",
    log:
        "results/{name}/{tier}/seed{seed}/logs/train.log",
    benchmark:
        "results/{name}/{tier}/seed{seed}/benchmarks/train.tsv"
    conda:
        "../../envs/faze.yaml"
    threads: CORES
    params:
        *code("train"),
    shell:
        r"""
        alone python -m faze train \
            --config {input.config:q} \
            --data {input.data:q} \
            --threads {threads} \
            --out {output.checkpoint:q} \
            --run-log {output.run_log:q} \
            --made-once results/{wildcards.name:q}/made_once \
            2>&1 | tee -p {log:q}
        """
