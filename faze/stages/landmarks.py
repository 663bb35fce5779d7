"""Rule `landmarks`: raw GazeCapture or a manifest -> a supplementary annotation with estimated head poses.

For GazeCapture, the camera is estimated too. Each person's result is stored in a folder next to the output, so that a
killed run can resume.
"""

import shutil
from collections.abc import Iterator
from pathlib import Path

import cv2
import joblib

from faze.base.code_hash import fingerprint
from faze.base.progress import Progress
from faze.data.landmarks.annotation import annotate
from faze.data.landmarks.detector import open_faces
from faze.data.readers.gazecapture import list_recordings, read_recording
from faze.data.readers.manifest import read_manifest
from faze.data.readers.person import Person
from faze.data.readers.supplementary import read_or_explain, write_supplementary
from faze.data.worker_processes import worker_processes


def main(*, raw: Path, model: Path, threads: int, out: Path) -> None:
    """Annotate every recording in a folder, or every person in a manifest."""
    with open_faces(model, 1):
        pass  # fails at once if the model is missing
    people = read_manifest(raw, posed=False) if raw.is_file() else list_recordings(raw)
    work = out.parent / f".work.{out.name}"
    version = joblib.hash((model.read_bytes(), fingerprint("faze.stages.landmarks")))
    annotate_once = joblib.Memory(work / version, verbose=0).cache(annotate_person)

    def annotated() -> Iterator[Person]:
        progress = Progress("landmarks", len(people), "people")
        read = (one if isinstance(one, Person) else read_or_explain(read_recording, raw / one) for one in people)
        jobs = (joblib.delayed(annotate_once)(person, model) for person in read)
        with worker_processes(threads, return_as="generator") as parallel:
            for done, person in enumerate(parallel(jobs), start=1):
                progress(done)
                yield person

    write_supplementary(out, annotated())
    shutil.rmtree(work)


def annotate_person(person: Person, model: Path) -> Person:
    """Estimate the head pose in each of a person's frames."""
    cv2.setNumThreads(1)
    with open_faces(model, 1) as detect:
        return annotate(person, detect)
