# Latent walks and redirected strips: what a network has learnt, to look at and in numbers.


rule walk:
    input:
        config="results/{name}/{tier}/seed{seed}/configs/walk.yaml",
        checkpoint="results/{name}/{tier}/seed{seed}/checkpoint.pt",
        mpiigaze="results/{name}/data/mpiigaze.h5",
        gazecapture="results/{name}/data/gazecapture.h5",
    output:
        report(
            directory("results/{name}/{tier}/seed{seed}/walks"),
            patterns=["{walk}.mp4", "{walk}.png"],
            category="Latent walks",
            labels={"tier": "{tier}", "seed": "{seed}", "walk": "{walk}"},
            caption="../report/walk.rst",
        ),
    log:
        "results/{name}/{tier}/seed{seed}/logs/walk.log",
    benchmark:
        "results/{name}/{tier}/seed{seed}/benchmarks/walk.tsv"
    conda:
        "../../envs/faze.yaml"
    threads: max(1, CORES // 2)
    params:
        *code("walk"),
    shell:
        r"""
        beside python -m faze walk \
            --config {input.config:q} \
            --checkpoint {input.checkpoint:q} \
            --data {input.mpiigaze:q} {input.gazecapture:q} \
            --threads {threads} \
            --out {output:q} \
            --made-once results/{wildcards.name:q}/made_once \
            2>&1 | tee -p {log:q}
        """


rule redirect:
    input:
        config="results/{name}/{tier}/seed{seed}/configs/redirect.yaml",
        checkpoint="results/{name}/{tier}/seed{seed}/checkpoint.pt",
        mpiigaze="results/{name}/data/mpiigaze.h5",
        gazecapture="results/{name}/data/gazecapture.h5",
    output:
        "results/{name}/{tier}/seed{seed}/redirection.parquet",
    log:
        "results/{name}/{tier}/seed{seed}/logs/redirect.log",
    benchmark:
        "results/{name}/{tier}/seed{seed}/benchmarks/redirect.tsv"
    conda:
        "../../envs/faze.yaml"
    threads: max(1, CORES // 2)
    params:
        *code("redirect"),
    shell:
        r"""
        beside python -m faze redirect \
            --config {input.config:q} \
            --checkpoint {input.checkpoint:q} \
            --data {input.mpiigaze:q} {input.gazecapture:q} \
            --threads {threads} \
            --out {output:q} \
            --made-once results/{wildcards.name:q}/made_once \
            2>&1 | tee -p {log:q}
        """
