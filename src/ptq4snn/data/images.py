"""Still images: decoded by Pillow, resized and cropped as torchvision does it, normalised per colour."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from ptq4snn.errors import DataError
from ptq4snn.extras import needed_by

if TYPE_CHECKING:
    from PIL.Image import Image

__all__ = [
    "IMAGENET_MEAN",
    "IMAGENET_STD",
    "Pixels",
    "center",
    "center_crop",
    "colours",
    "height_width",
    "planes",
    "read_image",
    "resize",
    "resize_shorter",
    "scale_pixels",
]

Pixels = npt.NDArray[np.uint8]
Interpolation = Literal["nearest", "bilinear", "bicubic"]

MOST_PIXELS = 2**26  # of a resized image: a strip of few pixels would become gigabytes

IMAGENET_MEAN = (0.485, 0.456, 0.406)
IMAGENET_STD = (0.229, 0.224, 0.225)


def read_image(path: Path) -> Image:
    """The whole image in its own mode."""
    with needed_by("reading JPEG and PNG images"):
        from PIL import Image
    try:
        with Image.open(path) as image:
            return image.copy()
    except FileNotFoundError as e:
        raise DataError(f"there is no image {path}: unpack the data set again") from e
    except Exception as e:  # damaged bytes make the decoders raise anything, SyntaxError included
        if isinstance(e, OSError) and e.errno is not None:
            raise DataError(f"cannot read the image {path}: {e.strerror}") from e
        raise DataError(f"{path} is truncated or not an image: unpack the data set again") from e


def resize(image: Image, height: int, width: int, interpolation: Interpolation) -> Image:
    from PIL.Image import Resampling

    return image.resize((width, height), Resampling[interpolation.upper()])


def resize_shorter(image: Image, shorter: int, interpolation: Interpolation) -> Image:
    """The shorter side becomes `shorter`; the longer one keeps the ratio, rounded down."""
    width, height = image.size
    longer = int(shorter * max(width, height) / min(width, height))
    if longer * shorter > MOST_PIXELS:
        raise DataError(f"an image of {width} x {height} pixels is too narrow to be resized: leave it out")
    if width <= height:
        return resize(image, longer, shorter, interpolation)
    return resize(image, shorter, longer, interpolation)


def center(whole: int, part: int) -> slice:
    """The middle `part` of `whole` pixels; halves are rounded to even, as Python's round does."""
    start = round((whole - part) / 2)
    return slice(start, start + part)


def center_crop(image: Image, height: int, width: int) -> Image:
    rows, columns = center(image.height, height), center(image.width, width)
    return image.crop((columns.start, rows.start, columns.stop, rows.stop))


def planes(image: Image) -> Pixels:
    """Red, green and blue planes [3, H, W] of an image in any mode."""
    return np.ascontiguousarray(np.asarray(image.convert("RGB")).transpose(2, 0, 1))


def scale_pixels(pixels: Tensor, mean: Sequence[float], std: Sequence[float]) -> Tensor:
    """uint8 images [N, 3, H, W] to the float32 input of the models: (pixel / 255 - mean) / std."""
    offset, scale = (torch.tensor(c).view(-1, 1, 1) for c in (mean, std))
    return (pixels.float() / 255.0 - offset) / scale


def colours(
    mean: tuple[float, ...] | None,
    std: tuple[float, ...] | None,
    default: tuple[Sequence[float], Sequence[float]],
) -> tuple[Sequence[float], Sequence[float]]:
    """Mean and std to use: what the model asks for, or the data set's own."""
    for values in (mean, std):
        if values is not None and len(values) != 3:
            raise DataError(f"mean and std need one value for each of 3 colours, got {list(values)}")
    return mean or default[0], std or default[1]


def height_width(size: int | tuple[int, int]) -> tuple[int, int]:
    return (size, size) if isinstance(size, int) else size
