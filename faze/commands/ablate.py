"""`faze ablate package.module:Class`: the whole ablation of your own training, without a config file of your own.

It writes NAME.yaml in the working directory, where you can then change tiers and seeds, and runs it with Snakemake:
proofs, training of every tier, benchmark, page and MLflow. The same command resumes and re-runs what has changed.
"""

import subprocess
import sys
import webbrowser
from argparse import Namespace
from pathlib import Path

import torch

from faze.base.code_hash import ROOT
from faze.base.command_line import argument, command
from faze.base.errors import UserError
from faze.config.workloads import class_path
from faze.training.workload_training import check_workload, load_workload

# Tiers for each device: what acts on any network.
TIERS = {
    "cpu": "[baseline, bf16 on baseline, fused_sgd on baseline (untrained), ddp on baseline (untrained), "
    "channels_last on baseline, compile on channels_last]",
    "cuda": "[baseline, amp, ddp, fused_sgd, autotune, bf16, channels_last, graphs, compile]",
}
CONFIG = """# Written by `faze ablate {workload}`; every other parameter is in config/config.yaml of faze.
name: {name}
workload: {workload}
run:
  tiers: {tiers}
  seeds: [0] # three or more give intervals of the score
"""


@command(
    __doc__,
    argument("workload", metavar="package.module:Class", help="subclass of faze.training.workload.Workload"),
    argument("--cores", default="all", help="CPU cores"),
    argument("--no-browser", action="store_true", help="do not open the page"),
)
def main(args: Namespace) -> None:
    """Check the class, write the config file unless it exists, run it, and open the page."""
    check_workload(load_workload(args.workload), args.workload)
    name = class_path(args.workload).rpartition(":")[2]
    config = Path(f"{name}.yaml")
    device = "cuda" if torch.cuda.is_available() else "cpu"
    if not config.exists():
        config.write_text(CONFIG.format(name=name, workload=args.workload, tiers=TIERS[device]), encoding="utf-8")
        print(f"ablate: wrote {config}", file=sys.stderr)
    elif args.workload not in config.read_text(encoding="utf-8"):
        raise UserError(f"{config} is not a configuration of {args.workload}: rename it, or run it with snakemake")
    files = ["--snakefile", ROOT / "Snakefile", "--workflow-profile", ROOT / "profiles/default"]
    arguments = ["--cores", args.cores, "ablation", "--configfile", config]
    code = subprocess.run([sys.executable, "-m", "snakemake", *map(str, [*files, *arguments])], check=False).returncode
    page = Path("results", name, "report", "index.html").resolve()
    if code:
        sys.exit(code)
    if not args.no_browser:
        webbrowser.open(page.as_uri())
