"""Where the outputs of one ablation lie: the paths under results/<name>/ that the workflow's rules declare.

Stages that read the files of many runs (evaluate, report, track) find them here. Standard library only.
"""

from dataclasses import dataclass
from pathlib import Path

DATASETS = ("mpiigaze", "gazecapture")


@dataclass(frozen=True)
class ResultPaths:
    """results/<name>/."""

    root: Path

    def store(self, dataset: str) -> Path:
        """Normalised strips."""
        return self.root / "data" / f"{dataset}.h5"

    def inspection(self, dataset: str) -> Path:
        """Folder of the data set's page."""
        return self.root / "inspection" / dataset

    def run(self, tier: str, seed: int) -> Path:
        """Folder of one run."""
        return self.root / tier / f"seed{seed}"

    def run_log(self, tier: str, seed: int) -> Path:
        """Return the run log of a training."""
        return self.run(tier, seed) / "run.jsonl"

    def live_log(self, tier: str, seed: int) -> Path:
        """Return the run log of a training in progress, in a folder that is no output of a rule."""
        return self.run(tier, seed) / "train.work" / "run.jsonl"

    def checkpoint(self, tier: str, seed: int) -> Path:
        """Return the checkpoint."""
        return self.run(tier, seed) / "checkpoint.pt"

    def learner(self, tier: str, seed: int, learner: str) -> Path:
        """Return the file of a trained few-shot learner."""
        return self.run(tier, seed) / "fewshot" / f"{learner}.pt"

    def codes(self, tier: str, seed: int, dataset: str) -> Path:
        """Codes of every strip."""
        return self.run(tier, seed) / "codes" / f"{dataset}.h5"

    def errors(self, tier: str, seed: int, learner: str) -> Path:
        """Adapted errors, one row per person, k and repeat."""
        return self.run(tier, seed) / "fewshot" / f"{learner}_errors.parquet"

    def walks(self, tier: str, seed: int) -> Path:
        """Folder of videos, contact sheet inside."""
        return self.run(tier, seed) / "walks"

    def redirection(self, tier: str, seed: int) -> Path:
        """How much redirected strips resemble the person, one row per person."""
        return self.run(tier, seed) / "redirection.parquet"

    def redirected_pairs(self, tier: str, seed: int) -> Path:
        """How far eyes and head of redirected strips turned, one row per pair and variant."""
        return self.run(tier, seed) / "redirected_pairs.parquet"

    @property
    def estimator(self) -> Path:
        """Return the estimator that evaluates redirected strips."""
        return self.root / "estimator" / "estimator.pt"

    @property
    def estimator_errors(self) -> Path:
        """Return the errors of the estimator."""
        return self.root / "estimator" / "errors.json"

    def oracle(self, dataset: str) -> Path:
        """Return the rendered target strips of a data set, if its people are rendered."""
        return self.root / "data" / f"{dataset}_oracle.h5"

    @property
    def benchmark(self) -> Path:
        """Speed and memory of every tier."""
        return self.root / "benchmark" / "benchmark.json"

    @property
    def evaluation(self) -> Path:
        """Folder of tables."""
        return self.root / "evaluation"

    @property
    def sweep(self) -> Path:
        """Folder of the page that compares a sweep's points."""
        return self.root / "sweep"

    @property
    def report(self) -> Path:
        """Folder of the page."""
        return self.root / "report"
