# Of every workload: speed and memory of each tier, and MLflow.


# Interleaved in one job, alone on the machine.
use rule stage as benchmark with:
    input:
        data=TRAINED_ON if GAZE else [],
        after=[] if GAZE else rules.prove_workload.output,
    output:
        out=f"{ROOT}/benchmark/benchmark.json",
    threads: CORES
    params:
        **stage_params("benchmark", workload=True),


use rule stage as track with:
    input:
        after=[f"{ROOT}/evaluation", f"{ROOT}/report", every_run(f"{RUN}/run.jsonl")],
    output:
        out=f"{ROOT}/tracking/tracked.json",
    params:
        **stage_params("track", "--results", ROOT),
