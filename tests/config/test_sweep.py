"""The points of a sweep and the values at each point, and sweeps that are refused.

Checked by breaking the code: a direction number, the bounds of whole numbers, a point based on the last tier.
"""

import itertools
import math
import re
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import qmc

from faze.config.check import ConfigError
from faze.config.stage_config import resolve
from faze.config.tiers import points
from faze.config.validation import validate
from faze.config.yaml_files import merge, read_yaml

DEFAULTS = Path(__file__).resolve().parents[2] / "config" / "config.yaml"
ELEVEN = [f"loss.{key}" for key in read_yaml(DEFAULTS)["loss"]] + ["train.base_lr"]


def swept(**sweep: object) -> dict:
    return merge(read_yaml(DEFAULTS), {"sweep": sweep})


def refused(**sweep: object) -> str:
    with pytest.raises(ConfigError) as caught:
        validate(swept(**sweep))
    return str(caught.value)


def test_the_sequence_leaves_out_its_first_point() -> None:
    sobol = {f"loss.{key}": [0.0, 1.0] for key in ("gaze_angle", "triplet_angular", "all_equal")}
    found = [list(values.values()) for values in points(swept(sobol=sobol, points=511)).values()]
    np.testing.assert_allclose(found, qmc.Sobol(3, scramble=False).random(512)[1:], rtol=1e-5)


def test_a_grid_is_every_combination_and_a_sequence_is_tried_with_each() -> None:
    grid = {"model.growth": [4, 8], "train.base_lr": [0.001, 0.01, 0.1]}
    found = points(validate(swept(grid=grid)))
    assert list(found) == [f"point{number:02d}" for number in range(6)]
    combinations = itertools.product(*grid.values())
    assert list(found.values()) == [dict(zip(grid, values, strict=True)) for values in combinations]
    both = points(validate(swept(grid={"model.growth": [4, 8]}, sobol={"loss.gaze_angle": [0.1, 0.3]}, points=3)))
    assert [values["model.growth"] for values in both.values()] == [4, 8] * 3
    assert [values["loss.gaze_angle"] for values in both.values()] == [0.2, 0.2, 0.25, 0.25, 0.15, 0.15]
    assert points(validate(read_yaml(DEFAULTS))) == {}
    assert list(points(swept(sobol={"train.base_lr": [0.001, 0.1]}, points=101)))[-1] == "point100"


def test_bounds_are_kept_whole_numbers_are_whole_and_a_logarithm_halves_by_ratio() -> None:
    sobol = {"model.growth": [2, 5], "train.base_lr": [0.001, 0.1, "log"], "train.pairs": [1000, 64000, "log"]}
    found = list(points(validate(swept(sobol=sobol, points=64))).values())
    assert found[0]["train.base_lr"] == pytest.approx(math.sqrt(0.001 * 0.1), rel=1e-5)
    for key, (low, high, *_) in sobol.items():
        values = [point[key] for point in found]
        assert low <= min(values) and max(values) <= high and len(set(values)) >= min(high - low + 1, 32)
    assert all(isinstance(point["model.growth"], int) and isinstance(point["train.pairs"], int) for point in found)
    assert [[point["model.growth"] for point in found].count(growth) for growth in range(2, 6)] == [16] * 4
    assert 0.4 < np.mean([point["train.pairs"] < 8000 for point in found]) < 0.6


def test_a_training_at_a_point_is_the_first_tiers_with_its_values() -> None:
    config = swept(grid={"model.growth": [6], "engine.precision": ["bf16"], "train.base_lr": [0.5]})
    config["run"]["tiers"] = ["fused_sgd", "recompute"]
    config = validate(config)
    first, point = (resolve(config, "train", tier, 3) for tier in ("fused_sgd", "point00"))
    changed = {"tier": "point00", "model.growth": 6, "engine.precision": "bf16", "train.base_lr": 0.5}
    assert first["engine.precision"] == "fp32" and first["engine.optimizer"] == "fused_sgd"
    assert point == first | changed
    told = resolve(config, "compare")
    assert told["points.point00.model.growth"] == 6 and "run.seeds" in told and "model.growth" not in told
    # Nothing of an ablation knows that there is a sweep.
    plain = validate(read_yaml(DEFAULTS) | {"run": config["run"]})
    for stage in ("train", "encode", "redirect"):
        assert resolve(config, stage, "recompute", 0) == resolve(plain, stage, "recompute", 0)
    assert resolve(config, "evaluate") == resolve(plain, "evaluate")


