"""One drawing: what it shows in words, how it is drawn, and the rows it is drawn from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import log10
from typing import Any

from ptq4snn.report.theme import BITS

__all__ = [
    "MANY",
    "Panel",
    "Row",
    "Spec",
    "axis_of_bytes",
    "bits_scale",
    "channel",
    "colours",
    "crowd",
    "round_bytes",
]

Spec = dict[str, Any]
Row = dict[str, Any]
MANY = 60  # marks beyond which a screen reader is given the table only


@dataclass(frozen=True)
class Panel:
    """`spec` is a single view or a layer, without data and size; colours are tokens of the theme."""

    title: str
    description: str  # stands for the picture: what is to be seen, with numbers
    spec: Spec
    rows: Sequence[Row]
    columns: Mapping[str, str]  # fields of the rows and their headings, for the table beside the picture
    height: int = 240  # of the plot
    width: int = 250  # of the plot in a file; the page gives it the width there is
    wide: bool = False  # a row of its own in the page

    def drawn(self) -> Spec:
        """The spec with its data and its words."""
        return {
            **self.spec,
            "description": f"{self.title}. {self.description}",
            "data": {"values": [*self.rows]},
        }


def channel(field: str, title: str | None = None, kind: str = "quantitative", **more: Any) -> Spec:
    """An encoding of a field; an axis without a title where there is none."""
    return {"field": field, "type": kind, "title": title, **more}


def colours(field: str, tokens: Mapping[str, str], **more: Any) -> Spec:
    """A colour for each value of a field, by tokens of the theme."""
    scale = {"domain": [*tokens], "range": [f"@{t}" for t in tokens.values()]}
    return {"field": field, "type": "nominal", "scale": scale, "title": None, **more}


def bits_scale(used: Sequence[int], field: str = "bits", **more: Any) -> Spec:
    """The ordinal colours of widths, for those that occur."""
    known = [b for b in BITS if b in used]
    names = {str(b): f"bits{b}" for b in known}
    return colours(field, names, legend={"title": "bits", "titleOrient": "left"}, **more)


def axis_of_bytes(**more: Any) -> Spec:
    """Ticks labelled in B, KiB, MiB or GiB."""
    steps = (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10))
    text = "datum.value + ' B'"
    for unit, least in reversed(steps):
        text = f"datum.value >= {least} ? format(datum.value / {least}, ',.3~r') + ' {unit}' : {text}"
    return {"labelExpr": text, **more}


def round_bytes(values: Sequence[int], count: int) -> list[int]:
    """About `count` ticks around the values, at round numbers of their binary unit."""
    low, high = min(values), max(values)
    unit = next((u for u in (2**30, 2**20, 2**10) if high >= 4 * u), 1)
    rough = max(1.0, (high - low) / unit / count)
    ten = 10 ** int(log10(rough))
    step = unit * next(n * ten for n in (1, 2, 5, 10) if n * ten >= rough)
    return list(range(low // step * step, high + step, step))


def crowd(rows: Sequence[Row]) -> Spec:
    """Settings of a mark that there are many of: its single marks are not read out."""
    return {"aria": False} if len(rows) > MANY else {}
