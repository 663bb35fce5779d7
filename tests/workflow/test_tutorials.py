"""The tutorials' commands, run as printed on the pages, in a copy of the finished smoke ablation."""

import csv
import json
import os
import re
import signal
import subprocess
import sys
import urllib.parse
import urllib.request
from pathlib import Path

import cv2
import fake_mediapipe
import h5py
import numpy as np
import pytest
from checkout import ROOT, Answer, Checkout, environment

from faze.config.validation import read_config
from faze.data.synthetic.layouts import supplementary
from faze.data.synthetic.people import Role, sample_frames
from faze.data.synthetic.render import Renderer
from faze.data.synthetic.setting import Screen
from faze.gaze.calibration_page import DOTS
from faze.gaze.sources import frames_of, sources_of

pytestmark = pytest.mark.workflow

BLOCK = re.compile(r"^```(shell|yaml|python|diff)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
FILE = re.compile(r"# (\S+)\n")


@pytest.fixture(scope="module")
def folder(finished: tuple[Checkout, Answer], tmp_path_factory: pytest.TempPathFactory) -> Path:
    return Checkout(
        tmp_path_factory.mktemp("tutorials") / "faze", "config/sizes/smoke.yaml", of=finished[0].folder
    ).folder


def follow(page: str, folder: Path) -> list[str]:
    """Follow a page from top to bottom; return what each of its commands printed.

    A block of YAML or Python is written to the file that its first line names; a diff is applied.
    """
    (path,) = (ROOT / "docs").glob(f"*/{page}")
    text = path.read_text(encoding="utf-8")
    return [printed for kind, block in BLOCK.findall(text) if (printed := do(kind, block, folder)) is not None]


def do(kind: str, block: str, folder: Path) -> str | None:
    if kind in ("yaml", "python"):
        path = folder / FILE.match(block)[1]
        path.write_text(block, encoding="utf-8")
        return None
    command = ["git", "apply", "-"] if kind == "diff" else ["bash", "-euo", "pipefail"]
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    env = environment() | {"PATH": path, "PYTHONPATH": f"{folder}:{ROOT}"}
    if block.startswith("faze calibrate --out"):
        return look_at_letters(block.split(), folder, env)
    done = subprocess.run(command, input=block, cwd=folder, env=env, capture_output=True, text=True)
    assert done.returncode == 0, f"{block}\n{done.stdout[-4000:]}{done.stderr[-4000:]}"
    return None if kind == "diff" else done.stdout + done.stderr


def test_own_tier(folder: Path) -> None:
    """Regression: the target made the tier's walk, and so trained the baseline, which selects the people of walks."""
    dry_run, run, switches = follow("own-tier.md", folder)
    jobs = Answer(0, dry_run).jobs
    stages = ("prove", "measure", "train", "encode", "meta_train", "adapt", "answer")
    assert jobs == dict.fromkeys((*stages, "tier_checkpointed"), 1)
    assert "steps (100%) done" in run
    assert '"switch": "checkpointing", "wanted": "true", "acted": "true"' in switches


def test_own_data(folder: Path) -> None:
    _, run, rejects = follow("own-data.md", folder)
    assert "steps (100%) done" in run
    header, *rows = rejects.strip().splitlines()
    assert header == "person,file_name,reason"
    assert len(rows) == 1 and rows[0].startswith("p00,")


def look_at_letters(command: list[str], folder: Path, env: dict[str, str]) -> str:
    """Do what the page of `faze calibrate` does in the browser, with the images me/DOT.jpg; return its report."""
    browser = urllib.request.build_opener(urllib.request.HTTPCookieProcessor())
    with subprocess.Popen(command, cwd=folder, env=env, stdout=subprocess.PIPE, text=True) as server:
        link = server.stdout.readline().split()[1]
        browser.open(link)

        def post(path: str, kind: str, content: bytes) -> dict[str, str]:
            address = urllib.parse.urljoin(link, path)
            return json.load(browser.open(urllib.request.Request(address, content, {"Content-Type": kind})))

        setup = {"width_px": 1920, "height_px": 1080, "pixel_mm": 0.18, "hfov_deg": 70, "camera": "webcam", "tab": "1"}
        post("start", "application/json", json.dumps(setup).encode())
        for dot in range(len(DOTS)):
            assert post(f"add?dot={dot}&tab=1", "image/jpeg", (folder / f"me/{dot}.jpg").read_bytes()) == {}
        report = post("finish", "application/json", b"null")["report"]
        server.send_signal(signal.SIGINT)
    return report


def write_own_video(folder: Path, patch: pytest.MonkeyPatch) -> None:
    """Write a video and images of a rendered person who looks at dots, and a MediaPipe that knows their landmarks."""
    patch.setattr(Screen, "sample_targets", lambda self, rng, count: np.resize(DOTS * self.size_units, (count, 2)))
    synthetic = read_config().synthetic.model_copy(update={"frames_per_person": 500})
    frames = sample_frames(Role("mpiifacegaze", "test", 1), synthetic)
    [screen], units = frames.setting.screens, frames.scene.target_units
    rows = [np.flatnonzero((units == dot * screen.size_units).all(axis=1))[0] for dot in DOTS]
    known, renderer, shares = supplementary(frames), Renderer(frames, synthetic.seed), {}
    images = [np.ascontiguousarray(renderer.render(row)[:, :, ::-1]) for row in rows]
    height, width = images[0].shape[:2]
    writer = cv2.VideoWriter(str(folder / "me.mp4"), cv2.VideoWriter_fourcc(*"mp4v"), 25.0, (width, height))
    (folder / "me").mkdir()
    (folder / "me/screen.yaml").write_text(
        "width_mm: 345\nheight_mm: 194\nwidth_px: 1920\nheight_px: 1080\ntop_left_mm: [172.5, 10, 0]\n"
    )
    lines = ["image,person,hfov_deg,target_x_px,target_y_px"]
    for dot, image in enumerate(images):
        cv2.imwrite(str(folder / f"me/{dot}.jpg"), image)
        lines.append("{}.jpg,me,70,{:.1f},{:.1f}".format(dot, *DOTS[dot] * [1920, 1080]))
        if dot < 6:
            writer.write(image)
    writer.release()
    (folder / "me/frames.csv").write_text("\n".join(lines[:10]) + "\n")
    decoded = [frame.image for frame in frames_of(sources_of([folder / "me.mp4"]))]
    stored = [cv2.imread(str(folder / f"me/{dot}.jpg")) for dot in range(len(DOTS))]
    for row, image in zip(rows[:6] + rows, decoded + stored, strict=True):
        fx, fy, cx, cy = known["camera_parameters"][row]
        lens = np.array([[fx, 0, cx], [0, fy, cy], [0, 0, 1]]), known["distortion_parameters"][row]
        points = fake_mediapipe.project(known["head_pose"][row], *lens)
        shares[fake_mediapipe.key_of(image)] = (points + 0.5) / [width, height]
    fake_mediapipe.install(folder, shares)
    (folder / "face_landmarker.task").touch()


def test_own_video(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_own_video(tmp_path, monkeypatch)
    found, head, page, calibrated, last = follow("own-video.md", tmp_path)
    assert "gaze.csv: 6 frames, 6 with a gaze" in found and "6 frames, 6 with a gaze" in last
    assert head.splitlines()[0] == "frame,timestamp,face_id,success,reason,gaze_pitch_deg,gaze_yaw_deg"
    before, after = re.search(r"Error on 4 points: (\S+)° .* without and (\S+)°", page).groups()
    assert float(after) < float(before)
    assert "9 of 9 frames can be used" in calibrated and "bayes on 9 samples: 0.jpg" in calibrated
    _, constant, after, difference = re.findall(r"^  .*: (\S+) degrees", calibrated, re.MULTILINE)
    assert float(after) < float(constant) and difference.startswith("−")
    with (tmp_path / "calibrated.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert all(-1000 < float(row["screen_x_px"]) < 3000 for row in rows)
    assert len(list(frames_of(sources_of([tmp_path / "calibrated.mp4"])))) == 6


def test_own_learner(folder: Path) -> None:
    run, table = follow("own-learner.md", folder)
    assert "rule encode" not in run and "rule train:" not in run
    assert re.search(r"^laptop +0 +\d+\.\d+$", table, re.MULTILINE)


def test_own_training(tmp_path: Path) -> None:
    folder = Checkout(tmp_path / "faze", "config/sizes/smoke.yaml").folder
    run, proofs, mistake = follow("own-training.md", folder)
    assert "steps (100%) done" in run
    said = dict(line.split(": ")[:2] for line in proofs.splitlines() if ": " in line and " experiment" in line)
    same = dict.fromkeys(("baseline", "fused_sgd"), "the same experiment")
    assert said == same | {"ddp": "another experiment"}
    assert "two calls of batch(0, 0) differ in image: draw from a generator seeded with both numbers" in mistake
    assert "accuracy, %" in (folder / "results/ResNet/report/index.html").read_text()


def test_own_layout(folder: Path) -> None:
    """Three places change: a new module, the table of readers, and the names of layouts.

    This test is the last one, because its change of preprocess would make the other tutorials run everything again.
    """
    _, run = follow("own-layout.md", folder)
    assert "steps (100%) done" in run
    with (
        h5py.File(folder / "results/my-layout/data/lines.h5") as found,
        h5py.File(folder / "results/smoke/data/laptop.h5") as original,
    ):
        assert list(found) == list(original) == ["p00", "p01"]
        for person in original:
            for name in ("pixels", "labels"):
                np.testing.assert_array_equal(found[person][name], original[person][name])


def test_every_tutorial_is_followed_here() -> None:
    pages = {page.name for page in (ROOT / "docs/tutorials").glob("*.md")}
    tested = set(re.findall(r'follow\("([\w-]+\.md)"', Path(__file__).read_text(encoding="utf-8")))
    assert tested == pages | {"own-layout.md"}
