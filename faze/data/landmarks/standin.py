"""Stand-in for the readers that yield people, until they exist."""

from pathlib import Path

import numpy as np

from faze.base.errors import UserError
from faze.data.readers import OUTSIDE, Reject, is_inside
from faze.data.readers import gazecapture
from faze.data.readers.manifest_lines import ManifestLines
from faze.data.readers.person import Person, unreadable
from faze.data.store.supplementary import Supplementary, write_supplementary as write_old
from faze.data.normalization.pose import INNER_EYE_CORNERS_14_MM, gaze_origins_mm


def read_recording(folder: Path) -> Person:
    raw, person = folder.parent, folder.name
    try:
        recording = gazecapture.read_recording(folder)
        if recording.targets_mm is None or not (folder / "screen.json").exists():
            raise UserError("dotInfo.json or screen.json: No such file or directory")
        if not recording.names:
            raise UserError("frames.json: contains no frames")
    except UserError as error:
        return unreadable(person, raw, str(error))
    n = len(recording.names)
    files = [f"{person}/frames/{name}" for name in recording.names]
    reasons = [r or ("" if is_inside(f) else OUTSIDE) for r, f in zip(recording.faults, files)]
    nan = np.full((n, 3, 3), np.nan)
    return Person(person, raw, files, reasons, nan, np.full((n, 5), np.nan), np.full((n, 6), np.nan),
                  recording.targets_mm, split=recording.split, device=recording.device)


def read_manifest(path: Path, posed: bool = True) -> list[Person]:
    lines, people = ManifestLines(path), []
    for name in lines.persons():
        rows = list(lines.unposed(name))
        n = len(rows)
        longest = max((len(x.distortion) for x in rows if not isinstance(x, Reject)), default=5)
        cam, dist, tgt, gaze = np.full((n, 3, 3), np.nan), np.zeros((n, longest)), np.full((n, 3), np.nan), np.full((n, 3), np.nan)
        for i, x in enumerate(rows):
            if not isinstance(x, Reject):
                cam[i], dist[i, : len(x.distortion)] = x.camera_matrix, x.distortion
                if x.target_mm is None:
                    gaze[i] = x.gaze
                else:
                    tgt[i] = x.target_mm
        people.append(Person(name, path.absolute().parent, [x.file_name for x in rows],
            [x.reason if isinstance(x, Reject) else "" for x in rows], cam, dist, np.full((n, 6), np.nan), tgt,
            gaze if lines.targets_mm is None else None))
    return people


def write_supplementary(path: Path, people) -> None:
    def old(p):
        n = len(p.files)
        cam = p.cameras.reshape(n, -1)[:, [0, 4, 2, 5]]
        bad = np.array([bool(r) for r in p.reasons])
        tgt = p.targets_from(gaze_origins_mm(p.poses[:, :3], p.poses[:, 3:], np.broadcast_to(INNER_EYE_CORNERS_14_MM, (n, 2, 3)))) if p.gaze is not None else p.targets_mm[:, :3].copy()
        cam, tgt = np.where(bad[:, None], np.nan, cam), np.where(bad[:, None], np.nan, tgt)
        d = np.zeros((n, 5)) if np.isnan(p.distortions).all() else p.distortions
        return p.name, Supplementary(p.files, cam, d, p.poses, tgt, p.reasons, p.source)
    write_old(path, map(old, people))
