"""Rule `landmarks`: raw GazeCapture or a manifest -> a supplementary annotation with estimated head poses.

For GazeCapture, the camera is estimated too. People who are finished are kept in a folder beside the output, so a
killed run resumes with the others.
"""

import pickle
import shutil
from collections import Counter
from concurrent.futures import as_completed
from pathlib import Path

import cv2
import joblib

from faze.base.code_hash import fingerprint
from faze.base.errors import UserError
from faze.base.files import whole_file
from faze.base.progress import Progress
from faze.data.landmarks.annotation import annotate
from faze.data.landmarks.detector import open_faces
from faze.data.process_pool import worker_processes
from faze.data.readers.gazecapture import list_recordings
from faze.data.readers.person import Person
from faze.data.landmarks.standin import read_manifest, read_recording, write_supplementary


def main(*, raw: Path, model: Path, threads: int, out: Path) -> None:
    """Annotate every recording or person."""
    people = read_manifest(raw, posed=False) if raw.is_file() else [raw / name for name in list_recordings(raw)]
    if not people:
        raise UserError(f"{raw}: contains no folder 00002, ...; set the path of this data set to the folder that does")
    folder = out.with_suffix(".finished")
    folder.mkdir(parents=True, exist_ok=True)
    progress = Progress("landmarks", len(people), "people")
    with worker_processes(threads, _start) as pool:
        futures = [pool.submit(_annotate, person, model, folder) for person in people]
        for done, future in enumerate(as_completed(futures), start=1):
            future.result()
            progress(done)
    finished = [future.result() for future in futures]
    write_supplementary(out, (pickle.loads(path.read_bytes()) for path, _ in finished))
    shutil.rmtree(folder)
    counts = Counter(not reason for _, reasons in finished for reason in reasons)
    print(f"landmarks: {counts[True]} frames with an estimated head pose, {counts[False]} entries without")


def _start() -> None:
    cv2.setNumThreads(1)  # like MediaPipe's, as there is a process for each core


def _annotate(person: Person | Path, model: Path, folder: Path) -> tuple[Path, list[str]]:
    """Annotate a person, or read a recording first; return the file of the result, and its reasons.

    The file is named by a hash of what the result depends on, except the frames, and is reused if it exists.
    """
    person = read_recording(person) if isinstance(person, Path) else person
    with open_faces(model, 1) as detect:
        path = folder / joblib.hash((person, model.read_bytes(), fingerprint(__name__)))
        if not path.exists():
            with whole_file(path) as temporary:
                temporary.write_bytes(pickle.dumps(annotate(person, detect)))
    return path, pickle.loads(path.read_bytes()).reasons
