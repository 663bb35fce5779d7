# For every workload: the proof that each tier is the same experiment; training, speed and memory of tiers; tracking.


use rule stage as prove with:
    input:
        data=TRAINED_ON,
    output:
        out=PROOF,
    threads: cores_of_training
    params:
        **stage_params("prove", workload=True),


use rule stage as train with:
    input:
        data=TRAINED_ON,
        after=lambda wildcards: [proof_of(wildcards), *map(local, START)],
    output:
        out=f"{FOLD}/checkpoint.pt",
        run_log=f"{FOLD}/run.jsonl",
    threads: cores_of_training
    params:
        **stage_params("train", workload=True),


# All tiers are interleaved in one job, which uses the machine exclusively.
use rule stage as benchmark with:
    input:
        data=TRAINED_ON,
        proofs=expand(PROOF, tier=listed(settings)[1:]),
    output:
        out=f"{ROOT}/benchmark/benchmark.json",
        after=PROOFS,
    threads: CORES
    params:
        **stage_params("benchmark", workload=True),


use rule stage as measure with:
    input:
        data=TRAINED_ON,
        after=PROOF,
    output:
        out=f"{ROOT}/benchmark/tier_{{tier}}.json",
    threads: CORES
    params:
        **stage_params("measure", workload=True),


use rule stage as answer with:
    input:
        data=TRAINED_ON,
        proof=PROOF,
        measured=rules.measure.output.out,
        errors=lambda wildcards: expand(ERRORS, tier=wildcards.tier, seed=SEEDS * settings.tiers[wildcards.tier].train),
    output:
        out=directory(f"{ROOT}/{{tier}}/report"),
    params:
        **stage_params("answer", "--results", ROOT, workload=True),


use rule stage as track with:
    input:
        after=[f"{ROOT}/evaluation", f"{ROOT}/report", every_run(f"{RUN}/run.jsonl")],
    output:
        out=f"{ROOT}/tracking/tracked.json",
    params:
        **stage_params("track", "--results", ROOT),
