"""What an ATen call says, read once for all readers of the graph: arguments by name, plain meanings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import lcm
from typing import Any

from ptq4snn.discovery.graph import Node, Ref

__all__ = [
    "Bilinear", "Means", "Reduction", "Window", "adaptive_means", "addends", "bilinear", "bounds", "by_name",
    "operands", "output_sizes", "padding", "reduction", "window", "window_means",
]  # fmt: skip

Operand = Ref | float


def by_name(schema: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """All arguments of a call by their names in the schema, defaults filled in."""
    given: dict[str, Any] = {}
    for place, argument in enumerate(schema.arguments):
        if argument.name in kwargs:
            given[argument.name] = kwargs[argument.name]
        elif not argument.kwarg_only and place < len(args):
            given[argument.name] = args[place]
        elif argument.has_default_value():
            given[argument.name] = argument.default_value
    return given


def operands(node: Node) -> tuple[Operand, Operand]:
    """The two sides of add, mul, gt and their like; a literal is a number."""
    a, b = (node.given[name] for name in ("self", "other"))
    return (a if isinstance(a, Ref) else float(a)), (b if isinstance(b, Ref) else float(b))


def addends(node: Node) -> tuple[float, float]:
    """What the operands of add, sub and rsub are multiplied by before they are added."""
    alpha = float(node.given.get("alpha", 1))
    return {"add": (1.0, alpha), "sub": (1.0, -alpha), "rsub": (-alpha, 1.0)}[node.op]


def bounds(node: Node) -> tuple[float | None, float | None]:
    """The lower and the upper bound that clamp, hardtanh and relu clip to."""
    if node.op == "relu":
        return 0.0, None
    low, high = ("min_val", "max_val") if node.op == "hardtanh" else ("min", "max")
    found = (node.given.get(low), node.given.get(high))
    return tuple(None if b is None else float(b) for b in found)  # type: ignore[return-value]


@dataclass(frozen=True)
class Reduction:
    """A sum, mean or maximum over whole axes."""

    how: str  # sum, mean or max
    axes: tuple[int, ...]  # from 0
    keepdim: bool


def reduction(node: Node, rank: int) -> Reduction:
    dims = node.given.get("dim")
    dims = [dims] if isinstance(dims, int) else dims
    axes = tuple(d % rank for d in dims) if dims else tuple(range(rank))
    how = "max" if node.op in ("amax", "max") else node.op
    return Reduction(how, axes, bool(node.given.get("keepdim", False)))


@dataclass(frozen=True)
class Window:
    """A pool over windows; one entry of each for every pooled axis, which are the last ones."""

    kernel: tuple[int, ...]
    stride: tuple[int, ...]
    padding: tuple[int, ...]
    dilation: tuple[int, ...]
    alike: bool  # every mean divides by the same number
    fixed: bool  # by a number that the call gives
    whole: bool  # means divide by the number of elements inside the image
    ceil: bool  # the last windows may reach over the end

    @property
    def rank(self) -> int:
        return len(self.kernel)


def window(node: Node, shape: Sequence[int]) -> Window:
    """Of a pool over the last axes of a tensor of `shape`."""
    rank, given = pooled_axes(node), node.given
    kernel = spread(given["kernel_size"], rank)
    pads = spread(given["padding"], rank)
    stride = spread(given["stride"], rank) if given["stride"] else kernel
    axes = zip(shape[-rank:], kernel, stride, pads, strict=True)
    cut = any((n + 2 * p - k) % s for n, k, s, p in axes)  # ceil_mode adds a window that is not whole
    alike = not (
        (given.get("ceil_mode") and cut)
        or given.get("divisor_override") is not None
        or (any(pads) and not given.get("count_include_pad", True))
    )
    fixed = given.get("divisor_override") is not None
    whole = not given.get("count_include_pad", True) or not any(pads)
    dilation = spread(given.get("dilation", 1), rank)
    return Window(kernel, stride, pads, dilation, alike, fixed, whole, bool(given.get("ceil_mode")))


@dataclass(frozen=True)
class Means:
    """Means of windows of different sizes along one axis, each tap counted `weights` times of `down`."""

    at: tuple[tuple[int, ...], ...]  # [out][taps]; -1 counts nothing
    weights: tuple[tuple[int, ...], ...]
    down: int


def adaptive_means(n: int, out: int) -> Means:
    """Of an adaptive pool of n elements: from floor(i n / out) to ceil((i + 1) n / out)."""
    spans = [(i * n // out, -(-(i + 1) * n // out)) for i in range(out)]
    return _means(n, [(a, b, b - a) for a, b in spans])


def window_means(w: Window, axis: int, n: int, out: int) -> Means:
    """Of a pool whose windows are cut at the border, along one of its axes."""
    spans = []
    for i in range(out):
        start = i * w.stride[axis] - w.padding[axis]
        end = min(start + w.kernel[axis], n + w.padding[axis])
        inside = max(start, 0), min(end, n)
        spans.append((*inside, inside[1] - inside[0] if w.whole else end - start))
    return _means(n, spans)


def _means(n: int, spans: list[tuple[int, int, int]]) -> Means:
    """From (first, behind the last, divisor) of every window."""
    down = lcm(*(size for _, _, size in spans))
    taps = max(end - start for start, end, _ in spans)
    at = tuple(tuple(i if i < b else -1 for i in range(a, a + taps)) for a, b, _ in spans)
    weights = tuple(tuple(down // d if i < b else 0 for i in range(a, a + taps)) for a, b, d in spans)
    return Means(at, weights, down)


def output_sizes(node: Node) -> tuple[int, ...]:
    """Sizes of the last axes behind an adaptive pool."""
    return spread(node.given["output_size"], pooled_axes(node))


def pooled_axes(node: Node) -> int:
    """max_pool2d_with_indices -> 2."""
    return int(node.op.split("pool")[1][0])


def spread(x: Any, rank: int) -> tuple[int, ...]:
    """One entry for each axis."""
    values = tuple(x) if isinstance(x, (list, tuple)) else (x,)
    return values * rank if len(values) == 1 else values


@dataclass(frozen=True)
class Bilinear:
    """Upsampling of the last two axes, each by a whole number; 1 leaves an axis alone."""

    ratios: tuple[int, int]


def bilinear(node: Node, before: Sequence[int], after: Sequence[int]) -> Bilinear | None:
    """None where a ratio is not a whole number, or corners are aligned."""
    ratios = tuple(a // b for a, b in zip(after[-2:], before[-2:], strict=True))
    whole = all(r > 0 and r * b == a for r, a, b in zip(ratios, after[-2:], before[-2:], strict=True))
    same_size = ratios == (1, 1)
    return (
        Bilinear((ratios[0], ratios[1])) if whole and (same_size or not node.given["align_corners"]) else None
    )


def padding(node: Node) -> tuple[list[int], float]:
    """Elements added before and after, last axis first, and their value."""
    return list(node.given["pad"]), float(node.given.get("value", 0))
