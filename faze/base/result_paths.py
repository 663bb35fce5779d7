"""Paths of the outputs of an ablation under results/NAME/, as the workflow's rules declare them."""

from pathlib import Path


class ResultPaths:
    """The paths under results/NAME/."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.estimator_errors = root / "estimator/errors.json"
        self.benchmark, self.proofs = root / "benchmark/benchmark.json", root / "benchmark/proofs.json"
        self.evaluation, self.report = root / "evaluation", root / "report"

    def store(self, dataset: str) -> Path:
        return self.root / f"data/{dataset}.h5"

    def run(self, tier: str, seed: int, file: str = "") -> Path:
        return self.root / tier / f"seed{seed}" / file

    def run_log(self, tier: str, seed: int) -> Path:
        return self.run(tier, seed, "run.jsonl")

    def live_log(self, tier: str, seed: int) -> Path:
        return self.run(tier, seed, "checkpoint.work/run.jsonl")

    def checkpoint(self, tier: str, seed: int) -> Path:
        return self.run(tier, seed, "checkpoint.pt")

    def codes(self, tier: str, seed: int, dataset: str) -> Path:
        return self.run(tier, seed, f"codes/{dataset}.h5")

    def errors(self, tier: str, seed: int, learner: str) -> Path:
        return self.run(tier, seed, f"fewshot/{learner}_errors.parquet")

    def walks(self, tier: str, seed: int) -> Path:
        return self.run(tier, seed, "walks")
