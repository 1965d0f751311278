"""Operations that add and multiply, element by element, and sums over the steps of a loop."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from torch import Tensor

from ptq4snn.discovery import calls
from ptq4snn.discovery.graph import Node
from ptq4snn.lowering.alignment import align
from ptq4snn.lowering.numbering import blanks, same_numbers
from ptq4snn.lowering.operands import complete, joined_kind, number_of, operands, quantum, tracked
from ptq4snn.lowering.tracked import Constant, Fact, Refused, Tracked, common_factor, fraction, worth
from ptq4snn.network.program import Combine, Multiply
from ptq4snn.numerics.limits import INT32

if TYPE_CHECKING:
    from ptq4snn.lowering.lower import Lowering

__all__ = ["RULES"]

LARGEST = INT32 - 1


def follow_add(w: Lowering, node: Node, facts: list[Fact]) -> list[Fact]:
    a, b = operands(node, facts)
    one = Fraction(1)
    own, other = calls.addends(node)
    signs = fraction(own), fraction(other)
    shape = w.graph.values[node.outputs[0]].shape
    if isinstance(a, Constant):
        a, b, signs = b, a, (signs[1], signs[0])
    if isinstance(b, Constant):
        own_part = tracked(a) if b.value == 0 else complete(a)
        return [_add_number(w, own_part, number_of(b), signs, shape)]
    a, b = tracked(a), tracked(b)
    if signs == (one, one) and (sum_so_far := _add_steps(w, a, b)) is not None:
        return [sum_so_far]
    a, b = complete(a), complete(b)
    fa, fb, per_steps = _factors(w, a, b)
    fa, fb = fa * signs[0], fb * signs[1]
    factor = common_factor([fa, fb])
    x = align(w, a, b, shape)
    coefficients = (_coefficient(fa / factor), _coefficient(fb / factor))
    value = w.builder.add(Combine, (x.a, x.b), x.shape, coefficients=coefficients, constant=0)
    kind, scalings = joined_kind(a, b), worth(factor, per_steps)
    return [Tracked(value, x.numbers, kind, None, factor, per_steps, scalings)]


def _factors(w: Lowering, a: Tracked, b: Tracked) -> tuple[Fraction, Fraction, int]:
    """Both factors over one power of the number of steps."""
    if a.per_steps == b.per_steps:
        return a.factor, b.factor, a.per_steps
    return quantum(w, a), quantum(w, b), 0


def _coefficient(x: Fraction) -> int:
    if x.denominator != 1 or abs(x) > LARGEST:
        raise Refused(f"joins numbers of unrelated quanta (a ratio of {float(x):g})")
    return int(x)


def _add_steps(w: Lowering, a: Tracked, b: Tracked) -> Tracked | None:
    """acc + out[t] of a loop over time: a sum over steps, complete with the last."""
    build = w.builder
    if a.value != b.value or a.kind == "data" or not build.of(a.value).time:
        return None
    if a.factor != b.factor or a.numbers.shape != b.numbers.shape:
        return None
    (ta, ua), (tb, ub) = _steps_of(w, a), _steps_of(w, b)
    if not ta or not tb or ta & tb or not same_numbers(ua, ub):
        return None
    if len(ta | tb) < build.steps:
        return replace(a, numbers=ua, summed=ta | tb, binary=False)
    return replace(a, value=build.time_sum(a.value), numbers=ua, summed=None, binary=False)


def _steps_of(w: Lowering, x: Tracked) -> tuple[frozenset[int], Tensor]:
    """The one step (or the steps summed) that all elements are of, and the numbers without it."""
    if x.summed is not None:
        return x.summed, x.numbers
    size = w.builder.batch * w.builder.elements(x.value)
    step = x.numbers // size
    if x.numbers.numel() == 0 or blanks(x.numbers) or int(step.min()) != int(step.max()):
        return frozenset(), x.numbers
    return frozenset([int(step.flatten()[0])]), x.numbers % size


def _add_number(
    w: Lowering, x: Tracked, constant: float, signs: tuple[Fraction, Fraction], shape: tuple[int, ...]
) -> Tracked:
    if constant == 0 and signs[0] == Fraction(1):
        return replace(x, numbers=x.numbers.expand(shape))
    x = w.builder.whole(complete(x))
    own, added = quantum(w, x) * signs[0], fraction(constant) * signs[1]
    factor = common_factor([own, added]) if added else abs(own)
    v = w.builder.of(x.value)
    value = w.builder.add(
        Combine, (x.value,), (v.positions, v.channels), coefficients=(_coefficient(own / factor),),
        constant=_coefficient(added / factor),
    )  # fmt: skip
    opposite = x.binary and own == Fraction(-1) and added == Fraction(1)  # 1 - spikes
    numbers = x.numbers.expand(shape)
    return Tracked(value, numbers, x.kind, None, factor, 0, worth(factor), opposite)


def follow_mul(w: Lowering, node: Node, facts: list[Fact]) -> list[Fact]:
    a, b = operands(node, facts)
    by_number = isinstance(a, Tracked) and isinstance(b, Constant)
    if node.op == "div" and (not by_number or node.given.get("rounding_mode")):
        raise Refused("divides by a tensor or with rounding")
    if isinstance(a, Constant):
        a, b = b, a
    shape = w.graph.values[node.outputs[0]].shape
    if isinstance(b, Constant):
        return [_scaled(w, complete(a), node.op, number_of(b), shape)]
    a, b = complete(a), complete(b)
    factor, per_steps = a.factor * b.factor, a.per_steps + b.per_steps
    x = align(w, a, b, shape)
    value = w.builder.add(Multiply, (x.a, x.b), x.shape)
    kind, scalings = joined_kind(a, b), worth(factor, per_steps)
    return [Tracked(value, x.numbers, kind, None, factor, per_steps, scalings, a.binary and b.binary)]


def _scaled(w: Lowering, x: Tracked, op: str, c: float, shape: tuple[int, ...]) -> Tracked:
    """x * c or x / c: the integers stay, one of them is worth something else."""
    x = replace(x, numbers=x.numbers.expand(shape))
    if c == 0:
        raise Refused(f"{'divides' if op == 'div' else 'multiplies'} by 0")
    if c == 1:
        return x
    if op == "div" and c == w.builder.steps and w.builder.is_summed(x.value) and not x.per_steps:
        # a sum over time, divided by the number of steps: also where there are more of them
        return replace(x, per_steps=1, scalings=(*x.scalings, ("steps",)), binary=False)
    factor = x.factor * (1 / fraction(c) if op == "div" else fraction(c))
    return replace(x, factor=factor, scalings=(*x.scalings, (op, c)), binary=False)


RULES: dict[str, Any] = {"add": follow_add, "multiply": follow_mul}
