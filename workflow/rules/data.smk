# Raw frames, rendered or the user's own -> normalised eye strips.

RENDERED = [data.layout for data in DATASETS.values() if not data.path]  # their layouts


def without_poses(name, data):
    """Return whether a data set is a manifest without head poses, by its header."""
    if data.layout != "manifest" or data.supplementary or in_storage(data.path):
        return False
    from faze.data.readers.manifest import needs_landmarks  # imports take a third of a second

    return needs_landmarks(Path(data.path))


UNPOSED = [name for name, data in DATASETS.items() if in_one_sentence(without_poses, name, data)]


def raw_data(wildcards):
    """Return the user's data set, or rendered people in its layout."""
    data = DATASETS[wildcards.dataset]
    return given(data.path) if data.path else f"results/{wildcards.name}/raw/{data.layout}"


def supplementary(wildcards):
    """Return the supplementary file, if any: given, rendered, or with head poses that the data set lacks."""
    data = DATASETS[wildcards.dataset]
    if data.supplementary:
        return given(data.supplementary)
    if data.layout != "gazecapture" and wildcards.dataset not in UNPOSED:
        return []
    made = f"{wildcards.dataset}_landmarks" if data.path else f"{data.layout}_supplementary"
    return f"results/{wildcards.name}/raw/{made}.h5"


def splits(wildcards):
    """Return the list of people by split, if the data set has one."""
    listed = splits_file(DATASETS[wildcards.dataset])
    return local(listed) if listed else []


def last_of_raw(wildcards):
    """Return the output that `synthesise` stores last: in a storage, a folder exists as soon as one of its files does."""
    rendered = STORAGE and not DATASETS[wildcards.dataset].path
    return f"results/{wildcards.name}/raw/truth.h5" if rendered else []


def check_landmarks(landmarks):
    """Check that the environment and the model that the user names exist."""
    for key, path in landmarks.items():
        if path:
            check_path(f"landmarks.{key}", path)


in_one_sentence(check_landmarks, config["landmarks"])


rule synthesise:
    output:
        **{key: directory(f"results/{{name}}/raw/{key}") for key in RENDERED},
        **{f"{key}_supplementary": f"results/{{name}}/raw/{key}_supplementary.h5" for key in RENDERED},
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
        outputs=lambda wildcards, output: [f"--{key.replace('_', '-')}={path}" for key, path in output.items()],
    shell:
        r"""
        shared python -m faze synthesise \
            --config {params.config:q} \
            --threads {threads} \
            {params.outputs:q} \
            {SHARED_RECORDS:q} \
            2>&1 | tee -p {log:q}
        """


# In a separate environment, because MediaPipe installs a second cv2: conda's, or that of landmarks.python. Without
# either, faze's own.
rule landmarks:
    input:
        raw=raw_data,
        model=lambda wildcards: given(config["landmarks"]["model"]) if config["landmarks"]["model"] else [],
    output:
        "results/{name}/raw/{dataset}_landmarks.h5",
    log:
        "results/{name}/logs/landmarks_{dataset}.log",
    benchmark:
        "results/{name}/benchmarks/landmarks_{dataset}.tsv"
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
        raw=raw_data,
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
    priority: 3  # before training, since jobs that need both data sets could not use the free cores otherwise
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
            --raw {input.raw:q} \
            --threads {threads} \
            --out {output.data:q} \
            --rejects {output.rejects:q} \
            {SHARED_RECORDS:q} \
            {params.supplementary:q} \
            2>&1 | tee -p {log:q}
        """
