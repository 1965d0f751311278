"""Proof that no input can overflow a program: interval arithmetic from the input to the outputs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ptq4snn.errors import BundleError
from ptq4snn.network import program as ops
from ptq4snn.numerics.limits import INT32, ZERO_FRACTION_BITS
from ptq4snn.runtime.neuron_bounds import charged, lifted, settled
from ptq4snn.runtime.parameters import (
    Bounds,
    Integers,
    Mirror,
    NeuronNumbers,
    ProjectionNumbers,
    Reals,
    Rescale,
)
from ptq4snn.runtime.ranges import Range, align, fits, for_steps, number, product_fits
from ptq4snn.runtime.state import MAX_SESSION, MAX_STEPS, delay_field

__all__ = ["ROUNDS", "Signed", "prove", "prove_for"]

# of weights, groups, and whether over all inputs: the sums of `_signed`
Signed = dict[tuple[str, int, bool], tuple[Reals, Reals]]
ROUNDS = 8  # that something goes round before its range must have been found


@dataclass(frozen=True)
class _Proof:
    program: ops.Program
    projections: Mapping[str, ProjectionNumbers]
    neurons: Mapping[str, NeuronNumbers]
    mirrors: Mapping[str, Mirror]
    ranges: dict[int, Range]
    sums: dict[str, tuple[Integers, Integers]]
    potentials: dict[str, int]
    signed: Signed
    delayed: dict[int, Range]  # what goes round, as far as it is known


def prove(
    program: ops.Program,
    projections: Mapping[str, ProjectionNumbers],
    neurons: Mapping[str, NeuronNumbers],
    mirrors: Mapping[str, Mirror],
) -> Bounds:
    """Bounds of a checked program, for as many steps as they can be proven for; a program in which something
    may not fit in MAX_STEPS of them is refused. Without a sum over time there is no end."""

    def attempt(steps: int) -> Bounds:
        with for_steps(steps):
            return _settle(_Proof(program, projections, neurons, mirrors, {}, {}, {}, signed, {}), steps)

    signed: Signed = {}
    best, low, high = attempt(MAX_STEPS), MAX_STEPS.bit_length() - 1, MAX_SESSION.bit_length()
    trial = high - 1
    while low + 1 < high:
        try:
            best, low = attempt(2**trial), trial
        except BundleError:
            high = trial
        trial = (low + high) // 2
    return best


def prove_for(
    program: ops.Program,
    projections: Mapping[str, ProjectionNumbers],
    neurons: Mapping[str, NeuronNumbers],
    mirrors: Mapping[str, Mirror],
    steps: int,
    signed: Signed | None = None,
) -> Bounds:
    """Bounds of a checked program for sequences of up to `steps` steps: the fewer, the narrower. `signed`
    keeps what the next proof of the same weights may use."""
    known = {} if signed is None else signed
    with for_steps(steps):
        return _settle(_Proof(program, projections, neurons, mirrors, {}, {}, {}, known, {}), steps)


def _settle(proof: _Proof, steps: int) -> Bounds:
    """What goes round is 0 at first: its range is found by going round until it does not grow."""
    delays = [op for op in proof.program.operations if isinstance(op, ops.Delay)]
    for op in delays:
        proof.delayed[op.output] = number(0, 0, proof.program.values[op.output].channels)
    for _ in range(ROUNDS):
        found = _prove(proof, steps)
        grown = False
        for op in delays:
            before, x = proof.delayed[op.output], proof.ranges[op.inputs[0]].with_zero().whole()
            bits, zero = delay_field(int(x.lo.min()), int(x.hi.max()))
            low, high = zero - 2 ** (bits - 1), zero + 2 ** (bits - 1) - 1
            if low < before.lo.min() or high > before.hi.max():
                proof.delayed[op.output], grown = number(low, high, len(before.lo)), True
        if not grown:
            return found
    raise BundleError(f"what goes round through '{delays[0].name}' grows from step to step; give spikes back")


def _delay(proof: _Proof, op: ops.Delay, _: Sequence[Range]) -> Range:
    return proof.delayed[op.output]


def _prove(proof: _Proof, steps: int) -> Bounds:
    program = proof.program
    for op in program.operations:
        inputs = [] if isinstance(op, ops.Delay) else [proof.ranges[v] for v in op.inputs]
        out = _RULES[type(op)](proof, op, inputs)
        proof.ranges[op.output] = fits(out, op.name, "its value")
    values = tuple(proof.ranges[v].ends() for v in range(len(program.values)))
    return Bounds(values, proof.sums, proof.potentials, steps)


def _quantize(proof: _Proof, op: ops.Quantize, _: Sequence[Range]) -> Range:
    return number(0, 255, proof.program.values[op.output].channels)


def _project(proof: _Proof, op: ops.Project, inputs: Sequence[Range]) -> Range:
    n, x = proof.projections[op.name], inputs[0].with_zero()
    if n.over_time:
        x = replace(x.raised(max(1, x.degree)), wide=True)
    lo, hi = _weighted(proof, op, x.lo, x.hi)
    sums = fits(replace(x, lo=lo, hi=hi), op.name, "its sum W x")
    _keep_sums(proof, op.name, sums)
    shifted = fits(sums.times(2.0**n.shift), op.name, "its shifted sum")
    lo, hi = _bias(proof, n, op)
    y = fits(shifted.plus(lo, hi), op.name, "its sum with the bias")
    if n.over_time and n.role != "output":  # (y - bias) T / T' + bias, rounded
        free = shifted.plus(lo - n.bias, hi - n.bias)
        y = replace(free.times(float(proof.program.steps)), degree=free.degree - 1)
        y = fits(y.plus(n.bias - 1.0, n.bias + 1.0), op.name, "its sum at another number of steps")
    if n.rescale is None:
        return y
    return _rescaled(n.rescale, y.whole(), op.name)


def _rescaled(r: Rescale, y: Range, name: str) -> Range:
    """clip(rshift(y m, n))."""
    product_fits(y, r.multipliers, name, "its rescaled sum")
    by, half = r.multipliers * 2.0**-r.shifts, 2.0 ** (r.bits - 1)
    lo, hi = np.floor(y.lo * by), np.ceil(y.hi * by)
    return Range(np.clip(lo, -half, half - 1), np.clip(hi, -half, half - 1))


def _signed(proof: _Proof, op: ops.Project, all_inputs: bool) -> tuple[Reals, Reals]:
    """Sums over the taps of the positive and of the negative weights [G, Cout / G, Cin / G], or also over
    the inputs [G, Cout / G, 1]."""
    key = op.name, op.groups, all_inputs
    if key not in proof.signed:
        weight, groups = proof.projections[op.name].weight, op.groups
        inputs = 1 if all_inputs else weight.shape[1]
        w = weight.reshape(groups, weight.shape[0] // groups, inputs, -1)
        positive = np.maximum(w, 0).sum(-1, dtype=np.int64).astype(np.float64)
        negative = -np.minimum(w, 0).sum(-1, dtype=np.int64).astype(np.float64)
        proof.signed[key] = positive, negative
    return proof.signed[key]


def _weighted(proof: _Proof, op: ops.Project, lo: Reals, hi: Reals) -> tuple[Reals, Reals]:
    """Range of sum w x [Cout] for x in lo .. hi [Cin] around 0, positive and negative weights apart. Spikes
    have one range for all inputs: then a sum over all weights of an output tells it."""
    alike = bool((lo == lo[0]).all() and (hi == hi[0]).all())
    positive, negative = _signed(proof, op, alike)
    lo, hi = (v[:1].reshape(1, 1, 1) if alike else v.reshape(len(positive), -1, 1) for v in (lo, hi))
    return (positive @ lo - negative @ hi).reshape(-1), (positive @ hi - negative @ lo).reshape(-1)


def _bias(proof: _Proof, n: ProjectionNumbers, op: ops.Project) -> tuple[Reals, Reals]:
    """Range of the bias with the input's zero point under any of the taps [Cout]."""
    rows = n.bias.astype(np.float64).reshape(-1, n.bias.shape[-1])  # one, or one for each position
    least, most = rows.min(0), rows.max(0)
    if n.input is None or not n.input.inside.any():
        return least, most
    zeros = np.broadcast_to(n.input.inside.astype(np.float64), (n.weight.shape[1] * op.groups,))
    inside = _weighted(proof, op, np.minimum(zeros, 0), np.maximum(zeros, 0))
    r = fits(Range(*inside, wide=True).times(2.0**n.shift), op.name, "its zero point")
    r = replace(r.times(-(2.0**-ZERO_FRACTION_BITS)), wide=False)
    r = fits(r.plus(least - 1, most + 1), op.name, "its bias with the zero point")
    return np.minimum(np.floor(r.lo), least), np.maximum(np.ceil(r.hi), most)


