"""Paths of the outputs of an ablation under results/<name>/, as the workflow's rules declare them.

Stages that read the files of many runs (evaluate, report, track) find them here. Standard library only.
"""

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class ResultPaths:
    """The paths under results/<name>/."""

    root: Path

    def store(self, dataset: str) -> Path:
        """Return the store of normalised strips."""
        return self.root / "data" / f"{dataset}.h5"

    def inspection(self, dataset: str) -> Path:
        """Return the folder of a data set's page."""
        return self.root / "inspection" / dataset

    def run(self, tier: str, seed: int) -> Path:
        """Return the folder of a run."""
        return self.root / tier / f"seed{seed}"

    def run_log(self, tier: str, seed: int) -> Path:
        """Return the run log."""
        return self.run(tier, seed) / "run.jsonl"

    def live_log(self, tier: str, seed: int) -> Path:
        """Return the run log of a run in progress, in a folder that is not an output of a rule."""
        return self.run(tier, seed) / "train.work" / "run.jsonl"

    def checkpoint(self, tier: str, seed: int) -> Path:
        """Return the checkpoint."""
        return self.run(tier, seed) / "checkpoint.pt"

    def learner(self, tier: str, seed: int, learner: str) -> Path:
        """Return the file of a trained few-shot learner."""
        return self.run(tier, seed) / "fewshot" / f"{learner}.pt"

    def codes(self, tier: str, seed: int, dataset: str) -> Path:
        """Return the store of all strips' codes."""
        return self.run(tier, seed) / "codes" / f"{dataset}.h5"

    def errors(self, tier: str, seed: int, learner: str) -> Path:
        """Return the table of errors after adaptation, one row per person, k and repeat."""
        return self.run(tier, seed) / "fewshot" / f"{learner}_errors.parquet"

    def walks(self, tier: str, seed: int) -> Path:
        """Return the folder of videos and contact sheets."""
        return self.run(tier, seed) / "walks"

    def redirection(self, tier: str, seed: int) -> Path:
        """Return the table of the similarity between redirected strips and their person, one row per person."""
        return self.run(tier, seed) / "redirection.parquet"

    def redirected_pairs(self, tier: str, seed: int) -> Path:
        """Return the table of gaze and head angles of redirected strips, one row per pair and variant."""
        return self.run(tier, seed) / "redirected_pairs.parquet"

    @property
    def estimator_errors(self) -> Path:
        """Return the file of the estimator's errors."""
        return self.root / "estimator" / "errors.json"

    @property
    def benchmark(self) -> Path:
        """Return the path of the file with the speed and memory of all tiers."""
        return self.root / "benchmark" / "benchmark.json"

    @property
    def evaluation(self) -> Path:
        """Return the folder of tables."""
        return self.root / "evaluation"

    @property
    def sweep(self) -> Path:
        """Return the folder of the page that compares a sweep's points."""
        return self.root / "sweep"

    @property
    def report(self) -> Path:
        """Return the folder of the page."""
        return self.root / "report"
