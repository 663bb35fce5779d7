"""Copies of the project as git, ZIP files and other projects make them, and the ways to name a config file."""

import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from checkout import LEFT_OUT, ROOT, Checkout, environment

NAMES = ("my exp.yaml", "it's.yaml", "a$b.yaml", 'q"u.yaml', "$(x).yaml", "a,b.yaml", "back`tick.yaml", "h#h.yaml")


def succeed(*command: object, cwd: Path, **variables: str) -> str:
    """Run a command without this checkout on its path, and return its output."""
    done = subprocess.run(
        [*map(str, command)], cwd=cwd, env=environment() | variables, capture_output=True, text=True, timeout=100
    )
    assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
    return done.stdout


@pytest.fixture
def unpacked(tmp_path: Path) -> Path:
    """Return a copy without .git, links and modes, as some programs unpack a ZIP, within another project's checkout."""
    folder = tmp_path / "project" / "faze"
    shutil.copytree(ROOT, folder, ignore=LEFT_OUT, symlinks=True, copy_function=shutil.copyfile)
    for link in filter(Path.is_symlink, list(folder.rglob("*"))):
        target = str(link.readlink())
        link.unlink()
        link.write_text(target)
    git = ("git", "-c", "user.name=n", "-c", "user.email=e")
    succeed("git", "init", "-q", cwd=folder.parent)
    succeed(*git, "commit", "-q", "--allow-empty", "-m", "another project", cwd=folder.parent)
    return folder


def test_a_copy_without_git_links_and_modes_works(unpacked: Path) -> None:
    """Regression: links were read as files without keys, and the commit of another project was recorded."""
    assert "train" in succeed(sys.executable, "-m", "faze", "--help", cwd=unpacked)
    assert "evaluate.seed: 0" in succeed(sys.executable, "-m", "faze", "resolve", "evaluate", cwd=unpacked)
    commit = "from faze.engine.machine import commit; print(commit())"
    assert succeed(sys.executable, "-c", commit, cwd=unpacked, FAZE_COMMIT="given") == "given\n"
    assert "--budget-s" in succeed("sh", "benchmarks/gpu.sh", "--help", cwd=unpacked)
    shutil.rmtree(unpacked.parent / ".git")
    succeed(sys.executable, "tests/english.py", "docs", "Makefile", cwd=unpacked)


@pytest.mark.workflow
def test_the_workflow_of_such_a_copy_starts(unpacked: Path) -> None:
    succeed(sys.executable, "-m", "snakemake", "-n", "--cores", "1", "ablation", cwd=unpacked)


def test_line_ends_do_not_depend_on_git_s_settings(tmp_path: Path) -> None:
    """Regression: with core.autocrlf=true, shell scripts could not start."""
    copy = tmp_path / "copy"
    shutil.copytree(ROOT, copy, ignore=LEFT_OUT, symlinks=True)
    shutil.copy(ROOT / ".gitattributes", copy)
    git = ("git", "-c", "core.autocrlf=true", "-c", "core.eol=crlf", "-c", "core.safecrlf=false")
    succeed("git", "init", "-q", cwd=copy)
    succeed(*git, "add", "--all", cwd=copy)
    succeed(*git, "checkout-index", "--all", f"--prefix={tmp_path}/out/", cwd=copy)
    files = [path for path in (tmp_path / "out").rglob("*") if path.is_file() and not path.is_symlink()]
    assert len(files) > 400
    for path in files:
        assert path.read_bytes() == (copy / path.relative_to(tmp_path / "out")).read_bytes(), path


def command_of(config: str, *, variable: bool = False) -> list[str]:
    """Return the arguments that `make ablation CONFIG=...` passes to Snakemake."""
    given = {"MAKEFLAGS": ""} | ({"CONFIG": config} if variable else {})  # this test may run within make
    words = ("make", "--no-print-directory", "-n", "ablation", *([] if variable else [f"CONFIG={config}"]))
    return shlex.split(succeed(*words, cwd=ROOT, **given).splitlines()[-1])[4:]


@pytest.mark.parametrize("name", NAMES)
def test_make_takes_a_config_of_any_name(name: str, tmp_path: Path) -> None:
    """Regression: "there is no such file"."""
    (tmp_path / name).touch()
    for variable in (False, True):
        assert command_of(f"{tmp_path}/{name}", variable=variable) == ["--configfile", f"{tmp_path}/{name}"]


def test_make_takes_several_configs_that_all_exist(tmp_path: Path) -> None:
    """Regression: a missing file in the list was ignored."""
    first, second, missing = (f"{tmp_path}/{name}.yaml" for name in ("a", "b", "c"))
    Path(first).touch(), Path(second).touch()
    assert command_of(f"{first} {second}") == ["--configfile", first, second]
    assert command_of(f"{tmp_path}/[ab].yaml") == ["--configfile", first, second]
    with pytest.raises(AssertionError, match=r"c\.yaml: there is no such file"):
        command_of(f"{first} {missing}")


def test_the_option_for_config_files_may_be_given_twice(tmp_path: Path) -> None:
    """Regression: the first file was silently ignored."""
    (tmp_path / "a.yaml").write_text("evaluate: {seed: 5}\n")
    (tmp_path / "b.yaml").write_text("name: b\n")
    words = ("--configfile", tmp_path / "a.yaml", "--configfile", tmp_path / "b.yaml")
    assert "evaluate.seed: 5" in succeed(sys.executable, "-m", "faze", "resolve", "evaluate", *words, cwd=ROOT)


@pytest.mark.workflow
def test_snakemake_s_option_given_twice_is_refused(tmp_path: Path) -> None:
    """Regression: the first file was silently ignored."""
    checkout = Checkout(tmp_path / "faze", "config/smoke.yaml")
    answer = checkout.snakemake("-n", "ablation", "--configfile", "config/demo.yaml")
    assert answer.code and "list all files after one --configfile" in answer.text
