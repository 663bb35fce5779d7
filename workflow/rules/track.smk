# To MLflow: every run of an ablation, whatever its workload.


rule track:
    input:
        run_logs=every_run("results/{name}/{tier}/seed{seed}/run.jsonl"),
        walks=every("results/{name}/{tier}/seed{seed}/walks") if GAZE else [],
        evaluation=every("results/{name}/evaluation"),
        inspection=every("results/{name}/inspection/{dataset}") if GAZE else [],
        report=every("results/{name}/report"),
    output:
        "results/{name}/tracking/tracked.json",
    log:
        "results/{name}/logs/track.log",
    benchmark:
        "results/{name}/benchmarks/track.tsv"
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
            --out {output:q} \
            2>&1 | tee -p {log:q}
        """
