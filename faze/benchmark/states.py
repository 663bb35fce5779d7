"""Copies of the measured code, so that a tier can be timed beside its own previous state in the same rounds."""

import json
import os
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

import joblib

from faze.base.code_hash import ROOT
from faze.base.files import whole_folder
from faze.benchmark.rounds import TierProcesses
from faze.config.parameters import Engine
from faze.config.stage_config import Resolved, to_lines, unflatten
from faze.config.validation import read_yaml


def keep_state(folder: Path, config: Resolved, own_code: Sequence[str], states: Mapping[str, str]) -> None:
    """Copy faze, the modules of a user's class (`path@hash`), the configuration and the hashes of the tiers' states."""
    copy = folder / joblib.hash((states, config.flat))[:12]
    if not copy.exists():
        with whole_folder(copy) as new:
            shutil.copytree(ROOT / "faze", new / "faze", ignore=shutil.ignore_patterns("__pycache__"))
            for path in (line.partition("@")[0] for line in own_code if not line.startswith("faze/")):
                (new / path).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(path if Path(path).exists() else ROOT / path, new / path)
            (new / "config.yaml").write_text("\n".join(to_lines(config.flat)), encoding="utf-8")
            (new / "states.json").write_text(json.dumps(states), encoding="utf-8")
    os.utime(copy)  # the last one measured


def find_previous(folder: Path, tier: str, state: str) -> tuple[Path | None, str]:
    """Return the copy that contains the last measured state of a tier other than `state`, and that state's hash."""
    for copy in sorted(folder.glob("[!.]*"), key=lambda path: path.stat().st_mtime, reverse=True):
        states = json.loads((copy / "states.json").read_bytes())
        if states.get(tier, state) != state:
            return copy, states[tier]
    return None, ""


def start_previous(copy: Path, name: str, tier: str, arguments: Sequence[str]) -> TierProcesses:
    """Start the processes of a tier with a copy's code and configuration; `arguments` are those of this process."""
    flat = read_yaml(copy / "config.yaml")
    engine = Engine.model_construct(**unflatten(flat)["engines"][tier])  # another code's, so not validated
    command = [flat["stage"], *arguments, "--config", str(copy / "config.yaml"), "--tier", tier]
    # Without PYTHONSAFEPATH, modules in the working directory would come before those of the copy.
    path = os.pathsep.join([str(copy), os.environ.get("PYTHONPATH", "")])
    return TierProcesses(name, engine, command, PYTHONPATH=path, PYTHONSAFEPATH="1")
