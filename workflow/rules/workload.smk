# Anyone's training, a class of the user's: proofs first, then training.

OF_TIER = [f"{RUN}/checkpoint.pt"]


use rule stage as prove_workload with:
    output:
        out=f"{ROOT}/benchmark/proofs.json",
    threads: CORES
    params:
        **stage_params("prove_workload", workload=True),


use rule stage as train_workload with:
    input:
        after=rules.prove_workload.output,
    output:
        out=f"{RUN}/checkpoint.pt",
        run_log=f"{RUN}/run.jsonl",
    threads: cores_of_training
    params:
        **stage_params("train_workload", workload=True),


use rule stage as report with:
    input:
        after=[rules.prove_workload.output, f"{ROOT}/benchmark/benchmark.json", every_run(f"{RUN}/run.jsonl")],
    output:
        evaluation=directory(f"{ROOT}/evaluation"),
        out=report(
            directory(f"{ROOT}/report"), patterns=["{page}.html"], category="Ablation", caption="../report/report.rst"
        ),
    params:
        **stage_params("report", "--results", ROOT, workload=True),
