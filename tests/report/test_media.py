"""Embedded pictures and videos, and the interactive atlas of a report that is opened as a file.

The colour of each picture encodes its row and column in the sheet, which identifies the picture on a canvas. Checked by
breaking the code: rows that begin at the lowest pitch, the head's sheet used for the gaze, steps not kept within the
grid.
"""

import base64
import io
import json
import sys
from pathlib import Path

import numpy as np
import pytest
from fabricated import Fabricated
from PIL import Image, ImageDraw

from faze.base.errors import UserError
from faze.base.result_paths import ResultPaths
from faze.redirection.atlas import STEPS, grid
from faze.report.media import Embedder, collect_atlas, collect_walks, walk_title
from faze.stages import evaluate, inspect, report

LAST = STEPS - 1


@pytest.fixture(scope="module")
def page_file(tmp_path_factory):
    folder = tmp_path_factory.mktemp("atlas")
    case = Fabricated(tiers=("baseline", "amp", "ddp"), people=(3, 3))
    case.write(folder)
    with pytest.MonkeyPatch.context() as patch:
        for stage, out in ((evaluate, "evaluation"), (report, "report")):
            name = stage.__name__.rpartition(".")[2]
            if stage is report:
                for dataset in ("mpiigaze", "gazecapture"):
                    made = folder / "inspection" / dataset
                    patch.setattr(sys, "argv", ["inspect", str(folder / f"data/{dataset}.h5"), "--out", str(made)])
                    assert inspect.main() == 0
            config = case.config_file(folder / f"{name}.yaml", name)
            words = ["--config", str(config), "--results", str(folder), "--out", str(folder / out)]
            patch.setattr(sys, "argv", [name, *words])
            assert stage.main() == 0
    return folder / "report" / "index.html"


@pytest.fixture
def opened(chromium, page_file):
    context = chromium.new_context(viewport={"width": 1280, "height": 900}, has_touch=True)
    page, asked = context.new_page(), []
    page.on("request", lambda request: asked.append(request.url))
    page.goto(page_file.as_uri())
    page.add_style_tag(content="html { scroll-behavior: auto }")
    page.wait_for_function("[...document.querySelectorAll('#atlas canvas')].every((c) => c.width === 32)")
    yield page
    assert all(url.startswith(("file:", "data:")) for url in asked)
    context.close()


def shown(page, code):
    """Return the (row, column) of the picture on a code's canvases, and check that it belongs to the code's sheet."""
    colors = page.evaluate(
        """(code) => [...document.querySelectorAll(`#atlas canvas[data-code=${code}]`)].map(
            (canvas) => [...canvas.getContext("2d").getImageData(16, 8, 1, 1).data].slice(0, 3))""",
        code,
    )
    assert len(colors) == 2 * 2  # people of two data sets, two tiers
    (red, green, blue), *others = (tuple(np.round(np.array(color) / [16, 16, 100]).astype(int)) for color in colors)
    assert all(other == (red, green, blue) for other in others)
    assert blue == ("gaze", "head").index(code)
    return red, green


def test_pads_start_frontal(opened):
    for code in ("gaze", "head"):
        pad = opened.locator(f".pad[data-code={code}]")
        assert shown(opened, code) == (LAST / 2, LAST / 2)
        assert pad.get_attribute("aria-valuetext") == "pitch 0°, yaw 0°"
    assert opened.locator("#atlas").is_visible() and not opened.locator("#atlas img").first.is_visible()


def test_a_drag_turns_every_person_of_both_tiers_and_the_other_code_stays(opened):
    pad = opened.locator(".pad[data-code=gaze]")
    pad.scroll_into_view_if_needed()
    box = pad.bounding_box()
    opened.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    opened.mouse.down()
    opened.mouse.move(box["x"] + box["width"] - 2, box["y"] + 2, steps=12)
    assert shown(opened, "gaze") == (0, LAST)
    assert pad.get_attribute("aria-valuetext") == "pitch +45°, yaw −45°"
    opened.mouse.move(box["x"] - 300, box["y"] + 900)  # beyond the pad
    assert shown(opened, "gaze") == (LAST, 0)
    opened.mouse.up()
    opened.mouse.move(box["x"] + 5, box["y"] + 5)
    assert shown(opened, "gaze") == (LAST, 0)
    assert shown(opened, "head") == (LAST / 2, LAST / 2)
    seen = opened.evaluate("(document.querySelector('.pad[data-code=gaze] i').style.left)")
    assert float(seen.rstrip("%")) == pytest.approx(50 + 50 * -22.5 / 45, abs=0.1)  # the estimator saw half of it


def test_keys_move_by_one_picture_and_stay_on_the_sheet(opened):
    pad = opened.locator(".pad[data-code=head]")
    pad.focus()
    for key in ("ArrowRight", "ArrowRight", "ArrowUp"):
        opened.keyboard.press(key)
    assert shown(opened, "head") == (LAST / 2 - 1, LAST / 2 + 2)
    for _ in range(STEPS):
        opened.keyboard.press("ArrowDown")
    assert shown(opened, "head") == (LAST, LAST / 2 + 2)
    opened.keyboard.press("Home")
    assert shown(opened, "head") == (LAST / 2, LAST / 2)
    before = opened.evaluate("scrollY")
    opened.keyboard.press("ArrowUp")
    assert opened.evaluate("scrollY") == before


def test_a_tap_moves_a_pad(opened):
    pad = opened.locator(".pad[data-code=gaze]")
    pad.scroll_into_view_if_needed()
    box = pad.bounding_box()
    opened.touchscreen.tap(box["x"] + 2, box["y"] + box["height"] - 2)
    assert shown(opened, "gaze") == (LAST, 0)


