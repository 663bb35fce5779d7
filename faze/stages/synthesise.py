"""Rule `synthesise`: synthetic people -> raw camera frames in the data sets' own layouts, and the truth beside them."""

import argparse
import contextlib
import sys
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import as_completed
from pathlib import Path

from faze.base.command_line import Parser, one_sentence
from faze.base.files import whole_file, whole_folder
from faze.base.output_lock import sole_writer
from faze.base.process_pool import worker_processes
from faze.base.progress import Progress
from faze.config.data_parameters import Synthetic
from faze.config.stage_config import load
from faze.data.store.supplementary import Supplementary, write_supplementary, write_truth
from faze.data.synthetic.faults import Planted, plant, truncate, write_list
from faze.data.synthetic.people import PersonAnnotation, cast, use_one_thread, write_person


def parse() -> argparse.Namespace:
    """Read the command line."""
    parser = Parser(__doc__)
    parser.add_config()
    parser.add_threads("people rendered at the same time", default=1)
    parser.add_argument("--mpiifacegaze", type=Path, required=True, help="folder to write: laptop users")
    parser.add_argument("--gazecapture", type=Path, required=True, help="folder to write: phone and tablet users")
    parser.add_argument("--mpiifacegaze-supplementary", type=Path, required=True, help="HDF5 to write")
    parser.add_argument("--gazecapture-supplementary", type=Path, required=True, help="HDF5 to write")
    parser.add_argument("--truth", type=Path, required=True, help="HDF5 to write: the bias-free truth of everybody")
    return parser.parse_args()


@one_sentence
def main() -> None:
    """Render everybody."""
    args = parse()
    synthetic = load(args.config, "synthesise").synthetic
    with contextlib.ExitStack() as outputs:
        for folder in (args.mpiifacegaze, args.gazecapture):
            outputs.enter_context(sole_writer(folder))
        roots = {
            "mpiifacegaze": outputs.enter_context(whole_folder(args.mpiifacegaze)),
            "gazecapture": outputs.enter_context(whole_folder(args.gazecapture)),
        }
        people = render_everybody(synthetic, roots, args.threads)
        annotation = {dataset: dict(supplementary_of(people, dataset)) for dataset in roots}
        planted = plant(synthetic.faults, roots, annotation)
        write_supplementary(args.mpiifacegaze_supplementary, annotation["mpiifacegaze"].items())
        write_supplementary(args.gazecapture_supplementary, annotation["gazecapture"].items())
        write_truth(args.truth, ((person.role.person_id, person.truth) for person in people))
        if "truncated_hdf5" in synthetic.faults:
            files = {"mpiigaze": args.mpiifacegaze_supplementary, "gazecapture": args.gazecapture_supplementary}
            planted += truncate(files.items())
        list_faults(args.truth.with_name("faults.csv"), planted)


def list_faults(path: Path, planted: Sequence[Planted]) -> None:
    """Write what was planted and what must come of it; no file where nothing was."""
    if planted:
        with whole_file(path) as temporary:
            write_list(temporary, planted)
    else:
        path.unlink(missing_ok=True)


def render_everybody(synthetic: Synthetic, roots: dict[str, Path], threads: int) -> list[PersonAnnotation]:
    """Write everybody's frames and annotation, several people at a time; the files do not depend on how many."""
    roles = list(cast(synthetic))
    progress = Progress("synthesise", len(roles) * synthetic.frames_per_person, "frames")
    with worker_processes(min(threads, len(roles)), use_one_thread) as pool:
        # Laptop users, whose frames are the largest, come first: no process is left alone with them at the end.
        futures = [pool.submit(write_person, role, synthetic, roots[role.dataset]) for role in roles]
        for done, future in enumerate(as_completed(futures), start=1):
            future.result()
            progress(done * synthetic.frames_per_person)
        return [future.result() for future in futures]


def supplementary_of(people: Iterable[PersonAnnotation], dataset: str) -> Iterator[tuple[str, Supplementary]]:
    """FAZE's annotation of one data set's people."""
    for person in people:
        if person.role.dataset == dataset:
            yield person.role.person_id, Supplementary(file_names=person.file_names, **person.supplementary)


if __name__ == "__main__":
    sys.exit(main())
