"""The layout of strip files: per-sample arrays, checksums, locations, and reading by other programs."""

import dataclasses
import multiprocessing
import os
import zlib
from collections.abc import Callable
from pathlib import Path

import h5py
import numpy as np
import pytest
from numpy.typing import NDArray

from faze.data.store.layout import LABEL_SOURCES
from faze.data.store.strips import VALIDITIES, PersonStrips, StripStore, write_strips

RANDOM = np.random.default_rng(0)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    people = [
        described(person_id, count, (8, 32, 3)) for person_id, count in (("00003", 4), ("00001", 2), ("00002", 1))
    ]
    write_strips(tmp_path / "strips.h5", "gazecapture", people)
    return tmp_path / "strips.h5"


def edit(path: Path, change: Callable[[h5py.File], object]) -> None:
    with h5py.File(path, "r+") as file:
        change(file)


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
        assert strips.verify("00001") is True
    with h5py.File(tmp_path / "strips.h5") as file:
        assert (file.attrs["schema"], file.attrs["schema_version"]) == (b"strips", 2)
        checksum = zlib.crc32(written.pixels.tobytes() + written.labels.tobytes())
        assert file["00001"].attrs["checksum"] == f"crc32:{checksum:08x}".encode()
        assert file["00001/file_name"][-1] == b"\xff\xfe.jpg"


def test_strips_given_in_pieces_are_those_given_whole(tmp_path: Path) -> None:
    """Pieces are for people too large for memory; 600 strips are more than one of the writer's own parts."""
    written = described("00001", 600, (8, 32, 3))
    write_strips(tmp_path / "whole.h5", "gazecapture", [written])
    pieces = iter([written.pixels[:1], written.pixels[1:401], written.pixels[401:]])
    write_strips(tmp_path / "pieces.h5", "gazecapture", [dataclasses.replace(written, pixels=pieces)])
    assert (tmp_path / "pieces.h5").read_bytes() == (tmp_path / "whole.h5").read_bytes()
    with StripStore(tmp_path / "pieces.h5") as strips:
        assert [len(piece) for piece in strips.pieces("00001")] == [256, 256, 88]


@pytest.mark.parametrize("array", ["pixels", "labels"])
def test_a_changed_byte_is_found(path: Path, array: str) -> None:
    """Fails if the checksum covers only the pixels."""
    with StripStore(path) as strips:
        assert [strips.verify(name) for name in strips.persons()] == [True, True, True]

    def change(file: h5py.File) -> None:
        values = file[f"00003/{array}"][:]
        values.view(np.uint8).reshape(-1)[-1] ^= 1
        file[f"00003/{array}"][:] = values

    edit(path, change)
    with StripStore(path) as strips:
        assert [strips.verify(name) for name in strips.persons()] == [True, True, False]


def test_strips_lie_at_the_place_that_is_told(tmp_path: Path) -> None:
    written = [described("00001", 30), described("00003", 22)]
    small = described("00002", 301, (8, 32, 3))  # ends within a page
    write_strips(tmp_path / "strips.h5", "gazecapture", [written[0], small, written[1]])
    handle = os.open(tmp_path / "strips.h5", os.O_RDONLY)
    with StripStore(tmp_path / "strips.h5") as strips:
        for person in written:
            offset, row = strips.location(person.person_id)
            assert (offset % 4096, row) == (0, 64 * 256 * 3)
            for position in (0, 7, 21):
                strip = os.pread(handle, row, offset + position * row)
                assert strip == person.pixels[position].tobytes()
    os.close(handle)
    with h5py.File(tmp_path / "chunks.h5", "w") as file:
        file.create_dataset("p00/pixels", data=written[0].pixels, chunks=(1, 64, 256, 3))
        file["p00/labels"] = written[0].labels
    with StripStore(tmp_path / "chunks.h5") as strips:
        assert strips.location("p00") is None


def read_as_released(path: Path, person: str, seed: int, send: Callable[[NDArray], None]) -> None:
    """Read like the released code: each reader opens the file and reads samples of a group as float."""
    with h5py.File(path, "r", libver="latest", swmr=True) as file:
        group = file[person]
        total = 0.0
        for position in np.random.default_rng(seed).integers(0, len(group["pixels"]), 200):
            image = group["pixels"][position, :].astype(np.float32) * (2 / 255) - 1
            label = group["labels"][position, :].astype(np.float32)
            total += float(image.sum()) + float(label.sum())
        send(total)


def test_the_released_reader_reads_our_strips_in_several_processes_at_once(tmp_path: Path) -> None:
    written = described("00001", 40)
    write_strips(tmp_path / "strips.h5", "gazecapture", [written])
    context = multiprocessing.get_context("spawn")
    readers = []
    for seed in range(3):
        receiver, sender = context.Pipe(duplex=False)
        arguments = (tmp_path / "strips.h5", "00001", seed, sender.send)
        process = context.Process(target=read_as_released, args=arguments)
        process.start()
        readers.append((seed, receiver, process))
    with StripStore(tmp_path / "strips.h5") as strips:
        assert strips.verify("00001")  # at the same time
    for seed, receiver, process in readers:
        total = 0.0
        for position in np.random.default_rng(seed).integers(0, 40, 200):
            image = written.pixels[position].astype(np.float32) * (2 / 255) - 1
            total += float(image.sum()) + float(written.labels[position].sum())
        assert receiver.recv() == total
        process.join()
        assert process.exitcode == 0
