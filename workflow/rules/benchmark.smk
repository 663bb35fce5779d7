# Speed and memory of every tier, interleaved in one job with exclusive use of the machine.


rule benchmark:
    input:
        data=f"results/{{name}}/data/{TRAINING_SET}.h5",
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
        *values("benchmark"),
        *code("benchmark"),
        config=config_file("benchmark"),
    shell:
        r"""
        exclusive python -m faze benchmark \
            --config {params.config:q} \
            --data {input.data:q} \
            --threads {threads} \
            --out {output:q} \
            2>&1 | tee -p {log:q}
        """
