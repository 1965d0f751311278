"""Images, their labels, and what both networks made of them."""

from __future__ import annotations

import base64
import struct
from typing import Any

from ptq4snn.report.panel import Panel, Spec
from ptq4snn.report.units import percent

__all__ = ["KINDS", "panels"]

KINDS = {"image": "Image", "label": "Label", "float": "Float", "quantized": "Quantized"}
SIDE = 120


def panels(data: dict[str, Any]) -> list[Panel]:
    """Four pictures a row; three where there is no label at all."""
    rows = data["rows"]
    kinds = [k for k in KINDS if any(r[k] for r in rows)]
    return [picture(r, kind) for r in rows for kind in kinds]


def picture(r: dict[str, Any], kind: str) -> Panel:
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
