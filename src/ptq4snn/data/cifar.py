"""CIFAR-10 and CIFAR-100 in their official layouts.

binary   records of 1 label byte (CIFAR-100: coarse, then fine) and 3,072 pixel bytes (R, G, B planes)
python   pickled dictionaries with data uint8 [N, 3072] and the list labels (CIFAR-100: fine_labels)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import accumulate
from pathlib import Path
from typing import Literal

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from ptq4snn.data.cifar_python import read_python
from ptq4snn.data.images import Pixels, colours, scale_pixels
from ptq4snn.data.samples import Origin, Preprocessing
from ptq4snn.errors import DataError

__all__ = ["MEAN", "STD", "CifarSamples", "find_cifar", "normalize", "read_cifar10"]

Name = Literal["cifar10", "cifar100"]
Part = tuple[Pixels, npt.NDArray[np.integer]]  # images [N, 3072] and class numbers [N] of one file

MEAN = (0.4914, 0.4822, 0.4465)  # of CIFAR-10
STD = (0.2470, 0.2435, 0.2616)
COLOURS = {"cifar10": (MEAN, STD), "cifar100": ((0.5071, 0.4867, 0.4408), (0.2675, 0.2565, 0.2761))}
CLASSES = {"cifar10": 10, "cifar100": 100}
IMAGE = 3 * 32 * 32


@dataclass(frozen=True)
class Layout:
    """One official archive."""

    folder: str
    train: tuple[str, ...]
    test: tuple[str, ...]
    read: Callable[[Path], Part]


def read_binary(file: Path, label_bytes: int) -> Part:
    """The records of one file, mapped; the last label byte is the class."""
    record, size = label_bytes + IMAGE, file.stat().st_size
    if size == 0 or size % record:
        raise DataError(f"{file} is truncated: its {size} bytes are not whole records of {record}")
    rows = np.memmap(file, np.uint8, "r").reshape(-1, record)
    return rows[:, label_bytes:], rows[:, label_bytes - 1]


BATCHES = tuple(f"data_batch_{i}" for i in range(1, 6))
LAYOUTS: dict[str, tuple[Layout, ...]] = {
    "cifar10": (
        Layout(
            "cifar-10-batches-bin",
            tuple(f"{name}.bin" for name in BATCHES),
            ("test_batch.bin",),
            partial(read_binary, label_bytes=1),
        ),
        Layout(
            "cifar-10-batches-py",
            BATCHES,
            ("test_batch",),
            partial(read_python, labels="labels", width=IMAGE),
        ),
    ),
    "cifar100": (
        Layout("cifar-100-binary", ("train.bin",), ("test.bin",), partial(read_binary, label_bytes=2)),
        Layout(
            "cifar-100-python",
            ("train",),
            ("test",),
            partial(read_python, labels="fine_labels", width=IMAGE),
        ),
    ),
}


def find_cifar(root: Path, name: Name) -> tuple[Path, Layout] | None:
    """Where the data set's files are: in `root` or in the archive's own folder there."""
    for layout in LAYOUTS[name]:
        for folder in (root / layout.folder, root):
            if any((folder / file).is_file() for file in layout.train + layout.test):
                return folder, layout
    return None


class CifarSamples:
    """Images float32 [B, 3, 32, 32] and class numbers, in the order of the files, which mixes the classes.

    The binary version is mapped; the python version is read whole when it is first needed (154 MB at most).
    """

    def __init__(
        self, root: Path, name: Name, train: bool, preprocessing: Preprocessing | None = None
    ) -> None:
        wanted = preprocessing or Preprocessing()
        if wanted.size not in (None, 32, (32, 32)) or wanted.resize not in (None, 32):
            raise DataError(f"{name} has images of 32 x 32 pixels and does not resize them: leave size away")
        found = find_cifar(root, name)
        if found is None:
            known = " or ".join(layout.folder for layout in LAYOUTS[name])
            raise DataError(f"the folder {root} holds no {known}: give the folder of the unpacked archive")
        folder, self.layout = found
        self.files = [folder / file for file in (self.layout.train if train else self.layout.test)]
        for file in self.files:
            if not file.is_file():
                raise DataError(f"there is no data file {file}: unpack {self.layout.folder} again")
        self.classes = CLASSES[name]
        self.mean, self.std = colours(wanted.mean, wanted.std, COLOURS[name])

    @cached_property
    def parts(self) -> list[Part]:
        return [self.layout.read(file) for file in self.files]

    @cached_property
    def ends(self) -> list[int]:
        """Number of samples in the files up to and including each."""
        return list(accumulate(len(images) for images, _ in self.parts))

    def __len__(self) -> int:
        return self.ends[-1]

    def pixels(self, indices: Sequence[int]) -> tuple[Tensor, Tensor]:
        """uint8 images [B, 3, 32, 32] and int64 class numbers [B]."""
        rows = np.asarray(indices, np.int64)
        which = np.searchsorted(self.ends, rows, "right")
        images, labels = np.empty((len(rows), IMAGE), np.uint8), np.empty(len(rows), np.int64)
        for i in np.unique(which).tolist():
            here = which == i
            inside = rows[here] - (self.ends[i - 1] if i else 0)
            images[here], labels[here] = (values[inside] for values in self.parts[i])
            if labels[here].min() < 0 or labels[here].max() >= self.classes:
                raise DataError(f"{self.files[i]} is damaged: it has labels outside 0 .. {self.classes - 1}")
        return torch.from_numpy(images).view(-1, 3, 32, 32), torch.from_numpy(labels)

    def __getitem__(self, indices: Sequence[int]) -> tuple[Tensor, Tensor]:
        images, labels = self.pixels(indices)
        return scale_pixels(images, self.mean, self.std), labels

    def origin(self, indices: Sequence[int]) -> Origin:
        return Origin(self.files, [self.classes, self.mean, self.std])


def normalize(pixels: Tensor) -> Tensor:
    """uint8 images [N, 3, 32, 32] to the float32 input of the models for CIFAR-10."""
    return scale_pixels(pixels, MEAN, STD)


def read_cifar10(root: Path, train: bool) -> tuple[Tensor, Tensor]:
    """uint8 images [N, 3, 32, 32] and int64 labels [N] of one split."""
    samples = CifarSamples(root, "cifar10", train)
    return samples.pixels(range(len(samples)))
