"""Render all people: list them, and write each person's frames and annotation to a folder."""

from collections.abc import Iterator
from pathlib import Path

import cv2
import joblib
import numpy as np
from numpy.typing import NDArray

from faze.base.progress import Progress
from faze.config.parameters import Synthetic
from faze.data.synthetic.kernel import load_kernel
from faze.data.synthetic.layouts import PersonFrames, name_mpiifacegaze, write_gazecapture, write_mpiifacegaze
from faze.data.synthetic.person import ANATOMY, FILES, SCENE, Role, sample_person
from faze.data.synthetic.render import ROOMS, Renderer
from faze.data.synthetic.scene import sample_scene
from faze.data.synthetic.setting import sample_device, sample_laptop
from faze.data.worker_processes import worker_processes


def cast(synthetic: Synthetic) -> list[Role]:
    """List all people to be rendered."""
    numbers = {
        ("mpiifacegaze", "test"): synthetic.laptop_people,
        ("gazecapture", "train"): synthetic.phone_train_people,
        ("gazecapture", "val"): synthetic.phone_val_people,
        ("gazecapture", "test"): synthetic.phone_test_people,
    }
    return [Role(layout, split, index) for (layout, split), people in numbers.items() for index in range(people)]


def frames_of(role: Role, synthetic: Synthetic) -> int:
    """Return the number of frames to render for a person."""
    of_train = synthetic.phone_train_frames if role.split == "train" else None
    return of_train or synthetic.frames_per_person


def sample_frames(role: Role, synthetic: Synthetic) -> PersonFrames:
    """Sample a person and their frames."""
    laptop, seed = role.layout == "mpiifacegaze", synthetic.seed
    person, rng = sample_person(role.random(seed, ANATOMY)), role.random(seed, SCENE)
    setting = sample_laptop(rng) if laptop else sample_device(rng)
    scene = sample_scene(rng, person, setting, frames_of(role, synthetic))
    rng = role.random(seed, FILES)
    rooms = rng.integers(ROOMS, size=len(scene))
    if laptop:
        names = name_mpiifacegaze(rng, role.person_id, rooms)
    else:
        names = [f"{role.person_id}/frames/{row:05d}.jpg" for row in range(len(scene))]
    return PersonFrames(role, person, setting, scene, rooms, names)


def render_frames(frames: PersonFrames, seed: int) -> Iterator[NDArray[np.uint8]]:
    """Yield a person's rendered frames in order, each (H, W, 3) uint8 RGB."""
    renderer = Renderer(frames, seed)
    return (renderer.render(row) for row in range(len(frames.scene)))


def jpeg(frames: PersonFrames, image: NDArray[np.uint8]) -> bytes:
    """Encode an RGB frame (H, W, 3) as a JPEG, at the quality of the person's camera."""
    quality = [cv2.IMWRITE_JPEG_QUALITY, frames.setting.jpeg_quality]
    _, data = cv2.imencode(".jpg", cv2.cvtColor(image, cv2.COLOR_RGB2BGR), quality)
    return data.tobytes()


def write_person(role: Role, synthetic: Synthetic, root: Path) -> PersonFrames:
    """Render a person's frames into a data set's folder, and write the annotation there in the data set's format."""
    cv2.setNumThreads(1)
    frames = sample_frames(role, synthetic)
    for name, image in zip(frames.file_names, render_frames(frames, synthetic.seed), strict=True):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(jpeg(frames, image))
    if role.layout == "mpiifacegaze":
        write_mpiifacegaze(root, frames, role.random(synthetic.seed, FILES, 1))
    else:
        write_gazecapture(root, frames)
    return frames


def render_everybody(synthetic: Synthetic, roots: dict[str, Path], threads: int) -> list[PersonFrames]:
    """Render all people into the folders of their layouts; the files do not depend on the number of processes."""
    load_kernel()  # so that a missing kernel is reported before any process starts
    roles = [role for role in cast(synthetic) if role.layout in roots]
    progress, done = Progress("synthesise", sum(frames_of(role, synthetic) for role in roles), "frames"), 0
    frames = []
    with worker_processes(min(threads, len(roles)), return_as="generator") as parallel:
        # Laptop users, whose frames are the largest, come first, so that all processes end at about the same time.
        jobs = (joblib.delayed(write_person)(role, synthetic, roots[role.layout]) for role in roles)
        for person in parallel(jobs):
            frames.append(person)
            done += len(person.scene)
            progress(done)
    return frames