def _keep_sums(proof: _Proof, name: str, sums: Range) -> None:
    """A projection may run more than once."""
    r = sums.whole()
    lo, hi = r.lo.astype(np.int64), r.hi.astype(np.int64)
    if name in proof.sums:
        before = proof.sums[name]
        lo, hi = np.minimum(lo, before[0]), np.maximum(hi, before[1])
    proof.sums[name] = lo, hi


def _neuron(proof: _Proof, op: ops.Neuron, inputs: Sequence[Range]) -> Range:
    n = proof.neurons[op.name]
    x = fits(inputs[0].times(op.factor * 2.0**n.shift), op.name, "its input")
    if op.channel is not None:
        x = x.hull(len(n.bits))
    if n.over_time:  # x T / T', rounded
        x = x.raised(max(1, x.degree)).times(float(proof.program.steps))
        x = replace(x, degree=x.degree - 1, wide=True).plus(-1.0, 1.0)
    a = fits(x.whole(), op.name, "its input") if op.once else charged(n, x.whole(), op.name)
    after = a if op.once else settled(n, a, op.name)
    proof.potentials[op.name] = int(max(a.peak(), after.peak()))
    channels = proof.program.values[op.output].channels
    if op.potential is not None:
        out = lifted(n, op.name) if op.carried else a
        proof.ranges[op.potential] = out if op.channel is None else out.hull(channels)
    return number(0, n.most, channels)


