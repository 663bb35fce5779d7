# From raw camera frames to the verdict: snakemake --cores all ablation
from snakemake.exceptions import WorkflowError
from snakemake.utils import min_version

min_version("9.27")

if set("{}") & set(str(workflow.basedir)):  # before the first `include`, which would fail without this reason
    raise WorkflowError(f"{workflow.basedir}: Snakemake treats braces in this path as wildcards: rename the folder")


report: "workflow/report/workflow.rst"


include: "workflow/rules/storage.smk"  # location of results and data, if not on this machine
include: "workflow/rules/common.smk"  # reads and checks the configuration
include: "workflow/rules/progress.smk"  # lines of progress, and checks before a run


if GAZE:

    include: "workflow/rules/data.smk"
    include: "workflow/rules/train.smk"
    include: "workflow/rules/fewshot.smk"
    include: "workflow/rules/walk.smk"
    include: "workflow/rules/report.smk"  # with the target `report`
    include: "workflow/rules/sweep.smk"  # with the target `sweep`

else:

    include: "workflow/rules/workload.smk"


include: "workflow/rules/benchmark.smk"
include: "workflow/rules/track.smk"


rule ablation:
    default_target: True
    input:
        every("results/{name}/report"),
        every("results/{name}/tracking/tracked.json"),
        every_run("results/{name}/{tier}/seed{seed}/fewshot/{learner}_{table}.parquet", table=TABLES) if GAZE else [],
    localrule: True


if GAZE:

    rule sweep:
        input:
            rules.compare.output,
            rules.track_sweep.output,
        localrule: True


# tier_baseline, tier_amp ...: one tier, up to the files that the report reads. Walks of later tiers depend on the first
# tier's redirected strips, which select the people, so only `ablation` makes them.
for tier in config["tiers"]:

    rule:
        name:
            f"tier_{tier}"
        input:
            every("results/{name}/{tier}/seed{seed}/checkpoint.pt", tier=tier),
            every("results/{name}/{tier}/seed{seed}/fewshot/{learner}_{table}.parquet", tier=tier, table=TABLES)
            if GAZE
            else [],
            every("results/{name}/{tier}/seed{seed}/walks", tier=tier) if GAZE and tier == TIERS[0] else [],
            every("results/{name}/{tier}/seed{seed}/redirection.parquet", tier=tier) if GAZE else [],
        localrule: True
