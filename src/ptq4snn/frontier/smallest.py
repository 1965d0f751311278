"""The smallest point that passes a test, with few tests: what is wider in every respect does no worse.

Tested first is the widest: where it fails, all do. Then, of the points that may still be the answer, the one
that leaves the fewest whatever it shows: passing leaves those that are smaller, failing takes away those that
are no wider in any respect. Where the test is monotone the answer is that of trying all.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar

__all__ = ["Point", "smallest"]


class Point(Protocol):
    @property
    def bytes(self) -> int: ...

    @property
    def widths(self) -> tuple[float, ...]:
        """In every respect; more is wider."""
        ...


P = TypeVar("P", bound=Point)


def smallest(points: Sequence[P], passes: Callable[[P], bool]) -> P | None:
    """Of points of one size the widest counts as the smallest; None: none passes."""
    left = sorted(points, key=lambda p: (p.bytes, [-w for w in p.widths]))
    best: P | None = None
    while left:
        point = left[_next(left)] if best is not None or len(left) < len(points) else _widest(left)
        if passes(point):
            best, left = point, left[: left.index(point)]
        else:
            left = [p for p in left if not _no_wider(p, point)]
    return best


def _widest(points: Sequence[P]) -> P:
    return max(points, key=lambda p: (sum(_no_wider(other, p) for other in points), p.bytes))


def _next(left: Sequence[P]) -> int:
    """The place of the point that leaves the fewest at worst; of several the largest, which likely passes."""

    def remaining(i: int) -> int:
        failing = sum(not _no_wider(p, left[i]) for p in left)
        return max(i, failing)

    return min(range(len(left)), key=lambda i: (remaining(i), -i))


def _no_wider(a: Point, b: Point) -> bool:
    return all(x <= y for x, y in zip(a.widths, b.widths, strict=True))
