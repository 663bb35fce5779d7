"""faze inspect: statistics of synthetic stores, kinds of rejects, the page, and messages about unreadable files."""

import csv
import json
import re
import subprocess
import sys
import time

import h5py
import numpy as np
import pytest

from faze.data.inspection import inspect, person_rows, summarise
from faze.data.readers import Reject
from faze.data.rejects import Kind, kinds, read_rejects, sidecar_of
from faze.data.store.layout import LABEL_SOURCES
from faze.data.store.strips import VALIDITIES, PersonStrips, StripStore, write_strips
from faze.report import media
from faze.report.dataset_figures import KINDS, SheetStrip, draw_density, draw_people, draw_sheet, pick_strips
from faze.report.dataset_page import describe
from faze.report.style import drawing
from faze.stages import inspect as stage

SIDECAR = """person,file_name,reason
p01,p01/0001.jpg,truncated JPEG
p01,p01/0002.jpg,"eyes are outside the 1280 x 720 frame, at (3, 700)"
p02,p02/0001.jpg,"eyes are outside the 1280 x 720 frame, at (-31, 80)"
p02,p02/0007.jpg,"eyes are outside the 1280 x 720 frame, at (9, 701)"
p08,,no folder p08
p07,,no folder p07
"""
SPLITS = {"p01": "train", "p02": "train", "p03": "val", "p04": "test"}


def write_store(path, full=True, counts=(5, 3, 4, 2)):
    """Create four people, in our layout if `full`, else in the released one; strip i of p01 has gaze pitch i
    degrees."""
    with h5py.File(path, "w") as file:
        if full:
            file.attrs["schema"], file.attrs["schema_version"], file.attrs["dataset"] = "strips", 2, "mpiigaze"
            file.attrs["label_sources"], file.attrs["validities"] = LABEL_SOURCES, VALIDITIES
        for number, ((person, split), count) in enumerate(zip(SPLITS.items(), counts, strict=True)):
            group = file.create_group(person)
            labels = np.zeros((count, 4))
            labels[:, 0], labels[:, 3] = np.arange(count), -10 * number
            group["labels"] = np.radians(labels).astype(np.float32)
            group["pixels"] = np.full((count, 16, 64, 3), 40 * number, np.uint8)
            if full:
                group.attrs["split"], group.attrs["device"] = split, f"camera {(number + 2) // 3}"
                group["file_name"] = np.array([f"{person}/{i:04d}.jpg".encode() for i in range(count)])
                group["frame_index"] = 10 * np.arange(count)
                group["label_source"] = np.full(count, LABEL_SOURCES.index("annotated"), np.uint8)
                group["validity"] = (np.arange(count) == 1).astype(np.uint8)
    return path


@pytest.fixture
def store(tmp_path):
    (tmp_path / "data_rejects.csv").write_text(SIDECAR)
    return write_store(tmp_path / "data.h5")


def look(path, **more):
    with StripStore(path) as strips:
        return inspect(strips, path, **more)


def run(monkeypatch, *arguments):
    """Run `faze inspect` with coarse figures."""
    monkeypatch.setattr(media, "DOTS_PER_INCH", 40)
    monkeypatch.setattr(sys, "argv", ["faze inspect", *map(str, arguments)])
    return stage.main()


def test_counts_of_our_store(store):
    """Regression: validity was read as origin; splits were in alphabetical order."""
    sidecar = store.with_name("data_rejects.csv")
    summary = summarise(look(store, sidecar=sidecar, rejects=read_rejects(sidecar)))
    assert (summary["people"], summary["strips"], summary["strip_px"]) == (4, 14, [64, 16])
    assert [(s["split"], s["people"], s["strips"], s["least"], s["median"], s["most"]) for s in summary["splits"]] == [
        ("train", 2, 8, 3, 4.0, 5),
        ("val", 1, 4, 4, 4.0, 4),
        ("test", 1, 2, 2, 2.0, 2),
    ]
    assert summary["label_sources"] == {"annotated": 14}
    assert summary["validities"] == {"valid": 10, "off_screen": 4}
    assert list(summary["devices"].items()) == [("camera 1", 3), ("camera 0", 1)]  # the most frequent one first
    ranges = {r["label"]: (r["least_deg"], r["median_deg"], r["most_deg"]) for r in summary["ranges"]}
    assert list(ranges) == ["gaze pitch", "gaze yaw", "head pitch", "head yaw"]
    assert ranges["gaze pitch"] == pytest.approx((0, 1, 4), abs=1e-5)
    assert ranges["head yaw"] == pytest.approx((-30, -10, 0), abs=1e-5)
    assert summary["checksums"] is None and summary["unusable_labels"] == 0
    rejects = summary["rejects"]
    assert (rejects["frames"], rejects["share"]) == (4, pytest.approx(4 / 18))
    assert list(rejects["left_out"].items()) == [("p07", "no folder p07"), ("p08", "no folder p08")]
    json.dumps(summary)