def test_without_scripts_the_contact_sheet_shows_and_the_atlas_does_not(chromium, page_file):
    context = chromium.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(page_file.as_uri())
    assert not page.locator("#atlas").is_visible()
    assert page.locator('img[alt^="Contact sheet"]').first.is_visible()
    context.close()


def test_sheets_that_are_too_large_leave_the_person_out(page_file, monkeypatch):
    paths = ResultPaths(page_file.parents[1])
    whole = collect_atlas(paths, ["baseline", "ddp"], 0)
    assert [len(person["codes"]["gaze"]) for person in whole["people"]] == [2, 2]
    monkeypatch.setattr("faze.report.media.ATLAS_BYTES", 1000)
    assert collect_atlas(paths, ["baseline", "ddp"], 0) == {}
    assert collect_atlas(paths, ["baseline"], 0) == {}
    sheets = [sheet["uri"] for person in whole["people"] for code in person["codes"].values() for sheet in code]
    total = sum(len(uri.partition(",")[2]) for uri in sheets)
    for budget, people in (
        (total, whole["people"]),
        (total - 1, whole["people"][:1]),
    ):  # the last sheet is the second's
        monkeypatch.setattr("faze.report.media.ATLAS_BYTES", budget)
        assert collect_atlas(paths, ["baseline", "ddp"], 0)["people"] == people


@pytest.mark.parametrize(("sheets", "expected"), [
    (None, "sheets"), ([{}], ""), ({"a": 1}, ""),
    ([{"sheet": "../../secret"}], "'../../secret'"), ([{"sheet": "/etc/passwd"}], "'/etc/passwd'"),
])  # fmt: skip
def test_a_manipulated_index_embeds_no_other_file(tmp_path, sheets, expected):
    """Regression: the page embedded any readable file that the index named, although pages are meant to be shared."""
    paths = ResultPaths(tmp_path)
    paths.walks("baseline", 0).mkdir(parents=True)
    (tmp_path / "baseline/secret").write_text("x")
    index = {"steps": 15, "range_deg": 30} | ({} if sheets is None else {"sheets": sheets})
    (paths.walks("baseline", 0) / "atlas.json").write_text(json.dumps(index))
    with pytest.raises(UserError, match=f"atlas.json.*{expected}.*run walk again"):
        collect_atlas(paths, ["baseline"], 0)


def test_sheets_have_the_orientation_of_the_pad():
    angles = grid(30)
    assert angles[0, 0].tolist() == [30, 30] and angles[0, -1].tolist() == [30, -30]
    assert angles[-1, 0].tolist() == [-30, 30]
    assert angles[LAST // 2, LAST // 2].tolist() == [0, 0]


def test_files_beyond_the_budget_are_not_embedded(tmp_path):
    (tmp_path / "clip.mp4").write_bytes(b"x" * 300)
    uri = f"data:video/mp4;base64,{base64.b64encode(b'x' * 300).decode()}"  # 400 bytes
    for budget, second in ((800, uri), (799, None)):
        embedder = Embedder(budget_bytes=budget)
        assert embedder.file(tmp_path / "clip.mp4", "video/mp4") == uri
        assert embedder.file(tmp_path / "clip.mp4", "video/mp4") == second
    paths = ResultPaths(tmp_path)
    paths.walks("baseline", 0).mkdir(parents=True)
    (paths.walks("baseline", 0) / "a.mp4").write_bytes(b"x" * 300)
    [walk] = collect_walks(paths, ["baseline"], 0, embedder)
    assert (walk["videos"], walk["total"], walk["folder"]) == ([], 1, "baseline/seed0/walks")


def test_wide_pictures_shrink_to_the_page(tmp_path):
    noise = np.random.default_rng(0).integers(0, 255, (60, 3000, 3), np.uint8)
    Image.fromarray(noise).save(tmp_path / "sheet.png")
    uri = Embedder().picture(tmp_path / "sheet.png")
    assert uri.startswith("data:image/jpeg;base64,") and len(uri) < (tmp_path / "sheet.png").stat().st_size
    with Image.open(io.BytesIO(base64.b64decode(uri.partition(",")[2]))) as embedded:
        assert embedded.size == (2240, 45)
    Image.fromarray(noise[:, :2000]).save(tmp_path / "sheet.png")
    uri = Embedder().picture(tmp_path / "sheet.png")
    with Image.open(io.BytesIO(base64.b64decode(uri.partition(",")[2]))) as embedded:
        assert embedded.size == (2000, 60)


@pytest.mark.parametrize("kind", ["drawing", "photograph"])
def test_a_picture_is_embedded_as_the_smaller_of_png_and_jpeg(tmp_path, kind):
    """Regression: drawings were always embedded as PNG, later always as JPEG; photographs were embedded as PNG."""
    picture = Image.new("RGB", (400, 300), "white")
    if kind == "drawing":
        ImageDraw.Draw(picture).ellipse((50, 40, 350, 260), "navy")
    else:
        picture = Image.fromarray(np.random.default_rng(0).normal(128, 9, (300, 400, 3)).clip(0, 255).astype(np.uint8))
    picture.save(tmp_path / "picture.png")
    files = {}
    for form, settings in (("png", {"optimize": True}), ("jpeg", {"quality": 88, "optimize": True})):
        buffer = io.BytesIO()
        picture.save(buffer, form, **settings)
        files[f"data:image/{form};base64,{base64.b64encode(buffer.getvalue()).decode()}"] = len(buffer.getvalue())
    assert Embedder().picture(tmp_path / "picture.png") == min(files, key=files.get)


@pytest.mark.parametrize(("file", "title"), [("gazecapture_00300.mp4", "GazeCapture 00300"), ("clip.mp4", "clip")])
def test_titles_of_videos(file, title):
    assert walk_title(Path(file)) == title
