"""The paths that the code reads are the paths that the rules write. Both state them, since rules need literal paths."""

import ast
import re
from pathlib import Path

import pytest

from faze.base.result_paths import ResultPaths

ROOT = Path(__file__).resolve().parents[2]
PATHS = ResultPaths(Path("results/{name}"))
RUN = ("{tier}", "{seed}")
WORK = "train.work"  # its files are no outputs of a rule


def declared() -> set[str]:
    """Return every output path of the rules."""
    texts = [path.read_text(encoding="utf-8") for path in (ROOT / "workflow" / "rules").glob("*.smk")]
    rules = "\n".join(texts)
    outputs = "".join(re.findall(r"^    output:\n((?: {8}.*\n)+)", rules, re.MULTILINE))
    for name, path in re.findall(r'^([A-Z]+) = \[f"(results/[^"]+)" for ', rules, re.MULTILINE):
        path = path.replace("{{", "{").replace("}}", "}")
        outputs = re.sub(rf"^ +{name},$", f'"{path}"', outputs, flags=re.MULTILINE)
    paths = re.findall(r'"(results/[^"]+)"', outputs)
    return {path.replace("{config['name']}", "{name}").replace("{fold}", "") for path in paths}


@pytest.mark.parametrize(
    ("path", "below"),
    [
        (PATHS.store("{dataset}"), "data/{dataset}.h5"),
        (PATHS.inspection("{dataset}"), "inspection/{dataset}"),
        (PATHS.run_log(*RUN), "{tier}/seed{seed}/run.jsonl"),
        (PATHS.codes(*RUN, "{dataset}"), "{tier}/seed{seed}/codes/{dataset}.h5"),
        (PATHS.errors(*RUN, "{learner}"), "{tier}/seed{seed}/fewshot/{learner}_errors.parquet"),
        (PATHS.walks(*RUN), "{tier}/seed{seed}/walks"),
        (PATHS.redirection(*RUN), "{tier}/seed{seed}/redirection.parquet"),
        (PATHS.redirected_pairs(*RUN), "{tier}/seed{seed}/redirected_pairs.parquet"),
        (PATHS.checkpoint(*RUN), "{tier}/seed{seed}/checkpoint.pt"),
        (PATHS.learner(*RUN, "{learner}"), "{tier}/seed{seed}/fewshot/{learner}.pt"),
        (PATHS.estimator_errors, "estimator/errors.json"),
        (PATHS.benchmark, "benchmark/benchmark.json"),
        (PATHS.evaluation, "evaluation"),
        (PATHS.report, "report"),
        (PATHS.sweep, "sweep"),
    ],
    ids=str,
)
def test_each_path_is_an_output_of_a_rule(path: Path, below: str) -> None:
    assert str(path) == f"results/{{name}}/{below}" and str(path) in declared()


def test_the_test_above_covers_every_path() -> None:
    names = {name for name in vars(ResultPaths) if not name.startswith("_")}
    covered = {
        "store",
        "inspection",
        "run_log",
        "codes",
        "errors",
        "walks",
        "redirection",
        "redirected_pairs",
        "checkpoint",
        "learner",
        "estimator_errors",
        "benchmark",
        "evaluation",
        "report",
        "sweep",
    }
    assert names - covered == {"run", "live_log"}


def test_a_live_log_lies_in_the_work_folder_of_its_training() -> None:
    assert PATHS.live_log(*RUN) == PATHS.run(*RUN) / WORK / PATHS.run_log(*RUN).name
    assert f'out.parent / "{WORK}"' in (ROOT / "faze/training/dted_training.py").read_text(encoding="utf-8")


def test_no_other_module_spells_the_path_of_a_result() -> None:
    """Exceptions: training names the files in its own work folder, and meta-training names its checkpoint."""
    files = re.compile(r"run\.jsonl|benchmark\.json|_errors\.parquet|truth\.h5|seed\{|/codes/|/walks/|/fewshot/")
    own = {"faze/base/result_paths.py", "faze/training/resume.py"}
    for path in sorted((ROOT / "faze").rglob("*.py")):
        if str(path.relative_to(ROOT)) in own:
            continue
        tree = ast.parse(path.read_bytes())
        told = [s.value for n in ast.walk(tree) if isinstance(n, ast.JoinedStr | ast.Constant) for s in _texts(n)]
        found = [text for text in told if files.search(text) and not _is_prose(text)]
        assert not found, (path, found)


def _texts(node: ast.JoinedStr | ast.Constant) -> list[ast.Constant]:
    parts = node.values if isinstance(node, ast.JoinedStr) else [node]
    return [part for part in parts if isinstance(part, ast.Constant) and isinstance(part.value, str)]


def _is_prose(text: str) -> bool:
    return " " in text or "NAME" in text  # as the help of a command has it