def test_possible_but_unusual_labels_are_a_warning(store):
    assert summarise(look(store))["unusual"] == []
    with h5py.File(store, "a") as file:
        file["p03/labels"][:, 1] = file["p03/labels"][:, 3] = np.radians(70)
    summary = summarise(look(store))
    assert summary["unusual"] == [
        "person p03: the gaze is typically 70 degrees from the camera: check the signs of the target"
    ]
    assert "Warning: person p03: the gaze is typically 70 degrees" in describe(summary)


def test_released_layout_needs_pixels_and_labels_only(tmp_path, monkeypatch, capsys):
    path = write_store(tmp_path / "published.h5", full=False, counts=(9, 3, 4, 2))
    summary = summarise(look(path))
    assert summary["dataset"] == "published"
    assert summary["label_sources"] == {"stored": 18} and summary["validities"] == {"unknown_screen": 18}
    assert summary["devices"] == {} and summary["rejects"] is None
    assert [(s["split"], s["people"], s["median"]) for s in summary["splits"]] == [("not stated", 4, 3.5)]
    assert run(monkeypatch, path, "--out", tmp_path / "page") == 0
    assert "no list of rejected frames" in capsys.readouterr().out
    assert (tmp_path / "page" / "index.html").is_file()


def test_labels_that_are_no_angles_are_counted_and_squeeze_nothing(store):
    with h5py.File(store, "a") as file:
        file["p01/labels"][0, 1] = np.nan
        file["p02/labels"][2, 0] = 1.58  # rad: 90.5 degrees
        file["p02/labels"][1, 2] = -1.58
    inspection = look(store)
    summary = summarise(inspection)
    assert summary["unusable_labels"] == 3
    assert {r["label"]: r["most_deg"] for r in summary["ranges"]}["gaze pitch"] < 5
    assert {row["person"]: row["unusable_labels"] for row in person_rows(inspection)} == {
        **{"p01": 1, "p02": 2},
        **{"p03": 0, "p04": 0},
    }
    with drawing():
        assert draw_density(inspection).axes[0].get_ylim()[1] <= 10
        [cell] = [c for c in pick_strips(StripStore(store), 14) if (c.person, c.frame) == ("p01", 0)]
        assert not draw_sheet([cell]).axes[0].texts  # nobody knows where it looks
    with h5py.File(store, "a") as file:
        file["p03/labels"][0] = [-1.57, 3.1, 1.57, -3.1]  # pitches of 89.95 degrees, and yaws of 178
    assert summarise(look(store))["unusable_labels"] == 3


def test_digest_tells_labels_and_ways_of_normalising_apart(store, tmp_path):
    digest = look(store).digest
    assert look(write_store(tmp_path / "again.h5")).digest == digest
    for change in ((("p03/labels", (1, 2)), 0.1), (("p01/pixels", (0, 3, 3, 1)), 7)):
        (name, where), value = change
        with h5py.File(store, "a") as file:
            file[name][where] = value
        assert (new := look(store).digest) != digest
        digest = new


def test_empty_people_are_shown_as_such(tmp_path, monkeypatch, capsys):
    path = write_store(tmp_path / "gaps.h5", counts=(0, 3, 0, 0))
    assert run(monkeypatch, path, "--out", tmp_path / "page") == 0
    assert re.search(r"train +2 +3 +0 +1.5 +3", capsys.readouterr().out)
    assert run(monkeypatch, write_store(tmp_path / "void.h5", counts=(0, 0, 0, 0)), "--out", tmp_path / "void") == 0


