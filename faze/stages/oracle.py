"""Rule `oracle`: rendered test people -> strips rendered with gaze and head pose of strip b, all else of strip a.

The strips show the result of a perfect redirection (`faze.redirection.pairs`). The frame index is the index of the
pair.
"""

import concurrent.futures
import tempfile
from argparse import Namespace
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from faze.base.command_line import CONFIG, OUTPUT_CACHE, command, needed, threads
from faze.base.errors import UserError
from faze.base.files import named
from faze.base.locks import output_lock
from faze.base.output_cache import content, key_of, output_cache
from faze.base.process_pool import worker_processes
from faze.base.progress import Progress
from faze.config.parameters import Synthetic
from faze.config.stage_config import Resolved, load
from faze.data.preparation.strip_maker import StripMaker
from faze.data.readers.supplementary_reader import frame_of
from faze.data.store.layout import RENDERED
from faze.data.store.strips import PersonStrips, StripStore, write_strips
from faze.data.synthetic.compiled_layers import rounding_identity
from faze.data.synthetic.layouts import supplementary
from faze.data.synthetic.people import Role, cast, jpeg, renderer_of, sample_frames, use_one_thread
from faze.redirection.pairs import MIN_STRIPS, chosen, draw_targets


def render_target_strips(
    role: Role, synthetic: Synthetic, maker: StripMaker, rest: Sequence[str], turned: Sequence[str]
) -> tuple[NDArray[np.uint8], NDArray[np.float32], list[int]]:
    """Re-render frames of a person and normalise them.

    Args:
        role: the person.
        synthetic: the configuration that the person was rendered with.
        maker: makes strips from frames.
        rest: names of the N frames that provide room, light, lids, noise and sharpness.
        turned: names of the N frames that provide gaze, head pose, position and camera.

    Returns:
        strips (M, H, W, 3) RGB, their labels (M, 4), and their indices among the N pairs. Pairs are omitted if one of
        their frames does not exist or if no strip can be made.
    """
    frames = sample_frames(role, synthetic)
    row_of = {name: row for row, name in enumerate(frames.file_names)}
    known = [n for n, names in enumerate(zip(rest, turned, strict=True)) if all(name in row_of for name in names)]
    a, b = (np.array([row_of[names[n]] for n in known], np.int64) for names in (rest, turned))
    scene = replace(frames.scene[b], aperture=frames.scene.aperture[a])
    annotated = supplementary(replace(frames, scene=scene, file_names=[frames.file_names[row] for row in b]))
    renderer = renderer_of(role, frames, synthetic.seed)
    pixels = np.empty((len(known), maker.camera.height_px, maker.camera.width_px, 3), np.uint8)
    labels, reasons = np.empty((len(known), 4), np.float32), []
    with tempfile.TemporaryDirectory() as folder:  # strips are made of files
        path = Path(folder) / "frame.jpg"
        for row, chance in enumerate(a.tolist()):
            image = renderer.render(scene, row, int(frames.rooms[chance]), chance)
            with named(path):
                path.write_bytes(jpeg(frames, synthetic, image))
            here = slice(row, row + 1)
            frame = frame_of(annotated, row, path, person_id=role.person_id, split=role.split)
            reasons += maker.make([frame], pixels[here], labels[here])
    good = [row for row, reason in enumerate(reasons) if not reason]
    return pixels[good], labels[good], [known[row] for row in good]


@command(
    __doc__,
    CONFIG,
    needed("--data", "store of the rendered people's normalised strips"),
    threads("processes", default=1),
    needed("--out", "HDF5 of strips"),
    OUTPUT_CACHE,
)
def main(args: Namespace) -> None:
    """Render the pairs of every test person."""
    config = load(args.config, "oracle")
    key = key_of("oracle", config.values, content(args.data), rounding_identity())
    with output_lock(args.out), output_cache(args.output_cache, key, [args.out]) as copied:
        if not copied:
            maker = StripMaker.of(config.preprocess, config.dataset.layout)
            jobs = list(plan(args.data, config))
            people = render(jobs, config.synthetic, maker, args.threads)
            write_strips(args.out, config.dataset.name, people, pixel_source=RENDERED)


def plan(store: Path, config: Resolved) -> Iterator[tuple[Role, list[str], list[str]]]:
    """Yield each test person with the names of the frames a and b of each pair.

    Raises:
        UserError: the store does not contain the frames' names, or contains no rendered person.
    """
    of_test = (config.dataset.layout, "test")
    roles = {role.person_id: role for role in cast(config.synthetic) if (role.layout, role.split) == of_test}
    found = False
    with StripStore(store) as strips:
        for person in strips.persons("test"):
            names = strips.file_names(person)
            if person not in roles or names is None or len(names) < MIN_STRIPS:
                continue
            strips.check([person])
            rows, found = chosen(len(names), config.redirect.strips), True
            targets = rows[draw_targets(config.redirect.seed, len(rows))]
            yield roles[person], [names[row] for row in rows], [names[row] for row in targets]
    if not found:
        raise UserError(f"{store}: contains no rendered test person with {MIN_STRIPS} strips; run preprocess again")


def render(
    jobs: Sequence[tuple[Role, list[str], list[str]]], synthetic: Synthetic, maker: StripMaker, processes: int
) -> Iterator[PersonStrips]:
    """Render people in several processes, and yield them in order."""
    progress, done = Progress("oracle", sum(len(job[1]) for job in jobs), "frames"), 0
    with worker_processes(min(processes, len(jobs)), use_one_thread) as pool:
        futures: list[concurrent.futures.Future] = [
            pool.submit(render_target_strips, role, synthetic, maker, a, b) for role, a, b in jobs
        ]
        for (role, _, turned), future in zip(jobs, futures, strict=True):
            pixels, labels, rows = future.result()
            done += len(turned)
            progress(done)
            if rows:
                names = [turned[row] for row in rows]
                index = np.array(rows, np.int64)
                yield PersonStrips(role.person_id, "test", names, pixels, labels, frame_index=index)
