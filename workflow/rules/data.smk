# Raw frames, rendered or the user's own -> normalised eye strips.


def raw(wildcards):
    """The user's data set, or synthetic people in its layout."""
    key = RAW[wildcards.dataset]
    return config["preprocess"][key] or f"results/{wildcards.name}/raw/{key}"


def supplementary(wildcards):
    """FAZE's supplementary file where one is given; synthetic GazeCapture has its own, as it cannot do without."""
    key = f"{RAW[wildcards.dataset]}_supplementary"
    synthetic = wildcards.dataset == "gazecapture" and not config["preprocess"]["gazecapture"]
    return config["preprocess"][key] or (f"results/{wildcards.name}/raw/{key}.h5" if synthetic else [])


def splits(wildcards):
    """The list of people by split, of a GazeCapture that was normalised already and does not know them."""
    listed = config["preprocess"]["gazecapture_split"]
    return listed if listed and wildcards.dataset == "gazecapture" else []


rule synthesise:
    input:
        config="results/{name}/configs/synthesise.yaml",
    output:
        mpiifacegaze=directory("results/{name}/raw/mpiifacegaze"),
        gazecapture=directory("results/{name}/raw/gazecapture"),
        mpiifacegaze_supplementary="results/{name}/raw/mpiifacegaze_supplementary.h5",
        gazecapture_supplementary="results/{name}/raw/gazecapture_supplementary.h5",
        truth="results/{name}/raw/truth.h5",
    log:
        "results/{name}/logs/synthesise.log",
    benchmark:
        "results/{name}/benchmarks/synthesise.tsv"
    conda:
        "../../envs/faze.yaml"
    threads: CORES
    params:
        *code("synthesise"),
    shell:
        r"""
        beside python -m faze.stages.synthesise \
            --config {input.config:q} \
            --threads {threads} \
            --mpiifacegaze {output.mpiifacegaze:q} \
            --gazecapture {output.gazecapture:q} \
            --mpiifacegaze-supplementary {output.mpiifacegaze_supplementary:q} \
            --gazecapture-supplementary {output.gazecapture_supplementary:q} \
            --truth {output.truth:q} \
            2>&1 | tee -p {log:q}
        """


rule preprocess:
    input:
        config="results/{name}/configs/preprocess_{dataset}.yaml",
        raw=raw,
        supplementary=supplementary,
        splits=splits,
    output:
        data="results/{name}/data/{dataset}.h5",
        rejects="results/{name}/data/{dataset}_rejects.csv",
    log:
        "results/{name}/logs/preprocess_{dataset}.log",
    benchmark:
        "results/{name}/benchmarks/preprocess_{dataset}.tsv"
    conda:
        "../../envs/faze.yaml"
    threads: CORES
    params:
        *code("preprocess"),
        supplementary=lambda wildcards, input: [f"--supplementary={path}" for path in [input.supplementary] if path],
    shell:
        r"""
        beside python -m faze.stages.preprocess \
            --config {input.config:q} \
            --dataset {wildcards.dataset} \
            --raw {input.raw:q} \
            --threads {threads} \
            --out {output.data:q} \
            --rejects {output.rejects:q} \
            {params.supplementary:q} \
            2>&1 | tee -p {log:q}
        """
