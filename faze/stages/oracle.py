"""Rule `oracle`: rendered test people anew, with gaze and head pose of strip b and all else of strip a -> strips.

Strip n of a person is the n-th pair's (`faze.redirection.redirected`): what a perfect redirection would show.
"""

import concurrent.futures
from argparse import Namespace
from collections.abc import Iterator, Sequence

import numpy as np

from faze.base.command_line import CONFIG, OUTPUT_CACHE, argument, command, needed, threads
from faze.base.errors import UserError
from faze.base.locks import output_lock
from faze.base.output_cache import content, key_of, output_cache
from faze.base.process_pool import worker_processes
from faze.base.progress import Progress
from faze.config.data_parameters import RAW, Synthetic
from faze.config.stage_config import load
from faze.data.preparation.strip_maker import StripMaker
from faze.data.store.strip_writing import PersonStrips, write_strips
from faze.data.store.strips import StripStore
from faze.data.synthetic.anew import strips_anew
from faze.data.synthetic.compiled_layers import rounding_identity
from faze.data.synthetic.people import Role, cast, use_one_thread
from faze.redirection.draws import LEAST, chosen, draw_pairs


@command(
    __doc__,
    CONFIG,
    argument("--dataset", choices=RAW, required=True),
    needed("--data", "store of the rendered people's normalised strips"),
    threads("processes", default=1),
    needed("--out", "HDF5 of strips"),
    OUTPUT_CACHE,
)
def main(args: Namespace) -> None:
    """Render every test person's pairs."""
    config = load(args.config, "oracle")
    key = key_of("oracle", config.values, args.dataset, content(args.data), rounding_identity())
    with output_lock(args.out), output_cache(args.output_cache, key, [args.out]) as copied:
        if not copied:
            maker = StripMaker.of(config.preprocess, args.dataset)
            jobs = list(plan(args, config.redirect.seed, config.redirect.strips, config.synthetic))
            write_strips(args.out, args.dataset, render(jobs, config.synthetic, maker, args.threads))


def plan(args: Namespace, seed: int, most: int, synthetic: Synthetic) -> Iterator[tuple[Role, list[str], list[str]]]:
    """List each test person with the frames a and b of their pairs.

    Raises:
        UserError: the store does not name the frames of its strips, or holds nobody who was rendered.
    """
    roles = {role.person_id: role for role in cast(synthetic) if (role.dataset, role.split) == (args.dataset, "test")}
    found = False
    with StripStore(args.data) as strips:
        for person in strips.persons("test"):
            names = strips.file_names(person)
            if person not in roles or names is None or len(names) < LEAST:
                continue
            strips.check([person])
            rows, found = chosen(len(names), most), True
            pairs = draw_pairs(seed, len(rows))
            yield roles[person], [names[row] for row in rows[pairs.a]], [names[row] for row in rows[pairs.b]]
    if not found:
        raise UserError(f"{args.data}: holds no test person who was rendered and has {LEAST} strips")


def render(
    jobs: Sequence[tuple[Role, list[str], list[str]]], synthetic: Synthetic, maker: StripMaker, processes: int
) -> Iterator[PersonStrips]:
    """Render people side by side; they come in order."""
    progress, done = Progress("oracle", sum(len(job[1]) for job in jobs), "frames"), 0
    with worker_processes(min(processes, len(jobs)), use_one_thread) as pool:
        futures: list[concurrent.futures.Future] = [
            pool.submit(strips_anew, role, synthetic, maker, a, b) for role, a, b in jobs
        ]
        for (role, _, turned), future in zip(jobs, futures, strict=True):
            pixels, labels, rows = future.result()
            done += len(turned)
            progress(done)
            if rows:
                names = [turned[row] for row in rows]
                index = np.array(rows, np.int64)
                yield PersonStrips(role.person_id, "test", names, pixels, labels, frame_index=index)
