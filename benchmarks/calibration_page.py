"""Replay rendered people on the page of `faze calibrate`, in Chromium with a video in place of its camera.

    pip install playwright; sudo apt install chromium; make landmarker
    python benchmarks/calibration_page.py [--people 8] [--minutes 10] [--out results/calibration_page]

In a video, a person at a laptop looks at each letter for two seconds; the top left corner states which letter. The
output contains each person's errors, what was fitted and the truth, what the page says about bad inputs, the rate,
delay and memory of the live dot, and checks of an old calibration. The folder contains a picture of every state.
"""

import argparse
import contextlib
import os
import random
import shutil
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import cv2
import numpy as np
import torch

from faze.base.geometry import pitchyaw_from_vector
from faze.config.validation import read_config
from faze.data.readers.screen import Screen
from faze.data.synthetic import people, setting
from faze.data.synthetic.person import Role
from faze.gaze.calibration_page import DOTS
from faze.gaze.estimator import LANDMARKER
from faze.gaze.screen_fit import MEAN, UNKNOWNS, place

FAZE = [sys.executable, "-m", "faze", "calibrate", "--out", "me.pt", "--landmarker", LANDMARKER.resolve()]
SIZE_PX, HFOV_DEG, FPS = np.array([1280, 800]), 70.0, 30  # of the screen; as the page assumes; of the video
SYNTHETIC = read_config().synthetic.model_copy(update={"frames_per_person": 40 * len(DOTS)})
setting._LAPTOPS = [tuple(SIZE_PX.tolist())]
setting.Screen.sample_targets = lambda screen, rng, count: np.resize(DOTS * SIZE_PX, (count, 2))
FAULTS = {
    "dark": lambda image: image // 16,
    "mirrored": lambda image: image[:, ::-1].copy(),
    "two people": lambda image: np.hstack(2 * [image[:, 320:960]]),
    "person leaves": lambda image: np.full_like(image, 128),
}
LEVEL = """(context => (context.drawImage(video, 4, 4, 4, 4, 0, 0, 1, 1), context.getImageData(0, 0, 1, 1).data[1]))
    (new OffscreenCanvas(1, 1).getContext("2d"))"""
SAID = """(window.stage ? stage.hidden ? ["message", "report", "status"].map($) : [$("hint")] : [document.body])
    .find((element) => element.checkVisibility() && element.textContent)?.textContent ?? ''"""


