"""Pictures per second on the studio's page, measured in a real, headless browser.

    python benchmarks/studio.py          # the default's size and the paper's
    python benchmarks/studio.py --seconds 10

Weights are untrained, since the time does not depend on them. The slider moves again as soon as a picture is on the
canvas, so that only codes, decoder and canvas take time. Requires Chromium, and that `make studio` has been run once.
"""

import argparse
import dataclasses
import shutil
import tempfile
import threading
from pathlib import Path

import numpy as np
import torch
from playwright.sync_api import Browser, sync_playwright

from faze.config.check import build
from faze.config.parameters import Model
from faze.config.yaml_files import DEFAULTS, read_yaml
from faze.data.store.strips import PersonStrips, StripStore, write_strips
from faze.model.dted import DTED
from faze.studio.server import open_server, write_studio

DEFAULT = build(Model, read_yaml(DEFAULTS)["model"])
SIZES = {
    "default, one tier": [DEFAULT],
    "default, two tiers": [DEFAULT, DEFAULT],
    "paper": [dataclasses.replace(DEFAULT, growth=32, blocks=4, image_height_px=64, image_width_px=256)],
}
PEOPLE = ("00001", "00002")
# Each picture that stands on every canvas moves the slider; counts them for some seconds.
COUNT = """(seconds) => new Promise((resolve) => {
    const canvases = [...document.querySelectorAll("canvas")], input = document.querySelector('input[name="gaze yaw"]');
    const began = performance.now();
    let count = -1, last = [];
    new MutationObserver(() => {
        const shown = canvases.map((canvas) => canvas.dataset.shown);
        if (shown.some((number) => number !== shown[0])) return;
        count += 1;
        if (performance.now() - began > 1000 * seconds) return resolve((1000 * count) / (performance.now() - began));
        input.value = count % 40;
        input.dispatchEvent(new Event("input"));
    }).observe(document.querySelector("#pictures"), { subtree: true, attributeFilter: ["data-shown"] });
    input.dispatchEvent(new Event("input"));
})"""


def pictures_per_second(browser: Browser, folder: Path, seconds: float) -> float:
    with open_server(folder, 0) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        page = browser.new_page()
        page.goto(f"http://127.0.0.1:{server.server_address[1]}/")
        page.wait_for_selector("main:not([hidden])")
        page.evaluate(COUNT, seconds / 2)  # warms up
        found = page.evaluate(COUNT, seconds)
        page.close()
        server.shutdown()
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seconds", type=float, default=5.0)
    seconds = parser.parse_args().seconds
    rng, program = np.random.default_rng(0), shutil.which("chromium") or shutil.which("google-chrome")
    with tempfile.TemporaryDirectory() as parent, sync_playwright() as playwright:
        store = Path(parent) / "gazecapture.h5"
        pixels = rng.integers(0, 256, (1, 64, 256, 3), dtype=np.uint8)
        people = (PersonStrips(name, "test", ["0.jpg"], pixels, np.zeros((1, 4), np.float32)) for name in PEOPLE)
        write_strips(store, "gazecapture", people)
        browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        with StripStore(store) as strips:
            for number, (name, models) in enumerate(SIZES.items()):
                torch.manual_seed(0)
                networks = {f"tier {at}": DTED(model).eval() for at, model in enumerate(models)}
                folder = Path(parent) / str(number)
                write_studio(folder, networks, strips, PEOPLE)
                print(f"{name:20} {pictures_per_second(browser, folder, seconds):6.1f} pictures a second", flush=True)
        browser.close()


if __name__ == "__main__":
    main()
