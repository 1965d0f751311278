"""Checks of single recipe values: the value, or one sentence that says what is allowed."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from ptq4snn.errors import RecipeError
from ptq4snn.files import short
from ptq4snn.hints import nearest

__all__ = ["boolean", "choice", "integer", "number", "numbers"]


def boolean(name: str, value: Any) -> bool:
    if not isinstance(value, bool):
        raise RecipeError(f"{name} must be true or false, not {short(repr(value))}")
    return value


def choice(name: str, value: Any, allowed: Sequence[object]) -> None:
    """One of `allowed`; of a misspelt name the nearest is suggested."""
    if any(value == a and type(value) is type(a) for a in allowed):
        return
    names = [a for a in allowed if isinstance(a, str)]
    near = nearest(value, names) if isinstance(value, str) else None
    about = "" if near is None else f"; did you mean {near!r}?"
    listed = ", ".join(map(str, allowed))
    raise RecipeError(f"{name} must be one of {listed}, not {short(repr(value))}{about}")


def integer(
    name: str, value: Any, low: int, high: int | None = None, also: tuple[int, ...] = (), hint: str = ""
) -> int:
    """An integer from low to high, or one of `also`; true and false are not numbers."""
    whole = isinstance(value, int) and not isinstance(value, bool)
    if whole and (value in also or (low <= value and (high is None or value <= high))):
        return int(value)
    span = f"from {low} to {high}" if high is not None else f"of at least {low}"
    raise RecipeError(
        f"{name} must be an integer {span}, not {short(repr(value))}" + (f"; {hint}" if hint else "")
    )


def number(
    name: str, value: Any, low: float | None = None, high: float | None = None, hint: str = ""
) -> float:
    """A finite number within the given limits, as a float."""
    finite = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    if finite and (low is None or value >= low) and (high is None or value <= high):
        return float(value)
    if low is None:
        span = "a finite number"
    elif high is None:
        span = f"a finite number of at least {low}"
    else:
        span = f"a number from {low} to {high}"
    raise RecipeError(f"{name} must be {span}, not {short(repr(value))}" + (f"; {hint}" if hint else ""))


def numbers(name: str, values: Any, low: float, high: float) -> tuple[float, ...]:
    """A sequence of at least one number, as a tuple."""
    if not isinstance(values, Sequence) or isinstance(values, str) or not values:
        raise RecipeError(f"{name} must be a list of numbers from {low} to {high}, not {short(repr(values))}")
    return tuple(number(f"every value of {name}", v, low, high) for v in values)
