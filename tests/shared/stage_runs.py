"""Run a stage or command in this process: changes of the defaults -> a config file -> the command line."""

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from faze.__main__ import main
from faze.config.parameters import STAGES, Config, Engine
from faze.config.stage_config import resolve, resolve_tier, to_lines
from faze.config.validation import DEFAULTS, merge, read_config, read_yaml

ROOT = Path(__file__).resolve().parents[2]


def defaults() -> dict[str, Any]:
    """Read config/config.yaml."""
    return read_yaml(DEFAULTS)


def write_config(
    folder: Path,
    stage: str,
    overrides: Mapping[str, Any] | None = None,
    *,
    tier: str = "baseline",
    seed: int = 0,
    dataset: str = "phone",
    fold: int = 0,
    config: Mapping[str, Any] | None = None,
) -> Path:
    """Write the own config of a stage to FOLDER/STAGE.yaml; `config` replaces the defaults below the overrides."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{stage}.yaml"
    changed = overrides or {}
    settings = Config(**merge(config, changed)) if config else read_config(changes=changed)
    values = resolve(settings, stage, tier, seed, dataset, fold)
    path.write_text("\n".join(to_lines(values)) + "\n", encoding="utf-8")
    return path


def engines_of(tiers: Mapping[str, Mapping[str, Any]]) -> dict[str, Engine]:
    """Return the switches of tiers from their changes of the baseline's, on the CPU."""
    off = resolve_tier(read_config(), "baseline")
    return {tier: off.model_copy(update={"device": "cpu", **changes}) for tier, changes in tiers.items()}


def as_words(options: Mapping[str, object]) -> list[str]:
    """Convert options to words: `run_log=path` becomes --run-log path; a list passes several values, None omits it."""
    words = []
    for name, value in options.items():
        if value is None:
            continue
        listed = [] if value is True else value if isinstance(value, list | tuple) else [value]
        words += [f"--{name.replace('_', '-')}", *map(str, listed)]
    return words


def call_faze(*words: object) -> int:
    """Run `faze WORDS` and return its exit code."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", ["faze", *map(str, words)])
        patch.setattr("faze.__main__.keep_memory", lambda: None)  # which would restart this process
        return main()


def call_stage(
    stage: str,
    folder: Path,
    overrides: Mapping[str, Any] | None = None,
    *words: object,
    tier: str = "baseline",
    seed: int = 0,
    dataset: str = "phone",
    fold: int = 0,
    config: Mapping[str, Any] | None = None,
    **options: object,
) -> int:
    """Run a stage or command and return its exit code.

    Args:
        stage: name on the command line, such as "meta_train" or "import-checkpoint".
        folder: folder for its config file, if it has one.
        overrides: changes of the defaults.
        words: command-line words before the options.
        tier: tier of the run.
        seed: seed of the run.
        dataset: data set, if the config depends on it; it is not a command-line option.
        fold: fold of leave-one-person-out.
        config: replaces the defaults.
        options: command-line options; see `as_words`.
    """
    arguments = [*words, *as_words(options)]
    if stage in STAGES:
        run = {"tier": tier, "seed": seed, "dataset": dataset, "fold": fold}
        own = write_config(folder, stage, overrides, config=config, **run)
        arguments = ["--config", own, *arguments]
    return call_faze(stage, *arguments)
