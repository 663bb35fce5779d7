"""Camera frames of rendered people, in files as large as real ones, for benchmarks of frame readers."""

import dataclasses
import os
from collections.abc import Collection, Iterator
from functools import partial
from pathlib import Path

import cv2
import numpy as np
from numpy.typing import NDArray

from faze.base.process_pool import worker_processes
from faze.config.check import build
from faze.config.parameters import Synthetic
from faze.config.yaml_files import read_yaml
from faze.data.store.supplementary import Supplementary, read_supplementary, write_supplementary
from faze.data.synthetic.layouts import supplementary
from faze.data.synthetic.people import Role, render_frames, sample_frames, use_one_thread

ROOT = Path(__file__).resolve().parents[1]
QUALITY = 90
SIZE_BYTES = 153_000  # of the 1280 x 720 frames that the released procedure was measured on


def encode(image: NDArray[np.uint8], grain: NDArray, strength: float) -> bytes:
    """Encode an RGB frame as JPEG with sensor noise, without which it would be far smaller than a real one."""
    grainy = np.clip(image[..., ::-1] + strength * grain, 0, 255).astype(np.uint8)
    return cv2.imencode(".jpg", grainy, [cv2.IMWRITE_JPEG_QUALITY, QUALITY])[1].tobytes()


def grain_of(shape: tuple[int, ...], seed: int) -> NDArray:
    """Return grain (H, W, 3) of unit variance, one or two pixels wide, as a camera's own processing leaves it."""
    noise = cv2.GaussianBlur(np.random.default_rng(seed).normal(size=shape), (0, 0), 1.0)
    return noise / noise.std()


def fitting_strength(image: NDArray[np.uint8], grain: NDArray) -> float:
    """Return the grain's strength, in grey levels, that makes the JPEG SIZE_BYTES large; 0 if it is larger without."""
    low, high = 0.0, 40.0
    for _ in range(8):
        middle = (low + high) / 2
        low, high = (middle, high) if len(encode(image, grain, middle)) < SIZE_BYTES else (low, middle)
    return low


def write_person(index: int, *, synthetic: Synthetic, raw: Path) -> tuple[str, Supplementary]:
    """Render one laptop user's frames into a raw folder."""
    role = Role("mpiifacegaze", "test", index)
    frames, strength = sample_frames(role, synthetic), None
    for number, image in enumerate(render_frames(role, frames, synthetic.seed)):
        grain = grain_of(image.shape, 1000 * index + number)
        if strength is None:
            strength = fitting_strength(image, grain)
        path = raw / frames.file_names[number]
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(encode(image, grain, strength))
    return role.person_id, supplementary(frames)


def render(folder: Path, people: int, frames: int) -> None:
    """Write folder/raw and folder/supplementary.h5, unless they exist."""
    if (folder / "supplementary.h5").exists():
        return
    values = read_yaml(ROOT / "config" / "config.yaml")["synthetic"]
    synthetic = dataclasses.replace(build(Synthetic, values), frames_per_person=frames)
    with worker_processes(os.cpu_count() or 1, use_one_thread) as pool:
        everybody = list(pool.map(partial(write_person, synthetic=synthetic, raw=folder / "raw"), range(people)))
    write_supplementary(folder / "supplementary.h5", everybody)


def multiply(source: Path, folder: Path, people: Collection[str], frames: int) -> None:
    """Make more frames for the same people: hard links to the same files under other names, with their annotation."""

    def person(name: str, count: int) -> Supplementary:
        entries = read_supplementary(source / "supplementary.h5", name)
        rows = np.arange(count) % len(entries.file_names)
        names = [f"{name}/day01/{number:06d}.jpg" for number in range(count)]
        (folder / "raw" / name / "day01").mkdir(parents=True)
        for row, link in zip(rows, names, strict=True):
            os.link(source / "raw" / entries.file_names[row], folder / "raw" / link)
        arrays = {field: value[rows] for field, value in vars(entries).items() if isinstance(value, np.ndarray)}
        return dataclasses.replace(entries, file_names=names, **arrays)

    def everybody() -> Iterator[tuple[str, Supplementary]]:
        for index, name in enumerate(people):
            yield name, person(name, frames * (index + 1) // len(people) - frames * index // len(people))

    write_supplementary(folder / "supplementary.h5", everybody())
