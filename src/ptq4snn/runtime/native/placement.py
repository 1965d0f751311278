"""Which operations run together, and where values lie.

Operations of one region run block by block of positions without waiting for each other: they have the same
positions, and read each other only at their own. A value that only its region reads lives in the thread's
own memory. Others share the memory of an image: two that no region needs both may lie in one place.
"""

from __future__ import annotations

from collections.abc import Sequence

from ptq4snn.runtime.native.layout import ALIGNMENT, Kind, NativeOp, NativeValue

__all__ = ["place", "set_regions"]

ALONE = {Kind.GATHER, Kind.MATMUL, Kind.LOAD_STATE, Kind.STORE_STATE}  # they prepare something at every call
POINTWISE = {
    Kind.NEURON, Kind.NEURON_ANY, Kind.COMBINE, Kind.MULTIPLY, Kind.AFFINE, Kind.CLIP, Kind.CHOICE,
    Kind.TIME_SUM, Kind.OVER_TIME, Kind.KEEP, Kind.TAKE, Kind.PUT,
}  # fmt: skip
PROJECTIONS = {Kind.PROJECT, Kind.PROJECT_NEURON, Kind.PROJECT_ROWS}


def _work(values: Sequence[NativeValue], op: NativeOp) -> int:
    if op.kind in (Kind.LOAD_STATE, Kind.STORE_STATE):
        return 1
    return values[op.sources[0] if op.kind is Kind.KEEP else op.output].positions


def _made(op: NativeOp) -> list[int]:
    return [v for v in (op.output, op.second) if v >= 0]


def set_regions(values: Sequence[NativeValue], operations: Sequence[NativeOp]) -> None:
    """Number the regions, in the order of the operations."""
    region, work, alone, loop = -1, 0, True, -1
    inside: set[int] = set()  # values that the region makes
    for op in operations:
        own = _work(values, op)
        points = op.kind in POINTWISE or (op.kind in PROJECTIONS and op.window is None)
        joins = own == work and (not alone or op.kind is Kind.KEEP) and op.kind not in ALONE
        joins = joins and op.loop == loop
        joins = joins and all(v not in inside or (points and values[v].positions == own) for v in op.sources)
        if not joins:
            region, work, alone, inside = region + 1, own, op.kind in ALONE, set()
            loop = op.loop
        op.region = region
        inside.update(_made(op))


def place(values: Sequence[NativeValue], operations: Sequence[NativeOp]) -> dict[str, int]:
    """Set the places of all values; bytes of the four kinds of memory."""
    first: dict[int, int] = {}
    last: dict[int, int] = {}
    spans = _spans(operations)
    own = {v: op.loop for op in operations for v in _made(op) if op.kind is not Kind.PUT}
    for op in operations:
        begin, end = spans.get(op.loop, (op.region, op.region))
        for v in _made(op):  # what a loop puts together lives as long as the loop
            first[v] = begin if op.kind is Kind.PUT else op.region
        for v in (*op.sources, *_made(op)):  # and what it reads from outside
            last[v] = op.region if own.get(v) == op.loop else end
    for v, r in first.items():
        values[v].local = last[v] == r and own.get(v) is not None
    sizes = dict.fromkeys(("time_bytes", "still_bytes"), 0)
    for time, name in ((True, "time_bytes"), (False, "still_bytes")):
        shared = [v for v in first if not values[v].local and values[v].time == time]
        sizes[name] = _share(values, shared, first, last)
        sizes[f"local_{name}"] = _line_up(
            values, [v for v in first if values[v].local and values[v].time == time], first
        )
    return sizes


def _spans(operations: Sequence[NativeOp]) -> dict[int, tuple[int, int]]:
    """First and last region of every loop."""
    spans: dict[int, tuple[int, int]] = {}
    for op in operations:
        if op.loop >= 0:
            begin, _ = spans.get(op.loop, (op.region, op.region))
            spans[op.loop] = begin, op.region
    return spans


def _aligned(size: int) -> int:
    return -(-size // ALIGNMENT) * ALIGNMENT


def _line_up(values: Sequence[NativeValue], which: list[int], first: dict[int, int]) -> int:
    """Local values of one region lie side by side; bytes of a position and step."""
    ends: dict[int, int] = {}
    for v in which:
        values[v].offset = ends.get(first[v], 0)
        ends[first[v]] = values[v].offset + _aligned(values[v].row)
    return max(ends.values(), default=0)


def _share(
    values: Sequence[NativeValue], which: list[int], first: dict[int, int], last: dict[int, int]
) -> int:
    """Each value in the first gap that is wide enough while it lives; bytes of all."""
    live: list[tuple[int, int, int]] = []  # offset, end, last region; sorted
    top = 0
    for v in sorted(which, key=lambda v: first[v]):
        live = [x for x in live if x[2] >= first[v]]
        size, at = _aligned(values[v].positions * values[v].row), 0
        for begin, end, _ in live:
            if begin - at >= size:
                break
            at = max(at, end)
        values[v].offset = at
        live = sorted([*live, (at, at + size, last[v])])
        top = max(top, at + size)
    return top