def test_checksums_are_read_on_demand_only(store, monkeypatch, capsys):
    verdicts = {"p01": True, "p02": False, "p03": None, "p04": True}
    asked = []
    monkeypatch.setattr(StripStore, "verify", lambda self, person: asked.append(person) or verdicts[person])
    assert run(monkeypatch, store) == 0
    assert not asked and "not verified" in capsys.readouterr().out
    assert run(monkeypatch, store, "--verify") == 1
    said = capsys.readouterr()
    assert asked == list(verdicts)
    assert "2 people intact, DAMAGED: p02, 1 person without any" in said.out
    assert "p02 are corrupt" in said.err.splitlines()[-1]


def test_reasons_that_differ_in_numbers_are_one_kind(store):
    """Regression: every number in a reason was replaced; people who were left out were counted as frames."""
    found = kinds(read_rejects(store.with_name("data_rejects.csv")))
    assert found == [
        Kind("eyes are outside the 1280 x 720 frame, at (…, …)", frames=3, people=2, left_out=0),
        Kind("truncated JPEG", frames=1, people=1, left_out=0),
        Kind("no folder …", frames=0, people=0, left_out=2),
    ]


@pytest.mark.parametrize(("reasons", "told"), [
    (["gaze target is (0, 0, 0), which marks"] * 2, "gaze target is (0, 0, 0), which marks"),
    (["line 3 of p01.txt: 27 columns, not 28", "line 4 of p02.txt: 27 columns, not 28"],
     "line … of …: 27 columns, not 28"),
    (["at -3.5 mm", "at 4 mm"], "at … mm"),
    ([""], "no reason given"),
])  # fmt: skip
def test_kinds_keep_the_numbers_that_all_share(reasons, told):
    [kind] = kinds([Reject("p01", f"{i}.jpg", reason) for i, reason in enumerate(reasons)])
    assert kind.reason == told


def test_no_person_is_lost_in_the_table(store, tmp_path, monkeypatch):
    assert run(monkeypatch, store, "--out", tmp_path / "page") == 0
    with (tmp_path / "page" / "table.csv").open(newline="") as file:
        rows = {row["person"]: row for row in csv.DictReader(file)}
    assert list(rows) == [*SPLITS, "p07", "p08"]
    assert (rows["p02"]["strips"], rows["p02"]["rejected"], rows["p02"]["off_screen"]) == ("3", "2", "1")
    assert (rows["p01"]["gaze_pitch_most_deg"], rows["p01"]["annotated"]) == ("4", "5")
    assert (rows["p08"]["strips"], rows["p08"]["left_out"]) == ("0", "no folder p08")


def test_page_needs_nothing_but_itself_and_links_to_the_sidecar(store, tmp_path, monkeypatch, capsys):
    out = tmp_path / "pages" / "data"
    assert run(monkeypatch, store, "--out", out) == 0
    assert f"open {out / 'index.html'}" in capsys.readouterr().out
    html = (out / "index.html").read_text()
    assert all(source.startswith("data:image/") for source in re.findall(r'src="([^"]{0,40})', html))
    assert html.count("<img") == 3
    links = {link for link in re.findall(r'href="([^"]+)', html) if not link.startswith("#")}
    assert links == {"../../data_rejects.csv"}
    assert (out / links.pop()).resolve() == store.with_name("data_rejects.csv").resolve()
    text = re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", html))
    assert "10 on the screen (71.4 %), 4 off the screen (28.6 %)" in text
    assert "eyes are outside the 1280 x 720 frame, at (…, …) 3 2 –" in text
    assert "no folder … – – 2" in text and "p07: no folder p07" in text
    assert not re.search(r"\b(nan|None|inf)\b", text)
    assert {path.name for path in (out / "figures").iterdir()} == {
        *("density.png", "density.svg", "people.png", "people.svg", "sheet.png")
    }


def test_names_in_a_file_are_text_on_the_page(tmp_path, monkeypatch):
    path = write_store(tmp_path / "data.h5")
    with h5py.File(path, "a") as file:
        file["p01"].attrs["device"] = "<script>alert(1)</script>"
    assert run(monkeypatch, path, "--out", tmp_path / "page") == 0
    html = (tmp_path / "page" / "index.html").read_text()
    assert "<script" not in html and "&lt;script&gt;" in html


