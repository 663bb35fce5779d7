# Speed and memory of every tier, interleaved in one job with exclusive use of the machine.


rule benchmark:
    input:
        data=f"results/{{name}}/data/{TRAINING_SET}.h5" if GAZE else [],
        proofs=[] if GAZE else "results/{name}/benchmark/proofs.json",
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
        *WORKLOAD_CODE,
        config=config_file("benchmark"),
    shell:
        r"""
        data={input.data:q}
        exclusive python -m faze benchmark \
            --config {params.config:q} \
            ${{data:+--data "$data"}} \
            --threads {threads} \
            --out {output:q} \
            2>&1 | tee -p {log:q}
        """
