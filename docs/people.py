"""Draw docs/explanation/people.png, faces of simple and measured people, and people_spread.png, how they differ.

python docs/people.py
"""

import dataclasses
from collections.abc import Callable
from pathlib import Path

import cv2
import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray
from PIL import Image

from faze.config.parameters import Synthetic
from faze.config.yaml_files import read_yaml
from faze.data.synthetic.people import Role, render_frames, sample_frames
from faze.data.synthetic.person import SyntheticPerson, sample_measured_person, sample_person

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / "docs" / "explanation"
KINDS = ("simple", "measured")
SEEDS, FRAMES, DRAWN = 6, 2, 3000
CELL = (300, 170)  # width and height of a face, px
COLORS = {"simple": "#9aa5b1", "measured": "#2f6fb0"}


def faces(kind: str) -> NDArray[np.uint8]:
    """Show the eyes of phone users: a row of frames for each seed, two seeds in a line."""
    values = read_yaml(ROOT / "config" / "config.yaml")["synthetic"]
    synthetic = dataclasses.replace(Synthetic(**values), people=kind, frames_per_person=FRAMES)
    lines = []
    for index in range(SEEDS):
        role = Role("gazecapture" if index % 2 else "mpiifacegaze", "test", index)
        frames = sample_frames(role, synthetic)
        places = zip(frames.cameras, frames.scene.origin_mm, strict=True)
        images = zip(render_frames(role, frames, synthetic.seed), places, strict=True)
        lines.append(np.hstack([around_eyes(image, *place) for image, place in images]))
    return np.vstack(lines)


def around_eyes(image: NDArray[np.uint8], camera: object, origin_mm: NDArray) -> NDArray[np.uint8]:
    """Cut the eyes out of a frame."""
    x, y = camera.project(origin_mm).astype(int)
    half = int(70 * camera.focal_px[0] / origin_mm[2])
    high = half * CELL[1] // CELL[0]
    image = cv2.copyMakeBorder(image, high, high, half, half, cv2.BORDER_CONSTANT)
    return cv2.resize(image[y : y + 2 * high, x : x + 2 * half], CELL, interpolation=cv2.INTER_AREA)


def draw_faces() -> None:
    """Put both kinds side by side."""
    sheets = [faces(kind) for kind in KINDS]
    height, width = sheets[0].shape[:2]
    figure = Figure(figsize=(2 * width / 130, height / 130 + 0.3), layout="constrained")
    for axes, kind, sheet in zip(figure.subplots(1, 2), KINDS, sheets, strict=True):
        axes.imshow(sheet)
        axes.set_title(kind, fontsize=11)
        axes.set_axis_off()
    figure.savefig(FOLDER / "people.png", dpi=110)
    with Image.open(FOLDER / "people.png") as whole:  # a palette: a third of the bytes
        whole.convert("RGB").quantize(160).save(FOLDER / "people.png", optimize=True)


def power(person: SyntheticPerson) -> float:
    """Take the power of a person's lenses, dioptres; none: not a number."""
    return float(person.spectacles.power_dioptres.mean()) if person.spectacles else np.nan


SHOWN: dict[str, Callable[[SyntheticPerson], float]] = {
    "eyes apart, mm": lambda p: p.eye_centres_mm[1, 0] - p.eye_centres_mm[0, 0],
    "radius of the eye, mm": lambda p: p.eyeball_mm,
    "radius of the iris, mm": lambda p: p.iris_mm,
    "radius of the pupil, mm": lambda p: p.pupil_mm,
    "kappa toward the nose, deg": lambda p: np.degrees(p.kappa_rad[1, 1]),
    "kappa up, deg": lambda p: np.degrees(p.kappa_rad[1, 0]),
    "kappa between the eyes, deg": lambda p: np.degrees(p.kappa_rad[1, 1] + p.kappa_rad[0, 1]),
    "upper lid above the pupil, mm": lambda p: p.lids[0].upper_mm,
    "lower lid below it, mm": lambda p: p.lids[0].lower_mm,
    "opening between the eyes, mm": lambda p: p.lids[1].upper_mm - p.lids[0].upper_mm,
    "lenses (of 41 %), dioptres": power,
    "bias of the annotation, deg": lambda p: np.degrees(p.gaze_bias_rad[1]),
}


def draw_spread() -> None:
    """Draw histograms of both kinds."""
    drawn = {
        "simple": [sample_person(np.random.default_rng(k), 2.0, 1.5) for k in range(DRAWN)],
        "measured": [sample_measured_person(np.random.default_rng(k)) for k in range(DRAWN)],
    }
    figure = Figure(figsize=(10, 6.2), layout="constrained")
    for axes, (name, number) in zip(figure.subplots(3, 4).flat, SHOWN.items(), strict=True):
        found = {kind: np.array([number(person) for person in people]) for kind, people in drawn.items()}
        found = {kind: values[np.isfinite(values)] for kind, values in found.items()}
        everything = np.concatenate(list(found.values()))
        bins = np.linspace(everything.min(), everything.max(), 41)
        for kind, values in found.items():
            if not len(values):
                continue
            if np.ptp(values) < 1e-9:
                axes.axvline(values[0], color=COLORS[kind], linewidth=2)
            else:
                axes.hist(values, bins, density=True, color=COLORS[kind], alpha=0.6)
        axes.set_title(name, fontsize=9)
        axes.set_yticks([])
        axes.tick_params(labelsize=8)
    handles = [figure.axes[0].plot([], [], color=color, linewidth=5, alpha=0.7)[0] for color in COLORS.values()]
    figure.legend(handles, COLORS, loc="outside lower center", ncols=2, frameon=False, fontsize=9)
    figure.savefig(FOLDER / "people_spread.png", dpi=110, pil_kwargs={"optimize": True})


if __name__ == "__main__":
    draw_faces()
    draw_spread()
