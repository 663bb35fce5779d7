"""The process that `faze.data.store.probe` starts: it reads a file, and its end is its answer.

A module of its own, so that who asks for a probe does not depend on every layout, and is not run again for it.
"""

import contextlib
import resource
import sys
from pathlib import Path

from faze.base.errors import UserError
from faze.data.store.codes import CodeStore
from faze.data.store.strips import StripStore
from faze.data.store.supplementary import read_supplementary, supplementary_persons


def _read(path: Path, layout: str) -> None:
    if layout == "strips":
        with StripStore(path, tolerant=True) as strips:
            for person in strips.persons():
                with contextlib.suppress(UserError):
                    _read_strips(strips, person)
    elif layout == "codes":
        codes = CodeStore(path)
        for person in codes.persons():
            with contextlib.suppress(UserError):
                codes[person]
    else:
        for person in supplementary_persons(path):
            with contextlib.suppress(UserError):
                read_supplementary(path, person)


def _read_strips(strips: StripStore, person: str) -> None:
    strips.person_digest(person), strips.device(person), strips.file_names(person), strips.frame_index(person)
    strips.origins(person), strips.validity(person), strips.location(person)
    strips.pixels(person, slice(1))


if __name__ == "__main__":
    resource.setrlimit(resource.RLIMIT_CPU, (int(sys.argv[3]), int(sys.argv[3]) + 5))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    with contextlib.suppress(UserError):
        _read(Path(sys.argv[2]), sys.argv[1])
