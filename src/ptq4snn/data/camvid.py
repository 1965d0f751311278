"""CamVid in one .npz: x uint8 [N, H, W, 3] and y [N, H, W] of train_, val_, test_; 11 classes, 11 = void."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from ptq4snn.data.events import open_npz
from ptq4snn.data.images import (
    IMAGENET_MEAN,
    IMAGENET_STD,
    Pixels,
    center,
    colours,
    height_width,
    scale_pixels,
)
from ptq4snn.data.samples import VOID, Origin, Preprocessing
from ptq4snn.errors import DataError

__all__ = ["CamVidSamples"]

CLASSES = 11


class CamVidSamples:
    """Images float32 [B, 3, H, W] and label maps [B, H, W]; a smaller `size` is cut out of the middle.

    A compressed .npz cannot be mapped: the split is read whole when it is first needed (48 MB for train at
    180 x 240) and kept as bytes.
    """

    classes = CLASSES

    def __init__(
        self, file: Path, split: Literal["train", "val", "test"], preprocessing: Preprocessing | None = None
    ) -> None:
        wanted = preprocessing or Preprocessing()
        if wanted.resize is not None:
            raise DataError("CamVid is cut, not resized: leave resize away")
        self.file, self.split = file, split
        self.size = None if wanted.size is None else height_width(wanted.size)
        self.mean, self.std = colours(wanted.mean, wanted.std, (IMAGENET_MEAN, IMAGENET_STD))

    @cached_property
    def arrays(self) -> tuple[Pixels, Pixels]:
        """Images [N, H, W, 3] and labels [N, H, W], cut."""
        names = [f"{self.split}_{key}" for key in "xy"]
        x, y = open_npz(self.file, tuple(names)).values()
        if (
            x.dtype != np.uint8
            or y.dtype != np.uint8
            or x.ndim != 4
            or x.shape != (*y.shape, 3)
            or not len(x)
        ):
            raise DataError(
                f"{self.file}: {names[0]} is {x.dtype} {list(x.shape)} and {names[1]} {y.dtype} "
                f"{list(y.shape)} instead of uint8 [N, H, W, 3] and uint8 [N, H, W]"
            )
        if y.max() > CLASSES:
            raise DataError(f"{self.file}: {names[1]} has class {y.max()}, CamVid has 0 .. {CLASSES}")
        height, width = self.size or y.shape[1:]
        if height > y.shape[1] or width > y.shape[2]:
            raise DataError(
                f"{self.file} has images of {y.shape[1]} x {y.shape[2]}: "
                f"{height} x {width} cannot be cut from them"
            )
        rows, columns = center(y.shape[1], height), center(y.shape[2], width)
        y = y[:, rows, columns]
        return x[:, rows, columns], np.where(y == CLASSES, np.uint8(VOID), y)

    def __len__(self) -> int:
        return len(self.arrays[0])

    def origin(self, indices: Sequence[int]) -> Origin:
        return Origin([self.file], [self.split, self.size, self.mean, self.std])

    def __getitem__(self, indices: Sequence[int]) -> tuple[Tensor, Tensor]:
        x, y = (torch.from_numpy(values[list(indices)]) for values in self.arrays)
        return scale_pixels(x.permute(0, 3, 1, 2).contiguous(), self.mean, self.std), y.long()
