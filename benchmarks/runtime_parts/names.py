"""How the figures of a machine are called; the pages are written without torch."""

from __future__ import annotations

from typing import Any

__all__ = ["cpu_name"]


def cpu_name(m: dict[str, Any]) -> str:
    """Key and title of the figures of one machine."""
    model = f" ({m['model']})" if m.get("model") else ""
    return f"{m['processor']}{model}, {m['instructions']}{' only' if m.get('held') else ''}"
