"""The layout of strip files: per-sample arrays, and the checksum."""

import zlib
from pathlib import Path

import h5py
import numpy as np

from faze.data.store.layout import LABEL_SOURCES
from faze.data.store.strips import VALIDITIES, PersonStrips, StripStore, write_strips

RANDOM = np.random.default_rng(0)


def described(person_id: str, count: int, strip: tuple[int, ...] = (64, 256, 3)) -> PersonStrips:
    """Return a person with all per-sample arrays."""
    return PersonStrips(
        person_id,
        "test",
        [f"{person_id}/{i}.jpg" for i in range(count - 1)] + [b"\xff\xfe.jpg".decode("utf-8", "surrogateescape")],
        RANDOM.integers(0, 256, (count, *strip), dtype=np.uint8),
        RANDOM.normal(size=(count, 4)).astype(np.float32),
        "iPhone 6",
        np.arange(count) * 3,
        np.arange(count, dtype=np.uint8) % len(LABEL_SOURCES),
        np.arange(count, dtype=np.uint8) % len(VALIDITIES),
    )


def test_all_that_is_known_of_a_sample_is_kept(tmp_path: Path) -> None:
    written = described("00001", 30)
    write_strips(tmp_path / "strips.h5", "gazecapture", [written])
    with StripStore(tmp_path / "strips.h5") as strips:
        assert strips.device("00001") == "iPhone 6"
        assert strips.file_names("00001") == written.file_names
        np.testing.assert_array_equal(strips.frame_index("00001"), written.frame_index)
        assert list(strips.label_sources("00001")) == [LABEL_SOURCES[i] for i in written.label_source]
        assert list(strips.validity("00001")) == [VALIDITIES[i] for i in written.validity]
    with h5py.File(tmp_path / "strips.h5") as file:
        assert (file.attrs["schema"], file.attrs["schema_version"]) == (b"strips", 2)
        checksum = zlib.crc32(written.pixels.tobytes() + written.labels.tobytes())
        assert file["00001"].attrs["checksum"] == f"crc32:{checksum:08x}".encode()
        assert file["00001/file_name"][-1] == b"\xff\xfe.jpg"
