"""PASCAL VOC2012 segmentation in its official layout, prepared as MMSegmentation's tests do.

image   scaled by min(4 s / longer, s / shorter), s = 512; bilinear; ImageNet's mean and deviation
label   palette numbers of the PNG at native size, 255 = VOID
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from ptq4snn.data.images import (
    IMAGENET_MEAN,
    IMAGENET_STD,
    Pixels,
    colours,
    height_width,
    planes,
    read_image,
    resize,
    scale_pixels,
)
from ptq4snn.data.samples import VOID, Origin, Preprocessing
from ptq4snn.errors import DataError

__all__ = ["VOCSamples", "find_voc"]

SHORTER, RATIO = 512, 4  # MMSegmentation's scale (2048, 512)
CLASSES = 21
LISTS = Path("ImageSets", "Segmentation")


def find_voc(root: Path) -> Path | None:
    """The folder with JPEGImages: `root` or the archive's own folder there."""
    folders = (root, root / "VOC2012", root / "VOCdevkit" / "VOC2012")
    return next((f for f in folders if (f / LISTS).is_dir()), None)


class VOCSamples:
    """Images float32 [B, 3, H, W] and label maps [B, H, W] of the train list, or of the val list.

    With a `size` both are scaled to it (labels to the nearest); without one sizes differ, and a batch is one
    image. Always bilinear, as published.
    """

    classes = CLASSES

    def __init__(self, root: Path, train: bool, preprocessing: Preprocessing | None = None) -> None:
        wanted = preprocessing or Preprocessing()
        folder = find_voc(root)
        if folder is None:
            raise DataError(f"the folder {root} holds no VOC2012 with {LISTS}: give the unpacked VOCdevkit")
        self.folder = folder
        self.size = None if wanted.size is None else height_width(wanted.size)
        self.sizes_differ = self.size is None
        self.shorter = wanted.resize or SHORTER
        self.mean, self.std = colours(wanted.mean, wanted.std, (IMAGENET_MEAN, IMAGENET_STD))
        self.names = read_list(folder / LISTS / ("train.txt" if train else "val.txt"))
        for name in self.names:
            for file in self._files(name):
                if not file.is_file():
                    raise DataError(f"there is no {file}, which VOC2012's list names: unpack VOC2012 again")

    def _files(self, name: str) -> tuple[Path, Path]:
        return self.folder / "JPEGImages" / f"{name}.jpg", self.folder / "SegmentationClass" / f"{name}.png"

    def __len__(self) -> int:
        return len(self.names)

    def origin(self, indices: Sequence[int]) -> Origin:
        files = [file for i in indices for file in self._files(self.names[i])]
        return Origin(files, [self.size, self.shorter, self.mean, self.std])

    def _read(self, index: int) -> tuple[Pixels, Pixels]:
        """Image [3, H, W] and labels [H, W]."""
        jpeg, png = self._files(self.names[index])
        image, label = read_image(jpeg), read_image(png)
        if label.mode not in ("P", "L"):
            raise DataError(
                f"{png} has no class numbers but mode {label.mode}: give VOC2012's own palette PNGs"
            )
        if label.size != image.size:
            raise DataError(f"{png} has {label.size} pixels, its image {image.size}: unpack VOC2012 again")
        numbers = np.asarray(label)
        if bad := numbers[(numbers >= CLASSES) & (numbers != VOID)].tolist():
            raise DataError(f"{png} has class {bad[0]}: VOC2012 has 0 .. {CLASSES - 1} and {VOID}")
        if self.size is None:
            return planes(resize(image.convert("RGB"), *self._scaled(*image.size), "bilinear")), numbers
        label = resize(label, *self.size, "nearest")
        return planes(resize(image.convert("RGB"), *self.size, "bilinear")), np.asarray(label)

    def _scaled(self, width: int, height: int) -> tuple[int, int]:
        """Height and width of the input."""
        scale = min(RATIO * self.shorter / max(width, height), self.shorter / min(width, height))
        return int(height * scale + 0.5), int(width * scale + 0.5)

    def __getitem__(self, indices: Sequence[int]) -> tuple[Tensor, Tensor]:
        read = [self._read(i) for i in indices]
        if len({(image.shape, label.shape) for image, label in read}) > 1:
            raise DataError("the images of VOC2012 differ in size: use batch size 1, or give a size for all")
        images, labels = (torch.from_numpy(np.stack(part)) for part in zip(*read, strict=True))
        return scale_pixels(images, self.mean, self.std), labels.long()


def read_list(file: Path) -> list[str]:
    """The image names of an official list."""
    try:
        names = file.read_text("ascii").split()
    except FileNotFoundError as e:
        raise DataError(f"there is no list {file}: unpack VOC2012 again") from e
    except (OSError, UnicodeDecodeError) as e:
        raise DataError(f"cannot read the list {file}: unpack VOC2012 again") from e
    if not names:
        raise DataError(f"the list {file} is empty: unpack VOC2012 again")
    return names
