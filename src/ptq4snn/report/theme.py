"""Colours and chart settings, light and dark: a colour means the same in the page and in all figures.

Specs name colours by tokens ("@before", "@bits4"); `paint` puts in those of a theme. Float values are grey,
quantized ones blue, and more bits stand out more from the background. The widths differ in lightness too, for
colour-blind readers and in print.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

__all__ = ["BITS", "DARK", "LIGHT", "chart_config", "paint"]

Colours = Mapping[str, str]
BITS = (2, 3, 4, 5, 6, 7, 8, 16, 32)

LIGHT: Colours = {
    "paper": "#ffffff", "page": "#f7f7f5", "ink": "#1d2530", "muted": "#596372", "line": "#e1e4e8",
    "accent": "#0b63a8", "warning": "#8a4b00", "warning-paper": "#fff4e0",
    "before": "#8b9099", "after": "#0f6fb8", "weights": "#cc6a1e",
    "bits2": "#a9dccb", "bits3": "#78c3bf", "bits4": "#3f9cb8", "bits5": "#378ab0", "bits6": "#3178a8",
    "bits7": "#2e68a0", "bits8": "#2b5797", "bits16": "#3a2a6b", "bits32": "#8b9099",
    "low": "#eef4f8", "high": "#0a4a86", "less": "#b35a12", "zero": "#f4f4f2", "more": "#0f6fb8",
    "series1": "#0072b2", "series2": "#d55e00", "series3": "#00876a", "series4": "#b65a93",
}  # fmt: skip

DARK: Colours = {
    "paper": "#1a2029", "page": "#12171e", "ink": "#e8ecf1", "muted": "#a3adba", "line": "#2f3843",
    "accent": "#7cc0f5", "warning": "#ffcf87", "warning-paper": "#35290f",
    "before": "#8d96a3", "after": "#5ab1f0", "weights": "#f0a35e",
    "bits2": "#4a7786", "bits3": "#418aa2", "bits4": "#41a3c2", "bits5": "#56b1c6", "bits6": "#6cc0cb",
    "bits7": "#80ced0", "bits8": "#98ddd6", "bits16": "#f4f1b4", "bits32": "#8d96a3",
    "low": "#1f2a37", "high": "#8fd0ff", "less": "#f0a35e", "zero": "#28313c", "more": "#5ab1f0",
    "series1": "#5ab1f0", "series2": "#f58a4b", "series3": "#3ecaa5", "series4": "#e08fc0",
}  # fmt: skip


def paint(value: Any, colours: Colours) -> Any:
    """The same spec with the theme's colours for tokens; a name may begin with @ too."""
    if isinstance(value, dict):
        return {k: paint(v, colours) for k, v in value.items()}
    if isinstance(value, list):
        return [paint(v, colours) for v in value]
    return colours.get(value[1:], value) if isinstance(value, str) and value[:1] == "@" else value


def chart_config(colours: Colours, font: str, size: int, legend: str = "top") -> dict[str, Any]:
    """Vega-Lite's settings for all charts: quiet axes, text of one size."""
    return {
        "background": "transparent",
        "font": font,
        "view": {"stroke": None},
        "axis": {
            "labelColor": colours["muted"], "titleColor": colours["muted"], "titleFontWeight": "normal",
            "labelFontSize": size, "titleFontSize": size, "gridColor": colours["line"], "domain": False,
            "tickColor": colours["line"], "labelOverlap": "parity", "labelSeparation": 5,
            "labelFlush": False, "titlePadding": 6,
        },
        "legend": {
            "orient": legend, "title": None, "labelColor": colours["ink"], "labelFontSize": size,
            "titleColor": colours["muted"], "titleFontSize": size, "titleFontWeight": "normal",
            "symbolOpacity": 1, "labelLimit": 220, "columnPadding": 12, "padding": 0, "offset": 8,
        },
        "title": {
            "color": colours["ink"], "fontSize": size + 1, "anchor": "start", "fontWeight": "bold",
            "offset": 8,
        },
        "text": {"color": colours["ink"], "fontSize": size},
    }  # fmt: skip
