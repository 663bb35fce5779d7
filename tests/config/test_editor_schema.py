"""The editor's schema and the validator accept the same configurations."""

import copy
from pathlib import Path

import jsonschema
import pytest
import yaml

from faze.config import editor_schema
from faze.config.check import ConfigError
from faze.config.validation import validate

ROOT = Path(__file__).resolve().parents[2]
SHIPPED = ROOT / "workflow" / "schemas" / "config.schema.yaml"
DEFAULTS = ROOT / "config" / "config.yaml"


@pytest.fixture(scope="module")
def generated() -> editor_schema.Schema:
    return editor_schema.config_schema(DEFAULTS.read_text())


@pytest.fixture
def defaults() -> dict:
    return yaml.safe_load(DEFAULTS.read_text())


def test_shipped_schema_has_not_drifted(generated: editor_schema.Schema) -> None:
    remedy = "python -m faze.config.editor_schema >workflow/schemas/config.schema.yaml"
    assert yaml.safe_load(SHIPPED.read_text()) == generated, f"out of date: {remedy}"


@pytest.mark.parametrize("path", sorted((ROOT / "config").glob("*.yaml")), ids=lambda path: path.stem)
def test_shipped_configs_pass(generated: editor_schema.Schema, path: Path) -> None:
    jsonschema.validate(yaml.safe_load(path.read_text()), generated)


@pytest.mark.parametrize(
    ("section", "key", "value"),
    [
        ("train", "base_rl", 0.1),
        ("train", "base_lr", "1e-3"),
        ("train", "pairs", -1),
        ("train", "momentum", 1.01),
        ("train", "momentum", None),
        ("preprocess", "compatibility", "both"),
        ("fewshot", "shots", []),
        ("fewshot", "learners", ["mamml"]),
        ("model", "backprop_gaze", "yes"),
        ("data", "workers", "many"),
        ("data", "workers", -1),
    ],
)
def test_what_the_validator_refuses_the_schema_refuses(
    generated: editor_schema.Schema, defaults: dict, section: str, key: str, value: object
) -> None:
    wrong = copy.deepcopy(defaults)
    wrong[section][key] = value
    with pytest.raises(ConfigError, match=f"{section}.{key}"):
        validate(wrong)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(wrong, generated)


def test_unknown_section_and_unknown_switch_are_refused(generated: editor_schema.Schema, defaults: dict) -> None:
    for wrong in (defaults | {"trainn": {}}, defaults | {"tiers": {"baseline": {"presision": "fp32"}}}):
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate(wrong, generated)


def test_null_is_allowed_only_where_it_means_something(generated: editor_schema.Schema) -> None:
    jsonschema.validate({"landmarks": {"model": None}}, generated)
    jsonschema.validate({"synthetic": {"gazecapture_train_frames": None}}, generated)
    for wrong in ({"preprocess": {"width_px": None}}, {"synthetic": {"gazecapture_train_frames": 0}}):
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate(wrong, generated)


def test_comments_become_descriptions(generated: editor_schema.Schema) -> None:
    momentum = generated["properties"]["train"]["properties"]["momentum"]
    assert momentum == {"description": "Nesterov", "type": "number", "minimum": 0, "maximum": 1}
    fp16 = generated["properties"]["tiers"]["additionalProperties"]["properties"]["precision"]
    assert fp16["enum"] == ["fp32", "fp16", "bf16"] and "autocast" in fp16["description"]
