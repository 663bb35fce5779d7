"""The released way of loading pairs, rewritten from its description: one sample at a time, all looked up by name.

Strips are stored with lzf compression, one per chunk. For each sample, the person and datasets are looked up, the
second entry is drawn from a list of all others, and each strip is equalised and scaled individually in float64. torch's
DataLoader forms the batches.
"""

from collections.abc import Iterator
from pathlib import Path

import cv2
import h5py
import numpy as np
from numpy.typing import NDArray
from torch.utils.data import DataLoader, Dataset, RandomSampler


def write(path: Path, people: dict[str, tuple[NDArray, NDArray]]) -> None:
    """Write each person's strips (n, H, W, 3) uint8 and labels (n, 4)."""
    with h5py.File(path, "w", libver="latest") as file:
        for person, (pixels, labels) in people.items():
            group = file.create_group(person)
            group.create_dataset("pixels", data=pixels, chunks=(1, *pixels.shape[1:]), compression="lzf")
            group.create_dataset("labels", data=labels, chunks=(1, labels.shape[1]), compression="lzf")


class PairSamples(Dataset):
    """A dataset of pairs: item i is entry i with another entry of the same person."""

    def __init__(self, path: Path, equalised: bool) -> None:
        self._path, self._equalised, self._file = path, equalised, None
        with h5py.File(path, "r", libver="latest", swmr=True) as file:
            self._index = [(person, i) for person in file for i in range(len(file[person]["labels"]))]

    def __len__(self) -> int:
        return len(self._index)

    def __getitem__(self, number: int) -> dict[str, NDArray]:
        """Return both strips and their labels; images are uint8 (H, W, 3), or float32 (3, H, W) in [-1, 1]."""
        person, i = self._index[number]
        entries = len(self.file[person]["labels"])
        j = int(np.random.choice(np.delete(list(range(entries)), i)))
        return {f"{name}_a": value for name, value in self.entry(person, i).items()} | {
            f"{name}_b": value for name, value in self.entry(person, j).items()
        }

    @property
    def file(self) -> h5py.File:
        """Return the file, opened in the process that reads it."""
        if self._file is None:
            self._file = h5py.File(self._path, "r", libver="latest", swmr=True)
        return self._file

    def entry(self, person: str, i: int) -> dict[str, NDArray]:
        """Return one strip and its labels."""
        pixels = self.file[person]["pixels"][i, :]
        labels = self.file[person]["labels"][i, :].astype(np.float32)
        image = equalise(pixels) if self._equalised else pixels
        return {"image": image, "gaze": labels[:2], "head": labels[2:]}


def equalise(strip: NDArray[np.uint8]) -> NDArray[np.float32]:
    """Equalise a strip (H, W, 3) uint8 and convert it to (3, H, W) in [-1, 1]."""
    ycrcb = cv2.cvtColor(strip, cv2.COLOR_RGB2YCrCb)
    ycrcb[:, :, 0] = cv2.equalizeHist(ycrcb[:, :, 0])
    image = np.transpose(cv2.cvtColor(ycrcb, cv2.COLOR_YCrCb2RGB), [2, 0, 1])
    return (2.0 * image / 255.0 - 1.0).astype(np.float32)


def batches(samples: PairSamples, *, batch: int, count: int, workers: int) -> "Epochs":
    """Return a source of `count` batches in random order at each call; its workers stay alive."""
    sampler = RandomSampler(samples, replacement=count * batch > len(samples), num_samples=count * batch)
    return Epochs(DataLoader(samples, batch, sampler=sampler, num_workers=workers, persistent_workers=workers > 0))


class Epochs:
    """A source that returns an iterator over the next batches at each call."""

    def __init__(self, loader: DataLoader) -> None:
        self._loader = loader

    def __call__(self) -> Iterator[dict]:
        """Return the next batches."""
        return iter(self._loader)