HOSTILE = ("<img src=x onerror=alert(1)>", "$(touch x); `id`", "a \"b\" 'c' & d", "{{ 7 * 7 }}", "a'); alert(1); ('")


def test_people_may_be_called_anything_that_is_a_name(tmp_path, monkeypatch):
    """The store refuses names that are not valid file names: see tests/data/test_hostile_stores.py."""
    strip, label = np.zeros((1, 64, 256, 3), np.uint8), np.zeros((1, 4), np.float32)
    people = [PersonStrips(name, "train", ["0.jpg"], strip, label, name) for name in HOSTILE]
    path = tmp_path / "javascript:alert(1) #.h5"
    write_strips(path, "<script>x", people)
    rejects = [Reject(name, "<script>/0.jpg", f"<script>{name}") for name in HOSTILE]
    with sidecar_of(path).open("w", newline="") as file:
        csv.writer(file).writerows([("person", "file_name", "reason"), *((r.person_id, "", r.reason) for r in rejects)])
    assert run(monkeypatch, path, "--out", tmp_path / "page") == 0
    html = (tmp_path / "page" / "index.html").read_text()
    tags = re.findall(r"<[a-zA-Z/!][^>]*>", html)
    assert not any(re.match(r"<(script|img src=x)", tag) or " on" in tag for tag in tags)
    assert "{{ 7 * 7 }}" in html
    (link,) = re.findall(r'<a href="(\.\.[^"]*)"', html)
    assert link == "../javascript%3Aalert%281%29%20%23_rejects.csv"
    assert list(tmp_path.rglob("x")) == []  # nothing was run


def test_pages_of_the_same_store_are_the_same(store, tmp_path, monkeypatch):
    for name in ("one", "two"):
        assert run(monkeypatch, store, "--out", tmp_path / name) == 0
    for file in ("index.html", "table.csv", "summary.json", "figures/density.svg"):
        assert (tmp_path / "one" / file).read_bytes() == (tmp_path / "two" / file).read_bytes(), file


def test_density_holds_every_strip_of_its_split_where_it_looks(store):
    """Regression: yaw and pitch were exchanged; gaze was plotted instead of the head pose."""
    inspection = look(store)
    with drawing():
        figure = draw_density(inspection)
    panels = [axes for axes in figure.axes if axes.get_title("left")]

    def occupied(axes) -> tuple[np.ndarray, np.ndarray]:
        """Return the yaw and pitch at the centres of the cells that contain strips."""
        low, high, bottom, top = axes.images[0].get_extent()
        shares = axes.images[0].get_array().filled(0)
        rows, columns = np.nonzero(shares)
        return (
            low + (columns + 0.5) * (high - low) / shares.shape[1],
            bottom + (rows + 0.5) * (top - bottom) / shares.shape[0],
        )

    assert [axes.get_title("left") for axes in panels] == [
        f"{kind}, {split}: {count} strips" for kind in KINDS for split, count in (("train", 8), ("val", 4), ("test", 2))
    ]
    for axes in panels:
        assert float(axes.images[0].get_array().sum()) == pytest.approx(100)
    within = 2 + 1e-6  # half a cell's side
    yaw, pitch = occupied(panels[5])  # head pose, test: at (-30, 0)
    assert (np.abs(yaw + 30) <= within).all() and (np.abs(pitch) <= within).all()
    yaw, pitch = occupied(panels[0])  # gaze, train: pitches from 0 to 4
    assert (np.abs(yaw) <= within).all()
    assert abs(pitch.min()) <= within and abs(pitch.max() - 4) <= within and len(pitch) > 1


