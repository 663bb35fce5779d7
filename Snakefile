# From raw camera frames to the verdict: snakemake --cores all ablation
from snakemake.utils import min_version

min_version("9.27")


report: "workflow/report/workflow.rst"


include: "workflow/rules/storage.smk"  # where results and data lie, if not on this machine
include: "workflow/rules/common.smk"  # reads and checks the configuration
include: "workflow/rules/data.smk"
include: "workflow/rules/train.smk"
include: "workflow/rules/fewshot.smk"
include: "workflow/rules/walk.smk"
include: "workflow/rules/benchmark.smk"
include: "workflow/rules/report.smk"  # with the target `report`
include: "workflow/rules/sweep.smk"  # with the target `sweep`


rule ablation:
    default_target: True
    input:
        every("results/{name}/report"),
        every("results/{name}/tracking/tracked.json"),
    localrule: True


rule sweep:
    input:
        rules.compare.output,
        rules.track_sweep.output,
    localrule: True


# tier_baseline, tier_amp ...: one rung of the ladder, up to what the report reads of it. The walks of the others are left
# to `ablation`: the first one's redirected strips choose the people, so they would take its training too.
for tier in config["tiers"]:

    rule:
        name:
            f"tier_{tier}"
        input:
            every("results/{name}/{tier}/seed{seed}/checkpoint.pt", tier=tier),
            every("results/{name}/{tier}/seed{seed}/fewshot/{learner}_errors.parquet", tier=tier),
            every("results/{name}/{tier}/seed{seed}/walks", tier=tier) if tier == config["run"]["tiers"][0] else [],
            every("results/{name}/{tier}/seed{seed}/redirection.parquet", tier=tier),
        localrule: True
