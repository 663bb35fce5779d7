"""The studio's page in a real browser: its canvases show what torch decodes, and nothing leaves the machine.

Checked by breaking the code: a rotation that was not transposed, pitch and yaw exchanged, the head turned by the
gaze's angles, components of another network, an appearance mixed the other way round.
"""

import threading
from pathlib import Path

import cv2
import numpy as np
import pytest
import torch
from playwright.sync_api import expect

from faze.base.errors import UserError
from faze.base.geometry import rotation_from_pitchyaw
from faze.config.parameters import Model
from faze.data.network_input import from_network
from faze.data.store.strips import PersonStrips, StripStore, write_strips
from faze.model.dted import DTED
from faze.redirection.walk import frontal
from faze.studio import server as studio_folder
from faze.studio.server import COMPONENTS, RUNTIME, STATIC, components, open_server, write_studio

MODEL = Model(2, 4, 32, 128, 5, 2, 3, 4, normalize_axis=1, backprop_gaze=True)
PEOPLE = ("00005", "00007", "00011")


def network(seed: int) -> DTED:
    torch.manual_seed(seed)
    return DTED(MODEL).eval()


@pytest.fixture(scope="module")
def networks() -> dict[str, DTED]:
    return {"baseline": network(0), "recompute": network(1)}


@pytest.fixture(scope="module")
def strips(tmp_path_factory):
    rng, path = np.random.default_rng(0), tmp_path_factory.mktemp("strips") / "gazecapture.h5"

    def of(person: str) -> PersonStrips:
        pixels = rng.integers(0, 256, (2, 64, 256, 3), dtype=np.uint8)
        return PersonStrips(person, "test", ["0.jpg", "1.jpg"], pixels, rng.normal(0, 0.2, (2, 4)).astype(np.float32))

    write_strips(path, "gazecapture", map(of, PEOPLE))
    with StripStore(path) as opened:
        yield opened


@pytest.fixture(scope="module")
def written(networks, strips, tmp_path_factory) -> Path:
    if not all((STATIC / "ort" / name).is_file() for name in RUNTIME):
        pytest.skip("onnxruntime-web was not fetched: npm is missing")
    out = tmp_path_factory.mktemp("studio") / "page"
    write_studio(out, networks, strips, PEOPLE)
    return out


@pytest.fixture(scope="module")
def address(written):
    with open_server(written, 0) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}/"
        server.shutdown()


@pytest.fixture
def page(chromium, address):
    context = chromium.new_context(viewport={"width": 1280, "height": 900}, accept_downloads=True)
    opened, asked, errors = context.new_page(), [], []
    opened.on("request", lambda request: asked.append(request.url))
    opened.on("pageerror", lambda error: errors.append(str(error)))
    opened.goto(address)
    opened.wait_for_selector("main:not([hidden])")
    yield settled(opened)
    assert asked and all(url.startswith((address, "blob:", "data:")) for url in asked)
    assert errors == []
    context.close()


def settled(page):
    """Wait until the last requested picture is on every canvas."""
    page.wait_for_function(
        """() => new Promise((resolve) => {
            const now = () => [...document.querySelectorAll("canvas")].map((canvas) => canvas.dataset.shown).join();
            const before = now();
            setTimeout(() => resolve(before && !before.includes("undefined") && before === now()), 250);
        })"""
    )
    return page


def slide(page, **values: float) -> None:
    for name, value in values.items():
        page.evaluate(
            """([name, value]) => {
                const input = document.querySelector(`input[name="${name}"]`);
                input.value = value;
                input.dispatchEvent(new Event("input"));
            }""",
            [name.replace("_", " "), value],
        )
    settled(page)


def shown(page) -> list[np.ndarray]:
    """Return the pixels of every canvas, (H, W, 3)."""
    found = page.evaluate(
        """() => [...document.querySelectorAll("canvas")].map((canvas) =>
            [...canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data])"""
    )
    return [np.array(pixels).reshape(32, 128, 4)[..., :3] for pixels in found]


@torch.inference_mode()
def decoded(dted: DTED, strips, person: str, gaze_deg, head_deg, towards=None, share=0.0, directions=()) -> np.ndarray:
    """Compute the same pixels with torch."""
    front = frontal(dted, strips, person)[2]
    app = front.app
    if towards:
        app = (1 - share) * app + share * frontal(dted, strips, towards)[2].app
    everybody = torch.cat([frontal(dted, strips, each)[2].app for each in PEOPLE]).double().numpy()
    for number, direction in zip(directions, components(everybody), strict=False):
        app = app + number * torch.from_numpy(direction).float()
    rotations = [
        rotation_from_pitchyaw(torch.deg2rad(torch.tensor([angles])), torch) for angles in (gaze_deg, head_deg)
    ]
    return from_network(dted.decode(front._replace(app=app).turn(*(each.mT for each in rotations))))[0].numpy()


def assert_same(page, networks, strips, *how, **more) -> None:
    pictures = shown(page)
    assert len(pictures) == len(networks)
    for picture, dted in zip(pictures, networks.values(), strict=True):
        assert np.abs(picture - decoded(dted, strips, *how, **more).astype(int)).max() <= 2


