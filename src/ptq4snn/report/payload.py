"""The page's data as one JSON text: specs and rows that several panels share are written once.

Rows are kept as columns, and numbers to six digits: the page is small, and the report's JSON has them all.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from ptq4snn.report.panel import Panel, Row
from ptq4snn.report.theme import DARK, LIGHT, chart_config

__all__ = ["Payload", "safe_json"]

FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', Arial, sans-serif"
SIZE = 12


class Payload:
    """Collects panels; `text` is what the page's script reads."""

    def __init__(self) -> None:
        self._specs: dict[str, int] = {}
        self._rows: dict[str, int] = {}
        self._panels: dict[str, list[dict[str, Any]]] = {}

    def add(self, panels: Sequence[tuple[str, Panel]]) -> str:
        """A place of the page with one panel, or with several to choose from by label; gives its id."""
        place = f"chart-{len(self._panels) + 1}"
        self._panels[place] = [{"label": label, **self._entry(p)} for label, p in panels]
        return place

    def _entry(self, p: Panel) -> dict[str, Any]:
        spec, rows = json.dumps(p.spec), json.dumps(columnar(p.rows))
        return {
            "title": p.title,
            "description": p.description,
            "spec": self._specs.setdefault(spec, len(self._specs)),
            "rows": self._rows.setdefault(rows, len(self._rows)),
            "columns": dict(p.columns),
            "height": p.height,
        }

    def text(self) -> str:
        themes = {
            name: {"colours": dict(colours), "config": chart_config(colours, FONT, SIZE)}
            for name, colours in (("light", LIGHT), ("dark", DARK))
        }
        value = {
            "themes": themes,
            "specs": [json.loads(s) for s in self._specs],
            "rows": [json.loads(r) for r in self._rows],
            "panels": self._panels,
        }
        return safe_json(value)


def columnar(rows: Sequence[Row]) -> dict[str, list[Any]]:
    """{field: values}; all rows have the fields of the first."""
    names = rows[0] if rows else ()
    return {name: [rounded(r[name]) for r in rows] for name in names}


def rounded(value: Any) -> Any:
    return float(f"{value:.6g}") if isinstance(value, float) else value


def safe_json(value: Any) -> str:
    """JSON that cannot end the <script> it stands in."""
    text = json.dumps(value, separators=(",", ":"), allow_nan=False)
    for sign in "<>&":
        text = text.replace(sign, f"\\u{ord(sign):04x}")
    return text
