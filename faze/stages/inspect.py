"""Rule `inspect`, also a user command: describe a store of eye strips, as text and as a page, or a manifest.

faze inspect results/default/data/mpiigaze.h5
faze inspect STORE --verify --out FOLDER       verifies all checksums, and writes a page with figures
faze inspect frames.csv                        checks a manifest before preprocessing; exit code 1 if it has faults

It reads faze's stores, those of the released code (only pixels and labels), and manifests (.csv, .tsv, .parquet).
"""

import os
from argparse import Namespace
from pathlib import Path
from urllib.parse import quote

from faze.base.command_line import argument, command, printable
from faze.base.errors import UserError
from faze.base.files import check_replaceable, whole_folder
from faze.base.locks import output_lock
from faze.base.progress import Progress
from faze.data.inspection import Inspection, inspect, summarise
from faze.data.manifest_inspection import inspect_manifest
from faze.data.readers.manifest import SUFFIXES
from faze.data.rejects import read_rejects, sidecar_of
from faze.data.store.strips import StripStore
from faze.data.store.untrusted_file import check_untrusted
from faze.report.dataset_figures import pick_strips
from faze.report.dataset_page import PAGE, describe, write_page
from faze.report.manifest_text import describe_manifest


@command(
    __doc__,
    argument("store", type=Path, help="HDF5 of strips, or a manifest of frames"),
    argument("--rejects", type=Path, help="CSV of the rejected frames (default: STORE_rejects.csv, if any)"),
    argument("--verify", action="store_true", help="check every checksum; reads all pixels"),
    argument("--out", type=Path, help="folder of the page to write"),
    argument("--supplementary", type=Path, help="HDF5 that `faze landmarks` wrote for the manifest"),
)
def main(args: Namespace) -> None:
    """Describe the store or manifest, and write the store's page if --out is given."""
    if args.store.suffix.lower() in SUFFIXES:
        look_at_manifest(args)
        return
    if args.supplementary:
        raise UserError("--supplementary belongs to a manifest; a store contains its labels")
    if args.out:
        check_replaceable(args.out, PAGE)
    check_untrusted(args.store, "strips")
    with StripStore(args.store) as strips:
        inspection = look(strips, args)
        print(describe(summarise(inspection)))
        if args.out:
            with output_lock(args.out), whole_folder(args.out) as folder:
                sidecar = os.path.relpath(inspection.sidecar, args.out) if inspection.sidecar else ""
                write_page(inspection, pick_strips(strips), folder, quote(sidecar, errors="surrogateescape"))
            print(f"\ninspect: open {args.out / 'index.html'}")
    damaged = [person.person_id for person in inspection.people if person.intact is False]
    if damaged:
        raise UserError(
            f"{args.store}: the strips of {', '.join(damaged)} are corrupt (checksum mismatch): run preprocess again"
        )


def look_at_manifest(args: Namespace) -> None:
    """Describe a manifest.

    Raises:
        UserError: It has lines that cannot be used.
    """
    if args.out or args.rejects or args.verify:
        raise UserError("--out, --rejects and --verify describe a store, not a manifest")
    found = inspect_manifest(args.store, args.supplementary)
    print(printable(describe_manifest(found)))
    if rejects := sum(len(person.rejects) for person in found.people):
        raise UserError(f"{args.store}: {rejects} of {found.lines} lines cannot be used: correct or remove them")


def look(strips: StripStore, args: Namespace) -> Inspection:
    """Inspect an open store with the given list of rejects, or with the list next to the store."""
    beside = sidecar_of(args.store)
    sidecar = args.rejects or (beside if beside.is_file() else None)
    rejects = read_rejects(sidecar) if sidecar else []
    progress = Progress("verify", len(strips.persons()), "people") if args.verify else lambda done: None
    return inspect(strips, args.store, sidecar, rejects, args.verify, progress)
