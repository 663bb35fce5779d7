# Raw frames, rendered or the user's own -> normalised eye strips.

RENDERED_SETS = [RENDERED[data.layout] for data in DATASETS.values() if not data.path]  # laptop, phone


def without_poses(data):
    """Return whether a data set has no head poses (GazeCapture, or a manifest whose header lacks them)."""
    from faze.data.readers.manifest import needs_landmarks  # importing it takes a third of a second

    return data.layout == "gazecapture" or (data.layout == "manifest" and needs_landmarks(Path(data.path)))


def raw_data(wildcards):
    """Return the path of the user's data set, or of the rendered people in its layout."""
    data = DATASETS[wildcards.dataset]
    return local(data.path) if data.path else f"{ROOT}/raw/{RENDERED[data.layout]}"


def supplementary(wildcards):
    """Return the supplementary file, if any: the user's, a rendered one, or one with estimated head poses."""
    data = DATASETS[wildcards.dataset]
    if data.supplementary:
        return local(data.supplementary)
    if not without_poses(data):
        return []
    if data.path:
        return f"{ROOT}/raw/{wildcards.dataset}_landmarks.h5"
    return f"{ROOT}/raw/{RENDERED[data.layout]}_supplementary.h5"


def splits(wildcards):
    """Return the JSON file that lists a data set's people by split, if there is one."""
    listed = DATASETS[wildcards.dataset].splits
    return [] if listed in SPLITS else local(listed)


use rule stage as synthesise with:
    output:
        **{name: directory(f"{ROOT}/raw/{name}") for name in RENDERED_SETS},
        **{f"{name}_supplementary": f"{ROOT}/raw/{name}_supplementary.h5" for name in RENDERED_SETS},
        truth=f"{ROOT}/raw/truth.h5",
    threads: CORES
    params:
        **stage_params("synthesise"),


use rule stage as landmarks with:
    input:
        raw=raw_data,
        model=local(settings.landmarks.model),
    output:
        out=f"{ROOT}/raw/{{dataset}}_landmarks.h5",
    threads: CORES
    params:
        **stage_params("landmarks"),


use rule stage as preprocess with:
    input:
        raw=raw_data,
        supplementary=supplementary,
        after=splits,
    output:
        out=f"{ROOT}/data/{{dataset}}.h5",
        rejects=f"{ROOT}/data/{{dataset}}_rejects.csv",
    priority: 1  # before training; otherwise, jobs that need both data sets could not use cores left free by training
    threads: CORES
    params:
        **stage_params("preprocess"),
