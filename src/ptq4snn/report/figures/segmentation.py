"""Images, their labels, and what both networks made of them."""

from __future__ import annotations

import base64
import colorsys
import struct
from typing import TYPE_CHECKING

from ptq4snn.data.labels import VOID
from ptq4snn.report.figure import Figure, Heading
from ptq4snn.report.panel import Panel, Row, Spec
from ptq4snn.report.text import table
from ptq4snn.report.units import percent
from ptq4snn.schema.figure_types import SegmentationData, SegmentationRow
from ptq4snn.schema.report_types import Report

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from torch import Tensor

    from ptq4snn.evaluation.examples import Example, Examples

    Pixels = NDArray[np.uint8]

__all__ = ["FIGURE", "KINDS", "data", "palette", "panels", "text"]

KINDS = {"image": "Image", "label": "Label", "float": "Float", "quantized": "Quantized"}
SIDE = 120
WIDTH = 256  # pixels of a picture at most
GOLDEN = 0.6180339887  # steps of the hue: neighbours in number are far apart in colour
COLOURS = 3


def data(found: Examples) -> SegmentationData:
    colours = palette(found.classes)
    return {
        "classes": found.classes,
        "palette": colours.tolist(),
        "rows": [_row(e, colours) for e in found.rows],
    }


def palette(classes: int) -> Pixels:
    """A colour for each class [classes, 3], always the same ones."""
    import numpy as np  # here, because whoever draws needs none

    rows = [
        colorsys.hsv_to_rgb(i * GOLDEN % 1, (0.75, 0.5)[i % 2], (0.95, 0.75, 0.55)[i % 3])
        for i in range(classes)
    ]
    return np.array([[round(255 * v) for v in row] for row in rows], np.uint8).reshape(-1, COLOURS)


def seen(x: Tensor) -> Pixels:
    """One input [..., C, H, W] as a person sees it: time averaged, from black to white between its extremes,
    grey unless it has three channels."""
    image = x.double().reshape(-1, *x.shape[-3:]).mean(0) if x.dim() > 2 else x.double().unsqueeze(0)
    image = image if len(image) == COLOURS else image.mean(0, keepdim=True).expand(COLOURS, -1, -1)
    low, high = float(image.min()), float(image.max())
    levels = ((image - low) / ((high - low) or 1.0) * 255).round()
    pixels: Pixels = levels.numpy().astype("uint8").transpose(1, 2, 0)
    return pixels


def _row(e: Example, colours: Pixels) -> SegmentationRow:
    from ptq4snn.report.png import data_url

    stride = -(-e.after.shape[-1] // WIDTH)

    def shown(pixels: Pixels) -> str:
        return data_url(pixels[::stride, ::stride])

    def painted(classes: Tensor) -> str:
        return shown(paint(classes, colours))

    return {
        "image": shown(seen(e.x)),
        "label": None if e.label is None else painted(e.label),
        "float": None if e.before is None else painted(e.before),
        "quantized": painted(e.after),
        "differs": None if e.before is None else float((e.before != e.after).double().mean()),
    }


def paint(classes: Tensor, colours: Pixels) -> Pixels:
    """Classes [H, W] in their colours; what is not labelled, or of no known class, is black."""
    import numpy as np

    black = np.zeros((VOID + 1, COLOURS), np.uint8)
    black[: len(colours)] = colours[: VOID + 1]
    black[VOID] = 0
    out: Pixels = black[classes.clamp(0, VOID).numpy()]
    return out


def panels(data: SegmentationData) -> list[Panel]:
    """Four pictures a row; three where there is no label at all."""
    rows: list[Row] = [{**r} for r in data["rows"]]
    kinds = [k for k in KINDS if any(r[k] for r in rows)]
    return [picture(r, kind) for r in rows for kind in kinds]


def text(data: SegmentationData) -> list[str]:
    """How much of each image changed; the pictures are for `ptq4snn figure`."""
    if not data["rows"]:
        return ["the network gives no label maps, or the samples have none: there is nothing to show"]
    kinds = [k for k in KINDS if k != "image"]
    rows = [
        [str(i), *("yes" if r[k] else "-" for k in kinds), percent(r["differs"])]  # type: ignore[literal-required]
        for i, r in enumerate(data["rows"], 1)
    ]
    drawn = "ptq4snn figure segmentation FILE.json draws them"
    return [*table(["image", *kinds, "pixels that differ"], rows, left=1), "", drawn]


def picture(r: Row, kind: str) -> Panel:
    words = (
        f"{percent(r['differs'])} of the pixels differ between float and quantized"
        if kind == "quantized" and r["differs"] is not None
        else KINDS[kind]
    )
    rows = [{"url": r[kind]}] if r[kind] else []
    height = round(SIDE * ratio(r["image"]))
    return Panel(KINDS[kind], f"{words}.", image(height), rows, {}, height=height, width=SIDE)


def ratio(url: str) -> float:
    """Height over width of a PNG, from its header."""
    width, height = struct.unpack(">II", base64.b64decode(url.partition(",")[2][:32])[16:24])
    return float(height / width)


def image(height: int) -> Spec:
    middle = {"x": {"value": SIDE / 2}, "y": {"value": height / 2}}
    return {
        "mark": {"type": "image", "width": SIDE, "height": height},
        "encoding": {"url": {"field": "url", "type": "nominal"}, **middle},
    }


def absent(report: Report) -> str:
    return "the network gives no label maps"


FIGURE = Figure(
    "segmentation",
    "image, label, float and quantized prediction",
    panels,
    text,
    heading=Heading("segmentation", "Examples", "Segmentation examples"),
    absent=absent,
    columns=4,
    experiment="segmentation-examples",
)
