# Raw frames, rendered or the user's own -> normalised eye strips.


def data_set(key, name):
    """The user's data set, or synthetic people in its layout."""
    path = config["preprocess"][key]
    return given(path) if path else f"results/{name}/raw/{key}"


def supplementary(wildcards):
    """FAZE's supplementary file where one is given; GazeCapture's frames, synthetic (with its own) or not, need one."""
    key = f"{RAW[wildcards.dataset]}_supplementary"
    path, gazecapture = config["preprocess"][key], config["preprocess"]["gazecapture"]
    if path or wildcards.dataset != "gazecapture" or (gazecapture and holds_strips(gazecapture)):
        return given(path) if path else []
    made = "gazecapture_landmarks" if gazecapture else key
    return f"results/{wildcards.name}/raw/{made}.h5"


def splits(wildcards):
    """The list of people by split, of a GazeCapture that was normalised already and does not know them."""
    listed = config["preprocess"]["gazecapture_split"]
    return local(listed) if listed and wildcards.dataset == "gazecapture" else []


def last_of_raw(wildcards):
    """In a storage, what `synthesise` stores last: where that broke off, Snakemake takes a part of a folder for it."""
    rendered = not config["preprocess"][RAW[wildcards.dataset]]
    return f"results/{wildcards.name}/raw/truth.h5" if rendered and STORAGE else []


def check_landmarks(landmarks):
    """The environment and the model that the user names exist."""
    for key, path in landmarks.items():
        if path and not Path(path).exists():
            raise faze.config.check.ConfigError(f"landmarks.{key}: no such file: {path}")


in_one_sentence(check_landmarks, config["landmarks"])


rule synthesise:
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
        *values("synthesise"),
        *code("synthesise"),
        config=config_file("synthesise"),
    shell:
        r"""
        shared python -m faze synthesise \
            --config {params.config:q} \
            --threads {threads} \
            --mpiifacegaze {output.mpiifacegaze:q} \
            --gazecapture {output.gazecapture:q} \
            --mpiifacegaze-supplementary {output.mpiifacegaze_supplementary:q} \
            --gazecapture-supplementary {output.gazecapture_supplementary:q} \
            --truth {output.truth:q} \
            {SHARED_RECORDS:q} \
            2>&1 | tee -p {log:q}
        """


# In an environment of its own, as MediaPipe brings a second cv2: conda's, or that of landmarks.python.
rule landmarks:
    input:
        raw=lambda wildcards: data_set("gazecapture", wildcards.name),
        model=lambda wildcards: given(config["landmarks"]["model"]) if config["landmarks"]["model"] else [],
    output:
        "results/{name}/raw/gazecapture_landmarks.h5",
    log:
        "results/{name}/logs/landmarks.log",
    benchmark:
        "results/{name}/benchmarks/landmarks.tsv"
    conda:
        "../../envs/landmarks.yaml"
    threads: CORES
    params:
        *code("landmarks"),
        python=config["landmarks"]["python"] or "python",
        model=lambda wildcards, input: [f"--model={input.model}"] if input.model else [],
    shell:
        r"""
        shared {params.python:q} -m faze landmarks \
            --raw {input.raw:q} \
            --threads {threads} \
            --out {output:q} \
            {params.model:q} \
            2>&1 | tee -p {log:q}
        """


rule preprocess:
    input:
        raw=lambda wildcards: data_set(RAW[wildcards.dataset], wildcards.name),
        last_of_raw=last_of_raw,
        supplementary=supplementary,
        splits=splits,
    output:
        data="results/{name}/data/{dataset}.h5",
        rejects="results/{name}/data/{dataset}_rejects.csv",
    log:
        "results/{name}/logs/preprocess_{dataset}.log",
    benchmark:
        "results/{name}/benchmarks/preprocess_{dataset}.tsv"
    priority: 3  # before trainings: what needs both data sets could not fill the cores that they leave free
    conda:
        "../../envs/faze.yaml"
    threads: CORES
    params:
        *values("preprocess"),
        *code("preprocess"),
        config=config_file("preprocess"),
        supplementary=lambda wildcards, input: [f"--supplementary={path}" for path in [input.supplementary] if path],
    shell:
        r"""
        shared python -m faze preprocess \
            --config {params.config:q} \
            --dataset {wildcards.dataset} \
            --raw {input.raw:q} \
            --threads {threads} \
            --out {output.data:q} \
            --rejects {output.rejects:q} \
            {SHARED_RECORDS:q} \
            {params.supplementary:q} \
            2>&1 | tee -p {log:q}
        """
