"""Features that all stages and commands share: their arguments, and how an error ends them."""

import importlib
import os
import subprocess
import sys
from argparse import ArgumentTypeError, Namespace
from collections.abc import Callable
from pathlib import Path

import pytest

from faze.__main__ import COMMANDS, STAGES
from faze.base.command_line import (
    CONFIGFILE,
    NO_MEMORY,
    OUR_FAULT,
    argument,
    command,
    needed,
    port_number,
    threads,
)
from faze.base.errors import UserError
from faze.config.parameters import STAGES as WITH_A_CONFIG

seen: list[Namespace] = []
MODULES = sorted([*STAGES.values(), *COMMANDS.values()])

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def arguments(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    return lambda *given: monkeypatch.setattr(sys, "argv", ["faze thing", *given])


@command("A thing.", CONFIGFILE, threads())
def main(args: Namespace) -> None:
    seen.append(args)
    if not failing:
        return
    raise failing


def fail_with(error: Exception | None) -> int:
    global failing
    failing = error
    return main()


@pytest.mark.parametrize("module", MODULES)
def test_every_command_shows_a_traceback_when_asked(
    module: str, arguments: Callable, capsys: pytest.CaptureFixture
) -> None:
    arguments("--help")
    with pytest.raises(SystemExit, match="0"):
        importlib.import_module(module).main()
    said = capsys.readouterr().out
    assert "--traceback" in said
    stage = module.startswith("faze.stages.") and module.rpartition(".")[2] in WITH_A_CONFIG
    assert ("--config " in said.partition("\n\n")[0]) == stage, (
        "--config is a stage's own file; people give --configfile"
    )


@pytest.mark.parametrize(
    ("error", "sentence"),
    [
        (UserError("mine.yaml: wrong, mend it"), "mine.yaml: wrong, mend it"),
        (FileNotFoundError(2, "No such file or directory", "x.h5"), "x.h5: No such file or directory"),
        (OSError(28, "No space left on device"), "[Errno 28] No space left on device"),
    ],
)
def test_what_the_user_can_mend_is_one_sentence_or_its_traceback(
    error: Exception, sentence: str, arguments: Callable, capsys: pytest.CaptureFixture
) -> None:
    arguments()
    assert fail_with(error) == 1
    assert capsys.readouterr().err == f"faze thing: {sentence}\n"
    arguments("--traceback")
    with pytest.raises(type(error)) as shown:
        fail_with(error)
    assert not hasattr(shown.value, "__notes__")


def test_an_output_is_no_input(tmp_path: Path, arguments: Callable, capsys: pytest.CaptureFixture) -> None:
    """Regression: export overwrote the strips that it needed for its comparison, and encode overwrote its inputs."""
    copied: list[Namespace] = []
    listed = (
        needed("--data", "read", nargs="+"),
        argument("published", type=Path),
        needed("--out", "to write", nargs="+"),
    )
    copy = command("Copy.", *listed)(copied.append)
    a, b, c = (str(tmp_path / name) for name in "abc")
    for given, name in ((["x", "--data", a, b, "--out", c, b], "data"), ([a, "--data", b, "--out", a], "published")):
        arguments(*given)
        assert copy() == 1
        assert f"is also the path of `{name}`" in capsys.readouterr().err
    arguments("x", "--data", a, "--out", c, c)
    assert copy() == 1 and "--out contains a path twice" in capsys.readouterr().err
    arguments("x", "--data", a, b, "--out", c)
    assert copy() == 0
    (args,) = copied
    assert (args.published, args.data, args.out) == (Path("x"), [Path(a), Path(b)], [Path(c)])


@pytest.mark.parametrize("text", ["-1", "65536", "8080.0", "http"])
def test_a_port_is_a_number_to_65535(text: str) -> None:
    """Regression: an invalid port was accepted, and ended in a traceback when the page was served."""
    assert [port_number(0)("0"), port_number(1)("65535")] == [0, 65535]
    for wrong, least in ((text, 0), ("0", 1)):
        with pytest.raises(ArgumentTypeError, match=f"is not a port number from {least} to 65535"):
            port_number(least)(wrong)


@pytest.mark.parametrize("given", [(), ("--traceback",)])
def test_our_own_faults_show_their_traceback_and_ask_for_a_report(given: tuple, arguments: Callable) -> None:
    arguments(*given)
    for error in (ValueError("wrong use of a function"), KeyError("x"), AssertionError()):
        with pytest.raises(type(error)) as shown:
            fail_with(error)
        assert shown.value.__notes__ == [OUR_FAULT]


def test_want_of_memory_is_not_our_fault(arguments: Callable) -> None:
    arguments()
    with pytest.raises(MemoryError) as shown:
        fail_with(MemoryError())
    assert shown.value.__notes__ == [NO_MEMORY]


@pytest.mark.parametrize("count", ["0", "-1", "two"])
def test_threads_are_at_least_one(count: str, arguments: Callable, capsys: pytest.CaptureFixture) -> None:
    arguments("--threads", count)
    with pytest.raises(SystemExit, match="2"):
        main()
    assert f"--threads: {count!r} is not a whole number of at least 1" in capsys.readouterr().err
    arguments("--threads", "1")
    assert fail_with(None) == 0 and seen[-1].threads == 1


def test_configfiles_come_in_their_order(arguments: Callable) -> None:
    arguments("--configfile", "a.yaml", "b.yaml", "--threads", "1", "--configfile", "c.yaml")
    assert fail_with(None) == 0
    assert seen[-1].configfile == [Path("a.yaml"), Path("b.yaml"), Path("c.yaml")]


def test_a_package_that_is_not_installed_is_one_sentence(tmp_path: Path) -> None:
    """This is the state after `pip install faze` without extras."""
    program = "import sys; sys.modules['pandas'] = None; from faze.__main__ import main; sys.exit(main())"
    start = [sys.executable, "-c", program, "evaluate", "--config", "x.yaml", "--results", "x", "--out", "y"]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    answer = subprocess.run(start, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert answer.stderr == "faze evaluate: the package pandas is missing: pip install 'faze[workflow]'\n"
    assert answer.returncode == 1
    shown = subprocess.run([*start, "--traceback"], cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert "Traceback" in shown.stderr
