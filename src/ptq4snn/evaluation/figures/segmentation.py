"""A few samples of a segmentation beside what both networks, and the labels, say of their pixels."""

from __future__ import annotations

import colorsys

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from ptq4snn.data.samples import VOID
from ptq4snn.evaluation.examples import Example, Examples
from ptq4snn.evaluation.figures.common import Data
from ptq4snn.evaluation.png import data_url

__all__ = ["palette", "picture", "segmentation"]

WIDTH = 256  # pixels of a picture at most
GOLDEN = 0.6180339887  # steps of the hue: neighbours in number are far apart in colour
COLOURS = 3
Pixels = NDArray[np.uint8]


def segmentation(found: Examples) -> Data:
    colours = palette(found.classes)
    return {
        "classes": found.classes,
        "palette": colours.tolist(),
        "rows": [_row(e, colours) for e in found.rows],
    }


def palette(classes: int) -> Pixels:
    """A colour for each class [classes, 3], always the same ones."""
    rows = [
        colorsys.hsv_to_rgb(i * GOLDEN % 1, (0.75, 0.5)[i % 2], (0.95, 0.75, 0.55)[i % 3])
        for i in range(classes)
    ]
    return np.array([[round(255 * v) for v in row] for row in rows], np.uint8).reshape(-1, COLOURS)


def picture(x: Tensor) -> Pixels:
    """One input [..., C, H, W] as a person sees it: time averaged, from black to white between its extremes,
    grey unless it has three channels."""
    image = x.double().reshape(-1, *x.shape[-3:]).mean(0) if x.dim() > 2 else x.double().unsqueeze(0)
    image = image if len(image) == COLOURS else image.mean(0, keepdim=True).expand(COLOURS, -1, -1)
    low, high = float(image.min()), float(image.max())
    levels = ((image - low) / ((high - low) or 1.0) * 255).round()
    pixels: Pixels = levels.numpy().astype(np.uint8).transpose(1, 2, 0)
    return pixels


def _row(e: Example, colours: Pixels) -> Data:
    stride = -(-e.after.shape[-1] // WIDTH)

    def shown(pixels: Pixels) -> str:
        return data_url(pixels[::stride, ::stride])

    def painted(classes: Tensor | None) -> str | None:
        return None if classes is None else shown(paint(classes, colours))

    return {
        "image": shown(picture(e.x)),
        "label": painted(e.label),
        "float": painted(e.before),
        "quantized": painted(e.after),
        "differs": None if e.before is None else float((e.before != e.after).double().mean()),
    }


def paint(classes: Tensor, colours: Pixels) -> Pixels:
    """Classes [H, W] in their colours; what is not labelled, or of no known class, is black."""
    black = np.zeros((VOID + 1, COLOURS), np.uint8)
    black[: len(colours)] = colours[: VOID + 1]
    black[VOID] = 0
    out: Pixels = black[classes.clamp(0, VOID).numpy()]
    return out
