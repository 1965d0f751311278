"""ImageNet (ILSVRC2012) in folders: train/n01440764/*.JPEG and val/n01440764/*.JPEG.

    shorter side to `resize`, middle `size` x `size`, (pixel / 255 - mean) / std

as torchvision does on Pillow images.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from ptq4snn.data.images import (
    IMAGENET_MEAN,
    IMAGENET_STD,
    Pixels,
    center_crop,
    colours,
    height_width,
    planes,
    read_image,
    resize_shorter,
    scale_pixels,
)
from ptq4snn.data.samples import Origin, Preprocessing
from ptq4snn.errors import DataError

__all__ = ["ImageNetSamples", "holds_imagenet"]

WNID = re.compile(r"n\d{8}")
FLAT = "ILSVRC2012_val_*"
ENDINGS = (".jpeg", ".jpg", ".png")
SIZE = 224
SHORTER = 256 / 224  # shorter side before the crop, by the size of the crop


def wnids(folder: Path) -> set[str]:
    """Names of the class folders."""
    if not folder.is_dir():
        return set()
    return {entry.name for entry in folder.iterdir() if WNID.fullmatch(entry.name) and entry.is_dir()}


def holds_imagenet(root: Path) -> bool:
    flat = (root / "val").is_dir() and any((root / "val").glob(FLAT))
    return flat or any(wnids(root / split) for split in ("train", "val"))


class ImageNetSamples:
    """Images float32 [B, 3, size, size] and class numbers.

    A class has its place in the sorted names of all class folders, of train and val together: a few classes
    to calibrate with do not shift the numbers of the others.
    """

    sorted_by_class = True

    def __init__(self, root: Path, train: bool, preprocessing: Preprocessing | None = None) -> None:
        wanted = preprocessing or Preprocessing()
        self.size = height_width(wanted.size or SIZE)
        self.shorter = wanted.resize or int(SHORTER * max(self.size))
        if self.shorter < max(self.size):
            raise DataError(f"a shorter side of {self.shorter} has no {self.size} in it: raise resize")
        self.interpolation = wanted.interpolation
        self.mean, self.std = colours(wanted.mean, wanted.std, (IMAGENET_MEAN, IMAGENET_STD))
        self.folder = root / ("train" if train else "val")
        self.wnids = sorted(wnids(root / "train") | wnids(root / "val"))
        self.classes = len(self.wnids)
        self.names, self.labels = self._list()

    def _list(self) -> tuple[list[str], list[int]]:
        """File names and class numbers, by class."""
        present = wnids(self.folder)
        if not present:
            raise DataError(no_classes(self.folder))
        names: list[str] = []
        labels: list[int] = []
        for number, wnid in enumerate(self.wnids):
            if wnid in present:
                found = sorted(f.name for f in (self.folder / wnid).iterdir() if f.suffix.lower() in ENDINGS)
                names += found
                labels += [number] * len(found)
        if not names:
            raise DataError(f"the class folders of {self.folder} hold no images: unpack ImageNet again")
        return names, labels

    def __len__(self) -> int:
        return len(self.names)

    def _file(self, index: int) -> Path:
        return self.folder / self.wnids[self.labels[index]] / self.names[index]

    def origin(self, indices: Sequence[int]) -> Origin:
        settings = [self.size, self.shorter, self.interpolation, self.mean, self.std, self.wnids]
        return Origin([self._file(i) for i in indices], settings)

    def _read(self, index: int) -> Pixels:
        image = read_image(self._file(index)).convert("RGB")
        image = resize_shorter(image, self.shorter, self.interpolation)
        return planes(center_crop(image, *self.size))

    def __getitem__(self, indices: Sequence[int]) -> tuple[Tensor, Tensor]:
        images = torch.from_numpy(np.stack([self._read(i) for i in indices]))
        return scale_pixels(images, self.mean, self.std), torch.tensor([self.labels[i] for i in indices])


def no_classes(folder: Path) -> str:
    """Why a split cannot be read."""
    if not folder.is_dir():
        return f"there is no folder {folder}: give the folder that holds ImageNet's train and val"
    if any(folder.glob(FLAT)):  # the devkit's labels count in its own order, which only its MATLAB file tells
        return (
            f"{folder} holds ImageNet's validation images without their classes: "
            "sort them into folders by class (n01440764 and so on)"
        )
    return f"{folder} holds no class folders such as n01440764: give the folder of ImageNet's train and val"
