"""Rule `synthesise`: synthetic people -> raw camera frames in the data sets' own layouts, and their ground truth.

A data set is rendered only if its folder is given; its frames do not depend on those of the other data set.
"""

import contextlib
from argparse import Namespace
from pathlib import Path

from faze.base.command_line import CONFIG, OUTPUT_CACHE, argument, command, needed, threads
from faze.base.errors import UserError
from faze.base.files import whole_folder
from faze.base.locks import output_lock
from faze.base.output_cache import key_of, output_cache
from faze.config.parameters import RENDERED_LAYOUTS
from faze.config.stage_config import load
from faze.data.readers import RENDERED_MARK
from faze.data.store.supplementary import write_supplementary, write_truth
from faze.data.synthetic.compiled_layers import rounding_identity
from faze.data.synthetic.people import annotation_of, render_everybody


@command(
    __doc__,
    CONFIG,
    threads("number of people to render at the same time", default=1),
    argument("--mpiifacegaze", type=Path, help="folder for the laptop users"),
    argument("--mpiifacegaze-supplementary", type=Path, help="supplementary HDF5 for this folder"),
    argument("--gazecapture", type=Path, help="folder for the phone and tablet users"),
    argument("--gazecapture-supplementary", type=Path, help="supplementary HDF5 for this folder"),
    needed("--truth", "HDF5 for everyone's ground truth without biases"),
    OUTPUT_CACHE,
)
def main(args: Namespace) -> None:
    """Render all people."""
    config = load(args.config, "synthesise")
    folders, files = choose_outputs(args)
    with contextlib.ExitStack() as outputs:
        for layout, folder in folders.items():
            outputs.enter_context(output_lock(folder, files[layout], args.truth))
        key = key_of("synthesise", config.values, rounding_identity(), sorted(folders))
        everything = [*folders.values(), *files.values(), args.truth]
        if outputs.enter_context(output_cache(args.output_cache, key, everything)):
            return
        roots = {layout: outputs.enter_context(whole_folder(folder)) for layout, folder in folders.items()}
        for root in roots.values():
            (root / RENDERED_MARK).write_text("No photographs: faze rendered the people in this folder.\n")
        people = render_everybody(config.synthetic, roots, args.threads)
        for layout, path in files.items():
            write_supplementary(path, annotation_of(people, layout).items())
        write_truth(args.truth, ((person.role.person_id, person.truth) for person in people))


def choose_outputs(args: Namespace) -> tuple[dict[str, Path], dict[str, Path]]:
    """Return the folder and the supplementary file of each layout to render.

    Raises:
        UserError: No layout is given, or only one of its two paths.
    """
    folders = {layout: folder for layout in RENDERED_LAYOUTS if (folder := getattr(args, layout))}
    files = {layout: path for layout in RENDERED_LAYOUTS if (path := getattr(args, f"{layout}_supplementary"))}
    if not folders or folders.keys() != files.keys():
        raise UserError("pass --mpiifacegaze, --gazecapture or both, each with its --...-supplementary")
    return folders, files
