"""Damage to finished files, as caused by a disk, a cable or a user."""

import os
from dataclasses import dataclass
from pathlib import Path
from random import Random

from facts import is_final

# A flipped bit in these may stay unnoticed: they are text or pictures without any checksum. They are truncated alone.
TEXT = (".yaml", ".json", ".jsonl", ".csv", ".html", ".svg", ".png", ".mp4", ".jpg", ".webp", ".md")


@dataclass
class Damage:
    """A damaged file, with its original content."""

    path: Path
    kind: str
    words: str
    before: bytes
    after: bytes
    seen: tuple[int, int] = (0, 0)  # commands that had been given when it was done, and how much the last had said

    @property
    def stands(self) -> bool:
        """Return whether the damaged bytes are still there."""
        return self.path.is_file() and self.path.read_bytes() == self.after

    def mend(self) -> None:
        """Restore the bytes and the time of the file."""
        status = self.path.stat()
        self.path.write_bytes(self.before)
        os.utime(self.path, ns=(status.st_atime_ns, status.st_mtime_ns))


def candidates(results: Path) -> dict[str, list[Path]]:
    """Return the finished files of each kind, and the checkpoints from which a killed stage resumes."""
    kinds: dict[str, list[Path]] = {}
    for path in sorted(file for file in results.rglob("*") if file.is_file() and file.stat().st_size):
        relative = path.relative_to(results)
        if kind := kind_of(relative):
            kinds.setdefault(kind, []).append(path)
    return kinds


def kind_of(relative: Path) -> str:
    """Return the kind of a file, or "" if it must not be damaged."""
    parts = relative.parts
    if any(part.endswith(".work") for part in parts):
        unfinished = parts[-1].startswith(".") or relative.suffix != ".pt"  # a log is still written to
        return "" if unfinished else f"checkpoint of {'train' if parts[-2] == 'train.work' else 'meta_train'}"
    if parts[0].startswith("data") and parts[1].startswith(".work."):
        return "" if parts[-1].endswith(".torn") else f"shard{relative.suffix}"
    if not is_final(relative) or parts[0] == "raw" and relative.name != "gazecapture_supplementary.h5":
        return ""  # of what is rendered besides, nobody reads more than pictures, which have no checksum
    if parts[0] in ("evaluation", "inspection", "configs") or "walks" in parts or "configs" in parts:
        return f"{next(part for part in ('evaluation', 'inspection', 'configs', 'walks') if part in parts)}/*"
    if parts[0] in ("data", "raw"):
        return f"{parts[0]}/*{relative.suffix}"
    return f"{parts[-2] if parts[-2] in ('codes', 'fewshot') else ''}/*{relative.suffix}".lstrip("/")


def damage_one(results: Path, draw: Random, may_keep_time: bool = True) -> Damage | None:
    """Damage a file at random; its modification time is either kept or updated."""
    kinds = candidates(results)
    if not kinds:
        return None
    kind = draw.choice(sorted(kinds))
    path = draw.choice(kinds[kind])
    before, status = path.read_bytes(), path.stat()
    how = "truncated" if path.suffix in TEXT else draw.choice(["truncated", "flipped"])
    after, words = truncated(before, draw) if how == "truncated" else flipped(before, draw)
    path.write_bytes(after)
    keeps_time = may_keep_time and draw.random() < 0.5
    if keeps_time:
        os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    time = "its time stays" if keeps_time else "its time is now"
    return Damage(path, kind, f"{path.relative_to(results.parents[1])} {words}, {time}", before, after)


def truncated(before: bytes, draw: Random) -> tuple[bytes, str]:
    size = draw.choice([0, draw.randrange(len(before)), draw.randrange(len(before)), len(before) - 1])
    return before[:size], f"truncated from {len(before)} to {size} bytes"


def flipped(before: bytes, draw: Random) -> tuple[bytes, str]:
    place, bit = draw.randrange(len(before)), draw.randrange(8)
    after = bytearray(before)
    after[place] ^= 1 << bit
    return bytes(after), f"has a flipped bit at byte {place} of {len(before)}"
