"""Numbers as people read them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

__all__ = ["change", "many", "percent", "significant", "size", "smaller", "weight_bits"]

UNITS = (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10))
NONE = "–"


def significant(value: float | None, digits: int = 3) -> str:
    """1234.5 -> 1,234; 4 -> 4; 12.345 -> 12.3; 0.00012345 -> 0.000123; very small ones with an exponent."""
    if value is None:
        return NONE
    size = abs(value)
    sign = "−" if value < 0 else ""
    if size >= 10 ** (digits - 1) or isinstance(value, int):
        return f"{sign}{size:,.0f}"
    if size == 0:
        return "0"
    if size < 1e-5:
        return f"{sign}{size:.{digits - 1}e}"
    return sign + (f"{size:.{digits}g}" if size < 1 else f"{size:#.{digits}g}".rstrip("."))


def size(count: float | None) -> str:
    """Bytes: 411620 -> 402 KiB."""
    if count is None:
        return NONE
    for unit, least in UNITS:
        if count >= least:
            return f"{significant(count / least)} {unit}"
    return f"{count:,.0f} B"


def percent(share: float | None, digits: int = 3) -> str:
    """A share from 0 to 1: 0.9609 -> 96.1 %."""
    return NONE if share is None else f"{significant(100 * share, digits)} %"


def change(points: float | None, unit: str = "") -> str:
    """A signed difference, with a real minus."""
    if points is None:
        return NONE
    text = f"{abs(points):.2f}{unit}"
    return f"±{text}" if float(f"{points:.2f}") == 0 else f"{'+' if points > 0 else '−'}{text}"


def smaller(before: float | None, after: float | None) -> str | None:
    """How many times smaller, such as 6.9×; None where that says nothing."""
    if not before or not after or before / after < 1.05:
        return None
    return f"{before / after:.1f}×"


def many(count: float) -> str:
    """9390727 -> 9.39 M."""
    for unit, least in (("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if count >= least:
            return f"{significant(count / least)} {unit}"
    return significant(count)


def weight_bits(recipe: Mapping[str, Any]) -> str:
    """3, or 2-3 where overrides give some layers fewer or more."""
    rules = recipe.get("overrides") or {}
    widths = [recipe["weights"], *(w for rule in rules.values() if (w := rule.get("weights")) is not None)]
    return "-".join(dict.fromkeys([str(min(widths)), str(max(widths))]))
