# A user's own training, defined by a class.

ERRORS = [f"{RUN}/checkpoint.pt"]


use rule stage as report with:
    input:
        after=[PROOFS, f"{ROOT}/benchmark/benchmark.json", every_run(f"{RUN}/run.jsonl")],
    output:
        evaluation=directory(f"{ROOT}/evaluation"),
        out=report(
            directory(f"{ROOT}/report"), patterns=["{page}.html"], category="Ablation", caption="../report/report.rst"
        ),
    params:
        **stage_params("report", "--results", ROOT, workload=True),
