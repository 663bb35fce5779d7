"""Rule `synthesise`: synthetic people -> raw camera frames in the data sets' own layouts, and the truth about them.

Only the data sets whose folders are given are rendered; the frames of one do not depend on the other.
"""

import contextlib
from argparse import Namespace
from pathlib import Path

from faze.base.command_line import CONFIG, OUTPUT_CACHE, argument, command, needed, threads
from faze.base.errors import UserError
from faze.base.files import whole_folder
from faze.base.locks import output_lock
from faze.base.output_cache import key_of, output_cache
from faze.config.data_parameters import RAW
from faze.config.stage_config import load
from faze.data.readers import RENDERED_MARK
from faze.data.store.supplementary import write_supplementary, write_truth
from faze.data.synthetic.compiled_layers import rounding_identity
from faze.data.synthetic.faults import check_frames, plant, truncate, write_list
from faze.data.synthetic.people import annotation_of, render_everybody


@command(
    __doc__,
    CONFIG,
    threads("people rendered at the same time", default=1),
    argument("--mpiifacegaze", type=Path, help="folder to write: laptop users"),
    argument("--mpiifacegaze-supplementary", type=Path, help="HDF5 to write, with this folder"),
    argument("--gazecapture", type=Path, help="folder to write: phone and tablet users"),
    argument("--gazecapture-supplementary", type=Path, help="HDF5 to write, with this folder"),
    needed("--truth", "HDF5 to write: the bias-free truth about everybody"),
    OUTPUT_CACHE,
)
def main(args: Namespace) -> None:
    """Render everybody."""
    config = load(args.config, "synthesise")
    synthetic = config.synthetic
    check_frames(synthetic)
    folders, files = choose_outputs(args)
    faults = args.truth.with_name("faults.csv")
    with contextlib.ExitStack() as outputs:
        for dataset, folder in folders.items():
            outputs.enter_context(output_lock(folder, files[dataset], faults, args.truth))
        key = key_of("synthesise", config.values, rounding_identity(), sorted(folders))
        everything = [*folders.values(), *files.values(), *([faults] if synthetic.faults else []), args.truth]
        if not synthetic.faults:
            faults.unlink(missing_ok=True)
        if outputs.enter_context(output_cache(args.output_cache, key, everything)):
            return
        roots = {dataset: outputs.enter_context(whole_folder(folder)) for dataset, folder in folders.items()}
        for root in roots.values():
            (root / RENDERED_MARK).write_text("No photographs: faze rendered the people in this folder.\n")
        people = render_everybody(synthetic, roots, args.threads)
        annotation = {dataset: annotation_of(people, dataset) for dataset in roots}
        planted = plant(synthetic.faults, roots, annotation)
        for dataset, path in files.items():
            write_supplementary(path, annotation[dataset].items())
        write_truth(args.truth, ((person.role.person_id, person.truth) for person in people))
        if "truncated_hdf5" in synthetic.faults:
            planted += truncate(files)
        write_list(faults, planted)


def choose_outputs(args: Namespace) -> tuple[dict[str, Path], dict[str, Path]]:
    """Return folder and supplementary file of each data set to render.

    Raises:
        UserError: There is none, or only one of the two is given.
    """
    folders = {dataset: folder for dataset, layout in RAW.items() if (folder := getattr(args, layout))}
    files = {dataset: path for dataset, layout in RAW.items() if (path := getattr(args, f"{layout}_supplementary"))}
    if not folders or folders.keys() != files.keys():
        raise UserError("give --mpiifacegaze, --gazecapture or both, each with its --...-supplementary")
    return folders, files
