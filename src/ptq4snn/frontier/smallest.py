"""The smallest point that passes a test, with few tests: what is wider in every respect does no worse.

Of the points that may still be the answer the one is tested that leaves the fewest whatever it shows: passing
leaves those that are smaller, failing takes away those that are no wider in any respect. Where the test is
monotone the answer is that of trying all. Where it is noisy, it ends with nothing only after several wide
points have failed, and as few points are tested, few can pass by luck.
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
        point = left[_next(left)]
        if passes(point):
            best, left = point, left[: left.index(point)]
        else:
            left = [p for p in left if not _no_wider(p, point)]
    return best


def _next(left: Sequence[P]) -> int:
    """The place of the point that leaves the fewest at worst; of several the largest, which likely passes."""

    def remaining(i: int) -> int:
        failing = sum(not _no_wider(p, left[i]) for p in left)
        return max(i, failing)

    return min(range(len(left)), key=lambda i: (remaining(i), -i))


def _no_wider(a: Point, b: Point) -> bool:
    return all(x <= y for x, y in zip(a.widths, b.widths, strict=True))
