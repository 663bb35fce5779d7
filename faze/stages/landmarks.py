"""Rule `landmarks`: raw GazeCapture or a manifest -> a supplementary annotation with estimated head poses.

For GazeCapture, the camera is estimated too.

MediaPipe may be in a separate environment (envs/landmarks.yaml). A killed run resumes at the first unfinished
recording.
"""

import functools
import shutil
import sys
from collections import Counter
from pathlib import Path

from faze.base.errors import UserError
from faze.data.landmarks import gazecapture, manifest
from faze.data.landmarks.detector import open_detector
from faze.data.landmarks.manifest import read_lines
from faze.data.landmarks.parts import annotate_everybody, identity_of, read_parts
from faze.data.readers.gazecapture import list_recordings
from faze.data.store.supplementary import write_supplementary


def main(*, raw: Path, model: Path | None = None, threads: int, out: Path) -> None:
    """Annotate every recording or person."""
    of_manifest = raw.is_file()
    people = read_lines(raw).persons() if of_manifest else list_recordings(raw)
    if not people:
        raise UserError(f"{raw}: contains no folder 00002, ...; set the path of this data set to the folder that does")
    with open_detector(model):
        pass  # fails early if something is missing
    folder = out.with_name(f"{out.stem}.{identity_of(raw, model)}.parts")
    for old in set(out.parent.glob(f"{out.stem}.*.parts")) - {folder}:
        print(f"{old}: discarding recordings annotated with other data, code or model", file=sys.stderr)
        shutil.rmtree(old)
    folder.mkdir(parents=True, exist_ok=True)
    parts = {person: folder / f"{person}.h5" for person in people}
    annotate = manifest.annotate if of_manifest else gazecapture.annotate
    annotate_everybody(functools.partial(annotate, raw), parts, model, threads)
    counts: Counter[str] = Counter()
    try:
        write_supplementary(out, read_parts(parts, counts))
    except UserError:  # no frame has a label: the parts are useless
        shutil.rmtree(folder)
        raise
    shutil.rmtree(folder)
    print(
        f"landmarks: {counts['with']} frames with a label, {counts['without']} entries without; "
        f"{'head poses' if of_manifest else 'head pose and camera'} are estimated"
    )
