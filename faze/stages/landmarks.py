"""Rule `landmarks`: raw GazeCapture or a manifest -> a supplementary annotation with estimated head poses.

For GazeCapture, the camera is estimated too.

MediaPipe may be in a separate environment (envs/landmarks.yaml). A killed run resumes at the first unfinished
recording.
"""

import functools
import shutil
import sys
from argparse import Namespace
from collections import Counter
from pathlib import Path

from faze.base.command_line import argument, command, needed, threads
from faze.base.errors import UserError
from faze.base.locks import output_lock
from faze.data.landmarks import gazecapture, manifest
from faze.data.landmarks.detector import open_detector
from faze.data.landmarks.manifest import read_lines
from faze.data.landmarks.parts import annotate_everybody, identity_of, read_parts
from faze.data.preparation.shards import stamp_of
from faze.data.readers.gazecapture import list_recordings
from faze.data.store.supplementary import write_supplementary


@command(
    __doc__,
    needed("--raw", "folder of GazeCapture, with 00002/frames ..., or a manifest"),
    needed("--out", "HDF5 to write, in the layout of FAZE's supplementary file"),
    argument("--model", type=Path, help="MediaPipe Face Landmarker file; default: the mesh in MediaPipe"),
    threads("processes", default=1),
)
def main(args: Namespace) -> None:
    """Annotate every recording or person."""
    of_manifest = args.raw.is_file()
    people = read_lines(args.raw).persons() if of_manifest else list_recordings(args.raw)
    if not people:
        raise UserError(
            f"{args.raw}: contains no folder 00002, ...; set the path of this data set to the folder that does"
        )
    with open_detector(args.model):
        pass  # fails early if something is missing
    folder = args.out.with_name(f"{args.out.stem}.{identity_of(args.raw, args.model)}.parts")
    with output_lock(args.out):
        for old in set(args.out.parent.glob(f"{args.out.stem}.*.parts")) - {folder}:
            print(f"{old}: discarding recordings annotated with other data, code or model", file=sys.stderr)
            shutil.rmtree(old)
        folder.mkdir(parents=True, exist_ok=True)
        stamps = {person: stamp_of(args.raw.parent if of_manifest else args.raw / person) for person in people}
        parts = {person: folder / f"{person}.{stamp}.h5" for person, stamp in stamps.items()}
        annotate = manifest.annotate if of_manifest else gazecapture.annotate
        annotate_everybody(functools.partial(annotate, args.raw), parts, args.model, args.threads)
        counts: Counter[str] = Counter()
        try:
            write_supplementary(args.out, read_parts(parts, counts))
        except (
            UserError
        ):  # the annotation is useless; after an OSError, such as a full disk, the next run reuses the parts
            shutil.rmtree(folder)
            raise
        shutil.rmtree(folder)
    print(
        f"landmarks: {counts['with']} frames with a label, {counts['without']} entries without; "
        f"{'head poses' if of_manifest else 'head pose and camera'} are estimated"
    )
