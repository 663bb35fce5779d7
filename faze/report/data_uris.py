"""Pictures and videos inside the page: base64, within a budget, so that one file can be mailed."""

import base64
import io
from pathlib import Path

from PIL import Image

BUDGET_BYTES = 14 * 2**20  # of the page, after base64


class Embedder:
    """Turns files into data URIs until the budget is spent; what no longer fits is None."""

    def __init__(self, budget_bytes: int = BUDGET_BYTES) -> None:
        self._left = budget_bytes

    def file(self, path: Path, kind: str) -> str | None:
        """Embed a file as it is.

        Args:
            path: of the file.
            kind: MIME type.
        """
        return self._embed(path.read_bytes(), kind)

    def picture(self, path: Path, width_px: int = 2240) -> str | None:
        """Embed a picture, at most this wide (twice the page, for dense screens), as the smaller of PNG and JPEG."""
        with Image.open(path) as image:
            image = image.convert("RGB")
        if image.width > width_px:
            image = image.resize((width_px, round(image.height * width_px / image.width)), Image.Resampling.LANCZOS)
        jpeg, png = _encoded(image, "jpeg", quality=88, optimize=True), _encoded(image, "png", compress_level=1)
        if len(jpeg) > len(png) / 2:  # of a photograph even the smallest PNG is far larger, and takes seconds
            png = _encoded(image, "png", optimize=True)
        kind, content = ("image/png", png) if len(png) < len(jpeg) else ("image/jpeg", jpeg)
        return self._embed(content, kind)

    def _embed(self, content: bytes, kind: str) -> str | None:
        size = 4 * -(-len(content) // 3)
        if size > self._left:
            return None
        self._left -= size
        return f"data:{kind};base64,{base64.b64encode(content).decode()}"


def _encoded(image: Image.Image, form: str, **settings: object) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, form, **settings)
    return buffer.getvalue()