def _pool(proof: _Proof, op: ops.Pool, inputs: Sequence[Range]) -> Range:
    x = inputs[0]
    if op.how == "max":
        return x if op.window is not None or -1 not in (op.taps or ()) else x.with_zero()
    x = x.with_zero()
    if op.window is not None:
        return x.times(float(np.prod(op.window.kernel)))
    if op.axes is not None:  # weights are not negative
        most = [np.asarray(a.weights, np.float64).reshape(-1, a.kernel).sum(1).max() for a in op.axes]
        return x.times(float(np.prod(most)))
    taps, weights = op.table(proof.program.values[op.output].positions)
    w = (taps >= 0) * (1.0 if weights is None else weights.astype(np.float64))
    positive, negative = np.maximum(w, 0).sum(1).max(), np.maximum(-w, 0).sum(1).max()
    return replace(x, lo=positive * x.lo - negative * x.hi, hi=positive * x.hi - negative * x.lo)


def _gather(proof: _Proof, op: ops.Gather, inputs: Sequence[Range]) -> Range:
    parts = align(inputs)
    channels = proof.program.values[op.output].channels
    lo, hi = min(r.lo.min() for r in parts), max(r.hi.max() for r in parts)
    out = replace(number(lo, hi, channels), degree=parts[0].degree, wide=any(r.wide for r in parts))
    if op.how == "sum" and op.width > 1:
        return out.with_zero().times(float(op.width))
    return out.with_zero() if op.index.numbers is not None and -1 in op.index.numbers else out


def _combine(proof: _Proof, op: ops.Combine, inputs: Sequence[Range]) -> Range:
    parts = [r.times(float(c)).with_zero() for r, c in zip(align(inputs), op.coefficients, strict=True)]
    out = replace(parts[0], wide=any(r.wide for r in parts))
    for r in parts[1:]:
        out = replace(out, lo=out.lo + r.lo, hi=out.hi + r.hi)
    return out.plus(min(op.constant, 0), max(op.constant, 0))


def _corners(a: Range, b: Range) -> Range:
    """a * b."""
    corners = [x * y for x in (a.lo, a.hi) for y in (b.lo, b.hi)]
    lo, hi = np.minimum.reduce(corners), np.maximum.reduce(corners)
    return Range(lo, hi, a.degree + b.degree, a.wide or b.wide)


def _multiply(proof: _Proof, op: ops.Multiply, inputs: Sequence[Range]) -> Range:
    return _corners(inputs[0], inputs[1])


def _affine(proof: _Proof, op: ops.Affine, inputs: Sequence[Range]) -> Range:
    m = proof.mirrors[op.name]
    signed = fits(inputs[0].times(m.signs.astype(np.float64)), op.name, "its input")
    return signed.plus(m.shifts.astype(np.float64), m.shifts.astype(np.float64))


def _clip(proof: _Proof, op: ops.Clip, inputs: Sequence[Range]) -> Range:
    x = inputs[0].whole()
    low = -np.inf if op.low is None else float(op.low)
    high = np.inf if op.high is None else float(op.high)
    out = replace(x, lo=np.clip(x.lo, low, high), hi=np.clip(x.hi, low, high))
    return replace(out, wide=out.wide and not out.peak() < INT32)


def _choice(proof: _Proof, op: ops.Choice, inputs: Sequence[Range]) -> Range:
    channels = len(inputs[0].lo)
    if op.how not in ("max", "min"):
        return number(0, 1, channels)
    a = inputs[0].whole()
    b = inputs[1].whole() if op.constant is None else number(op.constant, op.constant, channels)
    pick = np.maximum if op.how == "max" else np.minimum
    return Range(pick(a.lo, b.lo), pick(a.hi, b.hi), 0, a.wide or b.wide)


def _matmul(proof: _Proof, op: ops.MatMul, inputs: Sequence[Range]) -> Range:
    a, b = inputs
    inner = float(len(a.lo))
    return _corners(a.hull(len(b.lo)), b).with_zero().times(inner)


def _time_sum(proof: _Proof, op: ops.TimeSum, inputs: Sequence[Range]) -> Range:
    x = inputs[0].with_zero()
    return replace(x, degree=x.degree + 1, wide=True)


_RULES: dict[type[ops.Operation], Callable[[_Proof, Any, Sequence[Range]], Range]] = {
    ops.Quantize: _quantize,
    ops.Project: _project,
    ops.Neuron: _neuron,
    ops.Pool: _pool,
    ops.Gather: _gather,
    ops.Combine: _combine,
    ops.Multiply: _multiply,
    ops.Affine: _affine,
    ops.Clip: _clip,
    ops.Choice: _choice,
    ops.MatMul: _matmul,
    ops.TimeSum: _time_sum,
    ops.Delay: _delay,
}
