"""Pictures and videos that are embedded in a page."""

import base64
import io

import numpy as np
from PIL import Image

from faze.report.media import embed_picture


def test_wide_pictures_shrink_to_the_page(tmp_path):
    noise = np.random.default_rng(0).integers(0, 255, (60, 3000, 3), np.uint8)
    Image.fromarray(noise).save(tmp_path / "sheet.png")
    uri = embed_picture(tmp_path / "sheet.png")
    assert uri.startswith("data:image/jpeg;base64,") and len(uri) < (tmp_path / "sheet.png").stat().st_size
    with Image.open(io.BytesIO(base64.b64decode(uri.partition(",")[2]))) as embedded:
        assert embedded.size == (2240, 45)
    Image.fromarray(noise[:, :2000]).save(tmp_path / "sheet.png")
    uri = embed_picture(tmp_path / "sheet.png")
    with Image.open(io.BytesIO(base64.b64decode(uri.partition(",")[2]))) as embedded:
        assert embedded.size == (2000, 60)