@pytest.mark.parametrize("people", [3, 300])
def test_bars_show_strips_and_rejects_of_every_person(tmp_path, people):
    with h5py.File(tmp_path / "many.h5", "w") as file:
        for i in range(people):
            group = file.create_group(f"{i:05d}")
            group["pixels"], group["labels"] = np.zeros((1 + i, 2, 8, 3), np.uint8), np.zeros((1 + i, 4), np.float32)
    rejects = [Reject("00001", f"{i}.jpg", "empty file") for i in range(7)]
    inspection = look(tmp_path / "many.h5", sidecar=tmp_path / "x.csv", rejects=rejects)
    with drawing():
        [axes] = draw_people(inspection).axes
    if people > 40:
        strips, rejected = (patch.get_data() for patch in axes.patches)
        assert strips.values.sum() == people * (people + 1) / 2
        assert (rejected.values - rejected.baseline).sum() == 7
    else:
        bars = [bar for container in axes.containers for bar in container]
        assert [bar.get_height() for bar in bars] == [3, 2, 1, 0, 7, 0]
        assert [bar.get_y() for bar in bars] == [0, 0, 0, 3, 2, 1]  # rejected frames are stacked on the strips


@pytest.mark.parametrize(("counts", "most", "expected"), [
    ((5, 3, 4, 2), 4, [("p01", 20), ("p02", 10), ("p03", 20), ("p04", 10)]),
    ((5, 3, 4, 2), 2, [("p01", 20), ("p04", 10)]),
    ((5, 0, 0, 2), 8, [("p01", 0), ("p01", 10), ("p01", 30), ("p01", 40), ("p04", 0), ("p04", 10)]),
])  # fmt: skip
def test_contact_sheet_spreads_over_people_and_their_strips(tmp_path, counts, most, expected):
    path = write_store(tmp_path / "data.h5", counts=counts)
    with StripStore(path) as strips:
        cells = pick_strips(strips, most)
    assert [(cell.person, cell.frame) for cell in cells] == expected
    assert all(cell.off_screen == (cell.frame == 10) for cell in cells)
    assert all((cell.pixels == 40 * (int(cell.person[1:]) - 1)).all() for cell in cells)


@pytest.mark.parametrize(("label", "side"), [((0.0, 0.4), "left"), ((0.0, -0.4), "right"), ((0.4, 0.0), "up")])
def test_arrows_point_where_eyes_look_in_the_picture(label, side):
    # Labels are the reversed gaze: a positive yaw is a gaze to the picture's left, a positive pitch one upwards.
    strip = np.zeros((64, 256, 3), np.uint8)
    with drawing():
        figure = draw_sheet([SheetStrip(strip, np.array([*label, 0.0, 0.0], np.float32), "p00", 3, True)])
    assert figure.axes[0].get_title("left") == "p00, frame 3, off the screen"
    arrow = figure.axes[0].texts[-1]
    x, y = np.subtract(arrow.xy, arrow.xyann)  # tip minus start, pixels, y down
    assert {"left": -x, "right": x, "up": -y}[side] > 20
    assert min(abs(x), abs(y)) < 1e-6


@pytest.mark.parametrize(("content", "sentence"), [
    (None, "no such file"),
    (b"x" * 3000, "not a readable HDF5 file"),
    ({}, "contains no people"),
    ({"Data/data": np.zeros((3, 3))}, "person Data: no pixels"),
    ({"p00/pixels": np.zeros((3, 4, 4), np.uint8), "p00/labels": np.zeros((3, 4))}, "(3, 4, 4), not uint8"),
])  # fmt: skip
def test_a_store_that_cannot_be_read_is_one_sentence(tmp_path, monkeypatch, capsys, content, sentence):
    path = tmp_path / "store.h5"
    if isinstance(content, bytes):
        path.write_bytes(content)
    elif content is not None:
        with h5py.File(path, "w") as file:
            for name, array in content.items():
                file[name] = array
    assert run(monkeypatch, path, "--out", tmp_path / "page") == 1
    message = capsys.readouterr().err
    assert message.startswith(f"faze inspect: {path}: ") and sentence in message and message.count("\n") == 1
    assert not (tmp_path / "page").exists()


def test_a_sidecar_that_cannot_be_read_is_one_sentence(store, tmp_path, monkeypatch, capsys):
    (tmp_path / "other.csv").write_text("tier,error\n")
    assert run(monkeypatch, store, "--rejects", tmp_path / "other.csv") == 1
    message = capsys.readouterr().err
    reason = "not a list of rejects; its first line is not person,file_name,reason"
    assert message.startswith(f"faze inspect: {tmp_path / 'other.csv'}: {reason}") and message.count("\n") == 1


