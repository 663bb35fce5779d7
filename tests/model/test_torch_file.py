"""Damaged and untrusted torch files: no code is run; compressed records and tensors without data are refused.

Regression for each case: a kilobyte was unpacked to a gibibyte of zeros, a tebibyte was requested, or a traceback was
shown.
"""

import ast
import errno
import io
import os
import pickle
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from damaged import cut, flip
from small_model import MODEL

from faze.base.errors import UserError
from faze.model.dted import DTED
from faze.model.torch_file import is_format, read_mapping, write_mapping
from faze.model.weights import import_published, load_model, save_weights

ROOT = Path(__file__).resolve().parents[2]


class Runs:
    def __reduce__(self) -> tuple:
        return os.system, ("touch ran",)


class Zeros:
    """An object that torch itself unpickles."""

    def __reduce__(self) -> tuple:
        return bytearray, (2**60,)


def repacked(change: Callable[[str, bytes], bytes], how: int = zipfile.ZIP_DEFLATED) -> bytes:
    """Return a torch file with changed, compressed records."""
    whole, out = io.BytesIO(), io.BytesIO()
    torch.save({"format": 1, "model": {"a": torch.zeros(2)}}, whole)
    with zipfile.ZipFile(whole) as old, zipfile.ZipFile(out, "w", how) as new:
        for record in old.infolist():
            new.writestr(record.filename, change(record.filename, old.read(record)))
    return out.getvalue()


def with_pickle(content: object) -> Callable[[str, bytes], bytes]:
    return lambda name, found: pickle.dumps(content, 2) if name.endswith("data.pkl") else found


OTHER = "contains objects other than tensors and plain values"
HOSTILE: dict[str, tuple[str, Callable[[], bytes]]] = {
    "a bomb": (
        "its records are compressed",
        lambda: repacked(lambda name, found: bytes(2**26) if name.endswith("/data/0") else found),
    ),
    "code": (OTHER, lambda: repacked(with_pickle({"a": Runs()}), zipfile.ZIP_STORED)),
    "code, older": (OTHER, lambda: pickle.dumps({"a": Runs()}, 2)),
    "code, named on the stack": (OTHER, lambda: pickle.dumps({"a": Runs()}, 4)),
    "many zeros": ("needs more memory", lambda: repacked(with_pickle({"a": Zeros()}), zipfile.ZIP_STORED)),
    "many zeros, older": ("needs more memory", lambda: pickle.dumps({"a": Zeros()}, 2)),
    "a text of an exbibyte": (OTHER, lambda: b"\x80\x04\x8d" + (2**60).to_bytes(8, "little") + b"x"),
    "nested lists": ("cannot be read", lambda: b"]" * 10**6 + b"."),
    "a torn archive": ("cannot be read", lambda: repacked(lambda _, found: found)[:-30]),
}


