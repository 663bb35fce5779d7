"""A complete ablation of your own training code: proofs, training runs, benchmark, page and MLflow.

Writes NAME.yaml (edit it to change tiers and seeds) to the working directory, and runs or resumes the ablation.
"""

import subprocess
import sys
from pathlib import Path

import torch

from faze.base.code_hash import ROOT
from faze.base.errors import UserError
from faze.training.check import load_class

CONFIG = """# Written by `faze ablate {workload}`; all other parameters are in faze's config/config.yaml.
name: {name}
workload: {workload}
run:
  tiers: {tiers}
  seeds: [0] # with three or more seeds, the score has an interval
"""
ON_CPU = """tiers: # these tiers have an effect on any network; a tier with `train: false` is only benchmarked
  bf16: {on: baseline}
  fused_sgd: {on: baseline, train: false}
  ddp: {on: baseline, train: false}
  channels_last: {on: baseline}
"""
TIERS = {
    "cpu": "[baseline, bf16, fused_sgd, ddp, channels_last, compile]",
    "cuda": "[baseline, amp, ddp, fused_sgd, autotune, bf16, channels_last, graphs, compile]",
}


def main(workload: str) -> None:
    """Check the class, write the configuration if it does not exist, and run the ablation.

    Args:
        workload: package.module:Class, a subclass of faze.training.workload.Workload
    """
    load_class(workload, checked=True)
    name = workload.rpartition(":")[2]
    config, device = Path(f"{name}.yaml"), "cuda" if torch.cuda.is_available() else "cpu"
    if not config.exists():
        text = CONFIG.format(name=name, workload=workload, tiers=TIERS[device])
        config.write_text(text + (ON_CPU if device == "cpu" else ""), encoding="utf-8")
        print(f"ablate: wrote {config}", file=sys.stderr)
    elif workload not in config.read_text(encoding="utf-8"):
        raise UserError(f"{config} is not a configuration for {workload}: rename it, or run it with snakemake")
    snakemake = [sys.executable, "-m", "snakemake", "--snakefile", ROOT / "Snakefile"]
    snakemake += ["--workflow-profile", ROOT / "profiles/default", "--cores", "all", "ablation", "--configfile", config]
    sys.exit(subprocess.run(snakemake, check=False).returncode)