def test_file_names_that_are_not_utf8_are_read(store):
    sidecar = store.with_name("data_rejects.csv")
    sidecar.write_bytes(b"person,file_name,reason\np01,p01/\xff\xfe.jpg,empty file\n")
    assert read_rejects(sidecar) == [Reject("p01", "p01/\ufffd\ufffd.jpg", "empty file")]


def test_a_million_strips_take_seconds_since_no_pixel_is_read(tmp_path, monkeypatch, capsys):
    """Regression: the pixels of every person were read to find their shape."""
    with h5py.File(tmp_path / "large.h5", "w") as file:
        for i in range(300):
            group = file.create_group(f"{i:05d}")
            pixels = group.create_dataset("pixels", (4000, 64, 256, 3), np.uint8, fill_time="never")
            pixels[0] = np.zeros((64, 256, 3), np.uint8)  # the rest takes no room
            group["labels"] = np.zeros((4000, 4), np.float32)
    read = []
    pixels = StripStore.pixels
    monkeypatch.setattr(StripStore, "pixels", lambda self, *which: read.append(which) or pixels(self, *which))
    began = time.monotonic()
    assert run(monkeypatch, tmp_path / "large.h5") == 0
    assert time.monotonic() - began < 20
    assert read == [("00000", 0)]  # one strip, for its size
    assert "1,200,000 of 256 × 64 px" in capsys.readouterr().out


def test_text_for_the_terminal_says_all_that_matters(store):
    sidecar = store.with_name("data_rejects.csv")
    text = describe(summarise(look(store, sidecar=sidecar, rejects=read_rejects(sidecar))))
    assert text.startswith("MPIIGaze, data.h5: 4 people\n")
    for line in (
        r"train +2 +8 +3 +4 +5",
        r"gaze pitch +0\.0 +0\.0 +1\.0 +3\.9 +4\.0",
        r"Labels: +all from the data set's own annotation",
        r"Gaze targets: +10 on the screen \(71\.4 %\), 4 off the screen \(28\.6 %\)",
        r"Devices: +camera 1 \(3 people\), camera 0 \(1 person\)",
        r"4 frames are rejected, 22\.2 % of .*; 2 people are left out .*\.",
        r"  3 frames of 2 people +eyes are outside the 1280 x 720 frame, at \(…, …\)",
        r"  2 entire people +no folder …",
        r".* data_rejects\.csv\.",
    ):
        assert re.search(f"^{line}$", text, re.MULTILINE), line


def test_a_page_takes_the_place_of_a_page_only(tmp_path, monkeypatch, capsys):
    """Regression: all files in the output folder were removed."""
    store = write_store(tmp_path / "data.h5")
    assert run(monkeypatch, store, "--out", tmp_path / "page") == 0
    assert run(monkeypatch, store, "--out", tmp_path / "page") == 0
    before = sorted(tmp_path.rglob("*"))
    assert run(monkeypatch, store, "--out", tmp_path) == 1
    assert "does not contain index.html and summary.json" in capsys.readouterr().err
    assert sorted(tmp_path.rglob("*")) == before
    (tmp_path / "empty").mkdir()
    assert run(monkeypatch, store, "--out", tmp_path / "empty") == 0


def test_a_name_with_dollars_is_a_name(tmp_path, monkeypatch):
    """Regression: matplotlib parsed the name as a formula and failed."""
    write_strips(
        tmp_path / "data.h5",
        "mine",
        [
            PersonStrips(
                "x$\\q$y", "train", ["0.jpg"], np.zeros((1, 64, 256, 3), np.uint8), np.zeros((1, 4), np.float32)
            )
        ],
    )
    assert run(monkeypatch, tmp_path / "data.h5", "--out", tmp_path / "page") == 0
    with (tmp_path / "page" / "table.csv").open(newline="") as file:
        assert [row["person"] for row in csv.DictReader(file)] == ["x$\\q$y"]


def test_pandas_is_not_imported() -> None:
    """Regression: a joined module imported it, and `faze inspect` took half a second longer."""
    code = "import sys, faze.stages.inspect; sys.exit('pandas' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
