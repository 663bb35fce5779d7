# From raw camera frames to the verdict: snakemake --cores all ablation
from snakemake.utils import min_version

min_version("9.27")


report: "workflow/report/workflow.rst"


include: "workflow/rules/common.smk"  # reads and checks the configuration


# Each stage has a rule, usually of the same name, whose named inputs and outputs are the options of `faze STAGE`.
rule stage:
    output:
        "never",
    shell:
        "mkdir -p $(dirname {params.log:q}) && python -m faze {params.stage} --threads {threads} {params.options:q} 2>&1 | tee -p {params.log:q}"


if GAZE:

    include: "workflow/rules/data.smk"
    include: "workflow/rules/gaze.smk"

else:

    include: "workflow/rules/workload.smk"


include: "workflow/rules/results.smk"


rule ablation:
    default_target: True
    input:
        f"{ROOT}/report",
        f"{ROOT}/tracking/tracked.json",


# Targets tier_baseline, tier_amp, ...: a single tier, up to a page that compares it with the baseline and its own past.
for tier in OWN:

    rule:
        name:
            f"tier_{tier}"
        input:
            f"{ROOT}/{tier}/report",
