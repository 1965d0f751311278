"""The plan in a bundle: structure as JSON, numbers per channel as packed arrays beside it.

A list of 16 numbers or more becomes {"$array": NAME} and an array NAME of the bundle; integers take the least
width that holds them, other numbers are float64.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ptq4snn.bundle.format import IntegerArray
from ptq4snn.errors import BundleError

__all__ = ["attach", "detach"]

LEAST = 16
WIDTHS = (2, 3, 4, 5, 6, 7, 8, 16, 32)
REFERENCE = "$array"


def _numbers(x: Any) -> NDArray[Any] | None:
    """A rectangular list of numbers as an array, None for anything else."""
    if not isinstance(x, (list, tuple)) or len(x) < LEAST:
        return None
    flat = [i for row in x for i in (row if isinstance(row, (list, tuple)) else [row])]
    if not all(isinstance(i, (int, float)) and not isinstance(i, bool) for i in flat):
        return None
    array = np.asarray(x)
    return array if array.dtype.kind in "if" else None


def _width(array: NDArray[Any]) -> int | None:
    low, high = int(array.min()), int(array.max())
    return next((b for b in WIDTHS if -(2 ** (b - 1)) <= low and high < 2 ** (b - 1)), None)


def detach(
    plan: Any, name: str = "plan"
) -> tuple[Any, dict[str, IntegerArray], dict[str, NDArray[np.float64]]]:
    """The plan with its long lists taken out, and these as integer and float arrays."""
    integers: dict[str, IntegerArray] = {}
    floats: dict[str, NDArray[np.float64]] = {}

    def visit(x: Any, path: str) -> Any:
        if isinstance(x, dict):
            return {k: visit(v, f"{path}/{k}") for k, v in x.items()}
        array = _numbers(x)
        if array is None:
            return [visit(v, f"{path}/{i}") for i, v in enumerate(x)] if isinstance(x, (list, tuple)) else x
        whole = array.dtype.kind == "i" or bool(
            (array == np.rint(array)).all() and (abs(array) < 2**31).all()
        )
        width = _width(array) if whole else None
        if width is not None:
            integers[path] = IntegerArray(array.astype(np.int32), width)
        else:
            floats[path] = array.astype(np.float64)
        return {REFERENCE: path}

    return visit(plan, name), integers, floats


def attach(plan: Any, arrays: dict[str, NDArray[Any]]) -> Any:
    """Inverse of `detach`; a reference to an array that is not there is refused."""
    if isinstance(plan, dict):
        if set(plan) == {REFERENCE}:
            if plan[REFERENCE] not in arrays:
                raise BundleError(
                    f"the plan refers to the array {plan[REFERENCE]!r}, which the bundle does not have"
                )
            return arrays[plan[REFERENCE]].tolist()
        return {k: attach(v, arrays) for k, v in plan.items()}
    return [attach(v, arrays) for v in plan] if isinstance(plan, list) else plan