def test_the_page_opens_on_the_first_strip_as_it_was_recorded(page, networks, strips):
    label_deg = np.degrees(strips.labels(PEOPLE[0])[0])
    rounded = np.round(2 * label_deg) / 2  # the sliders' steps
    assert_same(page, networks, strips, PEOPLE[0], rounded[:2].tolist(), rounded[2:].tolist())
    assert page.locator("figcaption").all_inner_texts()[:2] == ["baseline", "recompute"]
    assert not page.locator("#message").is_visible()


def test_canvases_are_what_torch_decodes(page, networks, strips):
    page.select_option("#strip", PEOPLE[1])
    page.select_option("#other", PEOPLE[2])
    slide(page, gaze_pitch=-12, gaze_yaw=30.5, head_pitch=8, head_yaw=-21)
    assert_same(page, networks, strips, PEOPLE[1], [-12, 30.5], [8, -21])
    slide(page, share=40, component_1=1.5, component_2=-0.7)
    looks = {"towards": PEOPLE[2], "share": 0.4, "directions": (1.5, -0.7)}
    assert_same(page, networks, strips, PEOPLE[1], [-12, 30.5], [8, -21], **looks)
    page.click("#plain")
    page.click("#front")
    settled(page)
    assert_same(page, networks, strips, PEOPLE[1], [0, 0], [0, 0])


def test_mouse_and_keys_move_a_slider(page, networks, strips):
    page.click("#front")
    slider = page.locator('input[name="gaze yaw"]')
    box = slider.bounding_box()
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] + 40, box["y"] + 4, steps=10)
    page.mouse.up()
    settled(page)
    assert slider.input_value() == "-45"  # to the right of the picture
    assert_same(page, networks, strips, PEOPLE[0], [0, -45], [0, 0])
    pitch = page.locator('input[name="head pitch"]')
    pitch.focus()
    for _ in range(4):
        page.keyboard.press("ArrowUp")
    settled(page)
    assert pitch.input_value() == "2"
    assert_same(page, networks, strips, PEOPLE[0], [0, -45], [2, 0])


def test_a_picture_and_a_walk_can_be_kept(page, tmp_path):
    with page.expect_download() as picture:
        page.click("#png")
    assert picture.value.suggested_filename == "gazecapture_00005_picture.png"
    picture.value.save_as(tmp_path / "picture.png")
    assert (tmp_path / "picture.png").read_bytes().startswith(b"\x89PNG")
    with page.expect_download() as walk:
        page.click("#webm")
    assert walk.value.suggested_filename == "gazecapture_00005_gaze_yaw.webm"
    walk.value.save_as(tmp_path / "walk.webm")
    content = (tmp_path / "walk.webm").read_bytes()
    assert content.startswith(b"\x1a\x45\xdf\xa3") and len(content) > 10_000
    video = cv2.VideoCapture(str(tmp_path / "walk.webm"))
    pictures = [picture for _, picture in iter(video.read, (False, None))]
    assert max(np.abs(picture.astype(int) - pictures[0]).mean() for picture in pictures) > 5  # it moves


def test_a_browser_without_vectors_is_told_so(chromium, address):
    page = chromium.new_page()
    page.add_init_script("WebAssembly.validate = () => false")
    page.goto(address)
    expect(page.locator("#message")).to_contain_text("WebAssembly SIMD")
    assert not page.locator("main").is_visible()
    page.close()


def test_a_torn_decoder_is_said_on_the_page(chromium, written, address):
    whole = (written / "decoder_1.onnx").read_bytes()
    (written / "decoder_1.onnx").write_bytes(whole[:1000])
    page = chromium.new_page()
    page.goto(address)
    expect(page.locator("#message")).to_contain_text("The studio did not start")
    page.close()
    (written / "decoder_1.onnx").write_bytes(whole)


def test_components_are_the_directions_of_largest_deviation():
    rng = np.random.default_rng(0)
    app = rng.normal(0, [5.0, 0.1, 2.0, 0.01, 0.3, 0.2], (400, 6)) + 7
    found = components(app)
    assert found.shape == (COMPONENTS, 6)
    assert np.abs(found[0]).argmax() == 0
    assert np.linalg.norm(found, axis=1) == pytest.approx(np.sqrt(np.linalg.eigvalsh(np.cov(app.T))[:1:-1]))
    assert np.abs(found[1]).argmax() == 2
    assert components(app[:1]).shape == (1, 6) and np.allclose(components(app[:1]), 0)


def test_without_the_browser_runtime_the_remedy_is_said(networks, strips, tmp_path, monkeypatch):
    monkeypatch.setattr(studio_folder, "STATIC", tmp_path)
    with pytest.raises(UserError, match=r"ort/ort\.wasm\.bundle\.min\.mjs is missing: run `make studio` once"):
        write_studio(tmp_path / "page", networks, strips, PEOPLE)
    assert not (tmp_path / "page").exists()


def test_a_network_that_gives_no_numbers_is_refused(written, strips, tmp_path):
    diverged = network(0)
    with torch.no_grad():
        diverged.fc_enc.weight.fill_(float("nan"))
    with pytest.raises(UserError, match="codes of person 00005 are not finite"):
        write_studio(tmp_path / "page", {"baseline": diverged}, strips, PEOPLE)
    assert list(tmp_path.iterdir()) == []
