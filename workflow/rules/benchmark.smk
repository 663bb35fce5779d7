# Speed and memory of every tier, interleaved in one job, with the machine to itself.


rule benchmark:
    input:
        config="results/{name}/configs/benchmark.yaml",
        data="results/{name}/data/gazecapture.h5",
    output:
        "results/{name}/benchmark/benchmark.json",
    log:
        "results/{name}/logs/benchmark.log",
    benchmark:
        "results/{name}/benchmarks/benchmark.tsv"
    conda:
        "../../envs/faze.yaml"
    threads: CORES
    params:
        *code("benchmark"),
    shell:
        r"""
        alone python -m faze benchmark \
            --config {input.config:q} \
            --data {input.data:q} \
            --threads {threads} \
            --out {output:q} \
            2>&1 | tee -p {log:q}
        """
