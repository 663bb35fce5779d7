"""Read the size of a frame from its header, without decoding it."""

from pathlib import Path

from faze.base.files import named, open_plain, reason_of
from faze.data.normalization.images import read_header
from faze.data.normalization.pose import UnusableFrame

_BEGINNING_BYTES = 1 << 16  # contains the header of nearly all JPEGs
_JPEG, _PNG = b"\xff\xd8", b"\x89PNG\r\n\x1a\n"


def read_upright_size(path: Path) -> tuple[int, int]:
    """Return the width and height of a JPEG or PNG in px.

    Raises:
        UnusableFrame: The file is missing, has no header of a JPEG or PNG, or its EXIF orientation may rotate it, so
            that its width and height may be exchanged.
    """
    size = read_size(path)
    if size is None:
        raise UnusableFrame(
            "the image is rotated by its EXIF orientation, so its field of view is ambiguous: save it upright"
        )
    return size


def read_size(path: Path) -> tuple[int, int] | None:
    """Return the width and height of a JPEG or PNG in px, or None if its EXIF orientation may rotate it.

    Raises:
        UnusableFrame: The file is missing, or has no header of a JPEG or PNG.
    """
    try:
        with named(path), open_plain(path) as file:
            data = file.read(_BEGINNING_BYTES)
            header = read_header(data, len(data)) if data.startswith(_JPEG) else None
            if data.startswith(_JPEG) and header is None:
                data += file.readall()
                header = read_header(data, len(data))
    except OSError as error:
        raise UnusableFrame(f"cannot read the file: {reason_of(error)}") from None
    if not data:
        raise UnusableFrame("empty file")
    if header is not None and not header.is_upright:
        return None
    size = header.stated_px if header else (0, 0)
    if data.startswith(_PNG):
        size = int.from_bytes(data[16:20]), int.from_bytes(data[20:24])
    if not all(size):
        raise UnusableFrame("truncated JPEG" if data.startswith(_JPEG) else "not an image that can be decoded")
    return size