HUGE = 16**5000  # Python refuses to write it in digits


@pytest.mark.parametrize(
    ("sweep", "words"),
    [
        ({"grid": {"model.grwth": [4]}}, "sweep.grid.model.grwth: .*model.growth?"),
        (
            {"grid": {"synthetic.seed": [4]}},
            "sweep.grid.synthetic.seed: .*engine",
        ),
        ({"grid": {"model.growth": []}}, "sweep.grid.model.growth: the list is empty"),
        ({"grid": {"model.growth": 4}}, "sweep.grid.model.growth: 4 is not a list"),
        (
            {"grid": {"model.growth": [4, "wide"]}},
            "sweep: point01 .model.growth wide.: model.growth: 'wide' is not a whole",
        ),
        (
            {"grid": {"train.global_batch": [12]}},
            "point00 .train.global_batch 12.: train.global_batch: 12 is not a multiple",
        ),
        ({"grid": {"engine.precision": ["fp64"]}}, "'fp64' is not one of fp32, fp16, bf16"),
        ({"sobol": {"train.base_lr": [0.1, 0.001]}, "points": 4}, "the lowest must be less than the highest"),
        ({"sobol": {"train.base_lr": [0, 1, "log"]}, "points": 4}, "positive for log"),
        ({"sobol": {"train.base_lr": [0.1]}, "points": 4}, r"is not \[lowest, highest\]"),
        ({"sobol": {"train.base_lr": [0.1, 0.2, "ln"]}, "points": 4}, r"is not \[lowest, highest\]"),
        ({"sobol": {"engine.precision": [0, 1]}, "points": 4}, "sweep.sobol.engine.precision: is not a number"),
        ({"sobol": {"train.base_lr": [1, 1.0]}, "points": 4}, "the lowest must be less than the highest"),
        ({"sobol": {"train.base_lr": [0.1, 0.2]}}, "sweep.points: 0, with 1 keys under sweep.sobol: set both"),
        ({"points": 8}, "sweep.points: 8, with 0 keys"),
        (
            {"grid": {"train.base_lr": [0.1]}, "sobol": {"train.base_lr": [0.1, 0.2]}, "points": 2},
            "sweep.sobol.train.base_lr: .*sweep.grid",
        ),
        ({"sobol": {"train.pairs": [1, 2**63]}, "points": 2}, r"is not \[lowest, highest\]"),
        ({"sobol": {"train.base_lr": [1, float("inf")]}, "points": 2}, r"inf\] is not \[lowest, highest\]"),
        ({"grid": {"train.pairs": [HUGE]}}, "train.pairs a number with thousands of digits.: train.pairs: a number"),
        (
            {"grid": {"train.pairs": [*range(73)], "model.growth": [*range(137)]}},
            "sweep: has 10001 points.*at most 10000 ",
        ),
        ({"sobol": dict.fromkeys(ELEVEN, [0.1, 1]), "points": 2}, "sweep.sobol: .*at most 10 keys"),
    ],
)
def test_what_is_refused(sweep: dict, words: str) -> None:
    told = refused(**sweep)
    assert re.search(words, told), told


def test_a_tier_may_not_have_a_points_name() -> None:
    config = merge(swept(grid={"model.growth": [4]}), {"tiers": {"point00": {"recompute": True}}})
    with pytest.raises(ConfigError, match=r"tiers\.point00: is also the name of a sweep point"):
        validate(config)