def write_video(path, index, fault):
    """Write a video of a person whom no ablation renders; return a card's width in px, and what the page fits (6,)."""
    frames = people.sample_frames(Role("mpiifacegaze", "test", 300 + index), SYNTHETIC)
    rows = [np.flatnonzero((frames.scene.target_units == dot * SIZE_PX).all(axis=1))[:2] for dot in DOTS]
    rows = np.concatenate(13 * [rows[4]] if fault == "staring" else rows)
    scene = type(frames.scene)(**{name: array[rows] for name, array in vars(frames.scene).items()})
    scene.aperture[:] *= fault != "closed eyes"
    with path.open("wb") as file:
        for number, image in enumerate(people.render_frames(replace(frames, scene=scene), SYNTHETIC.seed)):
            shown = FAULTS.get(fault, np.copy)(image) if fault != "person leaves" or number > 9 else image
            shown[:24, :24] = 16 * (number // 2 + 1)
            levels = cv2.convertScaleAbs(shown[:, :, ::-1], alpha=219 / 255, beta=16)  # the range of a camera's
            file.write(FPS * cv2.imencode(".jpg", levels, [cv2.IMWRITE_JPEG_QUALITY, 95])[1].tobytes())
    [screen] = frames.setting.screens
    turn = screen.rotation @ np.diag([-1, 1, -1])
    corner_mm = turn.T @ (screen.translation_mm + screen.rotation[:, :2] @ frames.person.screen_shift_mm)
    turn_deg = np.degrees(pitchyaw_from_vector(turn[:, 2])) * [-1, 1]
    focal_log = np.log(screen.camera.parameters[0] * np.tan(np.radians(HFOV_DEG / 2)) / 640)
    true = np.array([*corner_mm - [screen.size_mm[0] / 2, 0, 0], *turn_deg, focal_log])
    return round(85.6 / screen.size_mm[0] * SIZE_PX[0]), true


@contextlib.contextmanager
def open_page(chromium, out, index, fault=""):
    """Yield the page in front of a person, the process of `faze calibrate`, and the true values."""
    card_px, true = write_video(out / "camera.mjpeg", index, fault)
    server = subprocess.Popen(FAZE, cwd=out, env=os.environ | {"TMPDIR": str(out)}, stdout=subprocess.PIPE, text=True)
    link = next(line for line in server.stdout if "http" in line).split()[1]
    camera = "=device-count=0" if fault == "no camera" else f" --use-file-for-fake-video-capture={out}/camera.mjpeg"
    flags = ["--no-sandbox", *f"--use-fake-device-for-media-stream{camera}".split()]
    browser = chromium.launch(executable_path=shutil.which("chromium"), args=flags)
    context = browser.new_context(viewport={"width": 1280, "height": 800})
    context.set_default_timeout(90_000)
    context.grant_permissions([] if fault == "camera refused" else ["camera"])
    page = context.new_page()
    page.goto(link)
    page.wait_for_function("!$('status').textContent.startsWith('Allow')")
    page.fill("#card", str(card_px))
    yield page, server, true
    browser.close()
    server.send_signal(signal.SIGINT)
    server.wait()


def show(page, out, name):
    """Write a picture of the page, and print what it says."""
    page.screenshot(path=out / f"{name}.png")
    print(f"{name}: {page.evaluate(SAID)}", flush=True)


def wait_for_dot(page, dot):
    """Wait until the person in the video begins to look at a dot."""
    for sign in ("!=", "=="):
        page.wait_for_function(f"Math.round({LEVEL} / 16) - 1 {sign} {dot}", polling=50)


def answer(page, letters=99, button="start"):
    """Press the right arrow key for each letter while the person in the video looks at it; first, enter full screen."""
    if page.evaluate("stage.hidden"):
        page.click(f"#{button}:enabled")
        page.wait_for_function("!!onkeydown")
    while letters and not page.evaluate("stage.hidden"):
        dot, arrow = page.evaluate("[letter.dataset.dot, letter.dataset.arrow]")
        wait_for_dot(page, dot)
        page.wait_for_timeout(1300 * random.random())  # so that another image is taken if the first is refused
        page.keyboard.press(arrow)
        page.wait_for_function("!!onkeydown || stage.hidden")
        letters -= 1


def use_second_tab(page):
    answer(page, letters=0)
    other = page.context.new_page()
    other.goto(page.url)
    answer(other, letters=0)
    page.bring_to_front()
    answer(page, letters=1)


WRONG = "Object.keys(TURNS).find((key) => key !== letter.dataset.arrow)"
BAD = dict.fromkeys(("dark", "two people", "closed eyes", "camera refused", "no camera"), lambda page: None) | {
    "wrong arrow": lambda page: answer(page, letters=0) or page.keyboard.press(page.evaluate(WRONG)),
    "person leaves": lambda page: answer(page, letters=8),
    "mirrored": answer,
    "staring": answer,
    "left full screen": lambda page: answer(page, letters=2) or page.evaluate("document.exitFullscreen()"),
    "resized": lambda page: answer(page, letters=0) or page.set_viewport_size({"width": 900, "height": 700}),
    "second tab": use_second_tab,
    "link used twice": lambda page: page.context.clear_cookies() or page.goto(page.url),
}


def compare(setup, true):
    """Return the fit, its errors in standard deviations (6,), and distances from the true screen in mm (2,)."""
    found, deviation = np.array([*setup["fitted"].values()]).T
    fit = " | ".join("{:.2f}, {:.2f} ± {:.2f}".format(*each) for each in zip(true, found, deviation, strict=True))
    screens = (place(values, SIZE_PX, setup["pixel_mm"]) for values in (true, MEAN[:6], found))
    true_mm, *others_mm = (Screen.of(screen).to_mm(DOTS * SIZE_PX) for screen in screens)
    return fit, np.abs(found - true) / deviation, [np.linalg.norm(each - true_mm, axis=1).mean() for each in others_mm]


def replay(chromium, out, people):
    """Calibrate all people, and try all bad inputs, with which nothing may be saved."""
    print("| error without | with calibration |", *(f"{name}: true, found |" for name in UNKNOWNS))
    compared = []
    for index, case in [(n, f"person {n}") for n in range(people)] + [(3, case) for case in BAD]:
        with open_page(chromium, out, index, case) as (page, _, true):
            show(page, out, f"{case}, preview")
            BAD.get(case, answer)(page)
            page.wait_for_timeout(1000)
            show(page, out, case)
        if (out / "me.pt").exists():
            assert case not in BAD
            saved = torch.load(out / "me.pt", weights_only=True)
            fit, *errors = compare(saved["setup"], true)
            compared.append(errors)
            print(f"| {saved['unadapted_deg']:.1f}° | {saved['error_deg']:.1f}° | {fit} |")
            (out / "me.pt").unlink()
        assert not list(out.glob("faze-*"))
    off, distances_mm = map(np.array, zip(*compared, strict=True))
    print(f"68 and 95 % intervals that contain the truth: {(off < 1).mean():.0%} and {(off < 1.96).mean():.0%}")
    print("The screen's points are {:.1f} mm off as assumed, {:.1f} mm as fitted".format(*distances_mm.mean(axis=0)))
    for network in ("missing.pt", "camera.mjpeg"):
        subprocess.run([*FAZE, "--model", network], cwd=out, stderr=sys.stdout)


def replay_live(chromium, out, minutes):
    """Measure the live dot, validate, and check the calibration after a restart, also with another person."""
    with open_page(chromium, out, 0) as (page, server, _):
        answer(page)
        page.click("#live")
        show(page, out, "live tab")
        page.click("#show")
        delays_ms = []
        for tenth_s in range(1, 600 * minutes + 1):
            page.wait_for_timeout(100)
            hint = page.evaluate(SAID)
            delays_ms += [float(hint.split()[2])] if "images/s" in hint else []
            if tenth_s % 600 == 0:
                show(page, out, f"live dot after {tenth_s // 600} minutes")
                pages = Path(f"/proc/{server.pid}/statm").read_text().split()[1]
                print(f"resident memory: {int(pages) * 4096 / 2**20:.0f} MiB")
        print("delay: {:.0f} ms (95th percentile {:.0f} ms)".format(*np.percentile(delays_ms, [50, 95])))
        page.evaluate("document.exitFullscreen()")
        wait_for_dot(page, 12)
        page.wait_for_timeout(1200)  # the first dot appears soon after the click
        page.click("#validate")
        page.wait_for_timeout(3000)
        show(page, out, "second dot of the validation")
        page.wait_for_function("stage.hidden")
        show(page, out, "validation")
    for index in (0, 1):
        with open_page(chromium, out, index) as (page, *_):
            page.click("#live")
            answer(page, button="check")
            show(page, out, f"check of person {index} after a restart")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--people", type=int, default=8)
    parser.add_argument("--minutes", type=int, default=10)
    parser.add_argument("--out", type=Path, default=Path("results/calibration_page"))
    args = parser.parse_args()
    from playwright.sync_api import sync_playwright  # not a dependency of faze

    out = args.out.resolve()
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    with sync_playwright() as playwright:
        replay(playwright.chromium, out, args.people)
        replay_live(playwright.chromium, out, args.minutes)


if __name__ == "__main__":
    main()
