"""Rule `synthesise`: synthetic people -> raw camera frames in the data sets' own layouts, and the truth beside them."""

import contextlib
from argparse import Namespace

from faze.base.command_line import CONFIG, OUTPUT_CACHE, command, needed, threads
from faze.base.files import whole_folder
from faze.base.locks import output_lock
from faze.base.output_cache import key_of, output_cache
from faze.config.data_parameters import RAW
from faze.config.stage_config import load
from faze.data.store.supplementary import write_supplementary, write_truth
from faze.data.synthetic.compiled_layers import rounding_identity
from faze.data.synthetic.faults import check_frames, plant, truncate, write_list
from faze.data.synthetic.people import annotation_of, render_everybody


@command(
    __doc__,
    CONFIG,
    threads("people rendered at the same time", default=1),
    needed("--mpiifacegaze", "folder to write: laptop users"),
    needed("--gazecapture", "folder to write: phone and tablet users"),
    needed("--mpiifacegaze-supplementary", "HDF5 to write"),
    needed("--gazecapture-supplementary", "HDF5 to write"),
    needed("--truth", "HDF5 to write: the bias-free truth of everybody"),
    OUTPUT_CACHE,
)
def main(args: Namespace) -> None:
    """Render everybody."""
    config = load(args.config, "synthesise")
    synthetic = config.synthetic
    check_frames(synthetic)
    folders = {dataset: getattr(args, layout) for dataset, layout in RAW.items()}
    files = {dataset: getattr(args, f"{layout}_supplementary") for dataset, layout in RAW.items()}
    faults = args.truth.with_name("faults.csv")
    with contextlib.ExitStack() as outputs:
        for dataset, folder in folders.items():
            outputs.enter_context(output_lock(folder, files[dataset], faults, args.truth))
        key = key_of("synthesise", config.values, rounding_identity())
        everything = [*folders.values(), *files.values(), *([faults] if synthetic.faults else []), args.truth]
        if not synthetic.faults:
            faults.unlink(missing_ok=True)
        if outputs.enter_context(output_cache(args.output_cache, key, everything)):
            return
        roots = {dataset: outputs.enter_context(whole_folder(folder)) for dataset, folder in folders.items()}
        people = render_everybody(synthetic, roots, args.threads)
        annotation = {dataset: annotation_of(people, dataset) for dataset in roots}
        planted = plant(synthetic.faults, roots, annotation)
        for dataset, path in files.items():
            write_supplementary(path, annotation[dataset].items())
        write_truth(args.truth, ((person.role.person_id, person.truth) for person in people))
        if "truncated_hdf5" in synthetic.faults:
            planted += truncate(files)
        write_list(faults, planted)
