"""Trees of JSON with a few places changed."""

from __future__ import annotations

import copy
import random
from typing import Any

__all__ = ["changed"]

ODD: tuple[Any, ...] = (
    0, 1, -1, 7, 2**31, 2**63, 10**30, 0.5, -0.0, 1e300, float("nan"), float("inf"), True, None, "", "x",
    "a" * 3000,
    "</script><b>", "\ud800", "a\nb", [], {}, [1], [[1]], {"a": 1}, [None], ["x", 3], "1e9", "../..",
)  # fmt: skip


def changed(r: random.Random, tree: Any) -> Any:
    """A copy with up to three places changed."""
    tree = copy.deepcopy(tree)
    for _ in range(r.choice((1, 1, 2, 3))):
        all_of_them = _places(tree)
        if not all_of_them:
            return copy.deepcopy(r.choice(ODD))
        owner, key = r.choice(all_of_them)
        how = r.random()
        if how < 0.2:
            del owner[key]
        elif how < 0.4:
            other, its = r.choice(all_of_them)
            owner[key] = copy.deepcopy(other[its])
        else:
            owner[key] = copy.deepcopy(r.choice(ODD))
    return tree


def _places(x: Any) -> list[tuple[Any, Any]]:
    items = x.items() if isinstance(x, dict) else enumerate(x) if isinstance(x, list) else ()
    return [p for key, value in items for p in ((x, key), *_places(value))]