@pytest.mark.parametrize("kind", HOSTILE)
def test_a_hostile_file_is_one_sentence(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    reason, content = HOSTILE[kind]
    (tmp_path / "x.pt").write_bytes(content())
    with pytest.raises(UserError, match=f"x.pt: .*{reason}"):
        read_mapping(tmp_path / "x.pt")
    assert [path.name for path in tmp_path.iterdir()] == ["x.pt"]


@pytest.mark.parametrize("older", [False, True])
@pytest.mark.parametrize(
    "tensor",
    [torch.zeros(1).expand(2**36), torch.zeros(3).to_sparse(), torch.empty(3, device="meta")],
    ids=["repeated", "sparse", "meta"],
)
def test_a_tensor_has_its_numbers_in_the_file(tensor: torch.Tensor, older: bool, tmp_path: Path) -> None:
    torch.save({"a": [tensor]}, tmp_path / "x.pt", _use_new_zipfile_serialization=not older)
    with pytest.raises(UserError, match="is not stored in full"):
        read_mapping(tmp_path / "x.pt")


@pytest.mark.parametrize("older", [False, True])
def test_what_torch_writes_is_read(older: bool, tmp_path: Path) -> None:
    """Older formats, like that of the published checkpoint, are read too; so are views, parameters and other dtypes."""
    content = {
        **{
            "view": torch.arange(6.0).reshape(2, 3).T,
            "part": torch.arange(6.0)[2:4],
            "parameter": torch.nn.Parameter(torch.ones(2)),
        },
        **{"half": torch.ones(2).half(), "brain": torch.ones(2).bfloat16(), "bytes": torch.ones(2, dtype=torch.uint8)},
        **{"state": {0: {"step": torch.tensor(3.0)}}, "list": [1, 2.5, None, "x", True]},
    }
    torch.save(content, tmp_path / "x.pt", _use_new_zipfile_serialization=not older)
    found = read_mapping(tmp_path / "x.pt")
    assert found.keys() == content.keys() and found["list"] == content["list"]
    assert torch.equal(found["state"][0]["step"], content["state"][0]["step"])
    for name in content.keys() - {"state", "list"}:
        assert found[name].dtype == content[name].dtype and torch.equal(found[name], content[name]), name


WEIGHT = torch.arange(3000.0)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    torch.save({"weight": WEIGHT, "shots": [1, 3]}, tmp_path / "weights.pt")
    return tmp_path / "weights.pt"


def test_a_flipped_bit_of_a_tensor_is_noticed(path: Path) -> None:
    assert torch.equal(read_mapping(path)["weight"], WEIGHT)
    flip(path, WEIGHT.numpy().tobytes())
    assert not torch.equal(torch.load(path, weights_only=True)["weight"], WEIGHT)  # torch does not check
    with pytest.raises(UserError, match=r"weights.pt: .*checksum.*again"):
        read_mapping(path)


@pytest.mark.parametrize("size", [0, 1, 3, 200, 5000, 12000, -1])
def test_a_truncated_file_is_refused(path: Path, size: int) -> None:
    """Regression: for a file of 5000 bytes, torch raised an OSError, `Invalid argument`, that did not name the file."""
    cut(path, size)
    with pytest.raises(UserError, match="weights.pt: .*torch file"):
        read_mapping(path)


def test_a_full_disk_names_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Regression: on a full disk, torch raised `RuntimeError: ... unexpected pos`, and a traceback was shown."""

    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(OSError, match="No space left on device") as caught:
        write_mapping(tmp_path / "weights.pt", {"weight": WEIGHT})
    assert caught.value.filename == str(tmp_path / "weights.pt")
    assert list(tmp_path.iterdir()) == []


def test_a_format_is_a_number() -> None:
    assert is_format({"format": 2}, 2) and not is_format({"format": 1}, 2) and not is_format({}, 2)
    assert not is_format({"format": torch.full((3,), 2)}, 2) and not is_format({"format": torch.tensor(2)}, 2)


def test_sizes_that_no_network_has_are_one_sentence(tmp_path: Path) -> None:
    save_weights(tmp_path / "x.pt", DTED(MODEL))
    content = torch.load(tmp_path / "x.pt", weights_only=True)
    for key, size in (("growth", 2**62), ("z_app", 2**61), ("image_width_px", 2**60)):
        torch.save(content | {"model_config": content["model_config"] | {key: size}}, tmp_path / "y.pt")
        with pytest.raises(UserError, match="y.pt: "):
            load_model(tmp_path / "y.pt")


def test_names_of_weights_are_texts_and_not_all_are_told(tmp_path: Path) -> None:
    for names in ((3,), ("fc_enc.weight", 3)):
        torch.save({"model": dict.fromkeys(names, torch.zeros(2))}, tmp_path / "x.pt")
        with pytest.raises(UserError, match="x.pt: .*keys"):
            import_published(tmp_path / "x.pt", MODEL)
    torch.save({f"{n}{'y' * 1000}": torch.zeros(1) for n in range(500)}, tmp_path / "x.pt")
    with pytest.raises(UserError, match="and 451 more") as told:
        import_published(tmp_path / "x.pt", MODEL)
    assert len(str(told.value)) < 30_000


def test_no_code_of_faze_unpickles_what_can_run() -> None:
    """Every torch.load has weights_only=True, and no module imports pickle or marshal, or calls a YAML loader."""
    found = 0
    for path in [*ROOT.glob("faze/**/*.py"), *ROOT.glob("benchmarks/**/*.py"), ROOT / "docs/generated.py"]:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import | ast.ImportFrom):
                names = {name.name for name in node.names} | {getattr(node, "module", None) or ""}
                assert not names & {"pickle", "cPickle", "marshal", "shelve", "dill", "joblib", "cloudpickle"}, path
            if not isinstance(node, ast.Call):
                continue
            called = ast.unparse(node.func)
            given = {word.arg: ast.unparse(word.value) for word in node.keywords}
            if called in ("torch.load", "load") and "torch" in called:
                found += 1
                assert given.get("weights_only") == "True", f"{path}:{node.lineno}"
            assert given.get("allow_pickle", "False") == "False", f"{path}:{node.lineno}"
            assert called not in ("eval", "exec", "os.system", "torch.jit.load", "yaml.load", "yaml.unsafe_load"), path
            assert given.get("shell", "False") == "False", f"{path}:{node.lineno}"
    assert found >= 1
