"""Run a stage or command in this process: overrides of the defaults -> a config file -> its main function."""

import functools
import importlib
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from faze.__main__ import COMMANDS, STAGES
from faze.config import parameters
from faze.config.stage_config import resolve, to_lines
from faze.config.yaml_files import merge, read_yaml

ROOT = Path(__file__).resolve().parents[2]


@functools.cache
def defaults() -> dict[str, Any]:
    """Read config/config.yaml. Do not modify the result; `merge` copies it."""
    return read_yaml(ROOT / "config" / "config.yaml")


def write_config(
    folder: Path,
    stage: str,
    overrides: Mapping[str, Any] | None = None,
    *,
    tier: str = "baseline",
    seed: int = 0,
    dataset: str | None = None,
    config: Mapping[str, Any] | None = None,
) -> Path:
    """Write the resolved config of a stage to FOLDER/STAGE.yaml; `config` replaces the defaults below the overrides."""
    run = (tier, seed) if stage in parameters.PER_RUN else (None, None)
    values = merge(defaults() if config is None else config, overrides or {})
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{stage}.yaml"
    path.write_text("\n".join(to_lines(resolve(values, stage, *run, dataset))) + "\n", encoding="utf-8")
    return path


def as_words(options: Mapping[str, object]) -> list[str]:
    """Convert options to words: `run_log=path` becomes --run-log path; a list passes several values, None omits it."""
    words = []
    for name, value in options.items():
        if value is None:
            continue
        listed = [] if value is True else value if isinstance(value, list | tuple) else [value]
        words += [f"--{name.replace('_', '-')}", *map(str, listed)]
    return words


def call_stage(
    stage: str,
    folder: Path,
    overrides: Mapping[str, Any] | None = None,
    *words: object,
    tier: str = "baseline",
    seed: int = 0,
    dataset: str | None = None,
    config: Mapping[str, Any] | None = None,
    **options: object,
) -> int:
    """Run a stage or command and return its exit code.

    Args:
        stage: name on the command line, such as "meta_train" or "import-checkpoint".
        folder: folder for its config file, if it has one.
        overrides: changes to the defaults.
        words: command-line words before the options.
        tier: tier, if the stage runs per tier and seed.
        seed: seed of the run.
        dataset: data set, if the config depends on it; it is not a command-line option.
        config: replaces the defaults.
        options: command-line options; see `as_words`.
    """
    arguments = [*map(str, words), *as_words(options)]
    if stage in parameters.STAGES:
        own = write_config(folder, stage, overrides, tier=tier, seed=seed, dataset=dataset, config=config)
        arguments = ["--config", str(own), *arguments]
    module = importlib.import_module((STAGES | COMMANDS)[stage])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", [stage, *arguments])
        return module.main()
