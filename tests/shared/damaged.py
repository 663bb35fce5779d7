"""Damage to files, for tests that ask whether it is noticed."""

from pathlib import Path


def flip(path: Path, within: bytes) -> None:
    """Flip a bit amid bytes that the file holds."""
    content = bytearray(path.read_bytes())
    place = content.index(within) + len(within) // 2
    content[place] ^= 1 << 3
    path.write_bytes(content)


def cut(path: Path, size: int) -> None:
    """Leave only the first bytes of a file."""
    path.write_bytes(path.read_bytes()[:size])
