"""From a plan and integer arrays to the numbers of a program; nothing of a stranger's file is trusted."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ptq4snn.errors import BundleError
from ptq4snn.network.plan import InputPlan, MirrorPlan, NeuronPlan, ProjectionPlan, RescalePlan
from ptq4snn.numerics.limits import INT32, INT64_SHIFT
from ptq4snn.runtime.parameters import (
    InputGrid,
    Integers,
    Mirror,
    NeuronNumbers,
    ProjectionNumbers,
    Reals,
    Rescale,
)
from ptq4snn.runtime.require import MAX_RANK

__all__ = ["RESETS", "STATE_BITS", "mirror_numbers", "neuron_numbers", "projection_numbers"]

WEIGHT_BITS = range(2, 9)
STATE_BITS = (*range(2, 9), 16, 32)
RESCALE_BITS = range(2, 17)
ROLES = ("pair", "stream", "chain", "output")
RESETS = ("hard", "soft", "none")
STATE_ROUNDINGS = ("even", "dither")
MAX_LEFT = 16  # F
MAX_SPIKES = 255  # of a step
MAX_MULTIPLIER = INT32 - 1
LEAST_SCALE = 2.0**-64  # of the input: its inverse is finite
MAX_REAL = 2.0**64  # times whole numbers below 2^53 it fits float32


def projection_numbers(p: ProjectionPlan, weight: NDArray[Any], bias: NDArray[Any]) -> ProjectionNumbers:
    what = f"the projection '{p.name}'"
    bits = _whole(p.bits, WEIGHT_BITS.start, WEIGHT_BITS.stop - 1, f"{what}: bits")
    bits += _flag(p.odd, f"{what}: odd")
    if bits >= WEIGHT_BITS.stop:
        raise BundleError(f"{what}: odd weights of {p.bits} bits do not fit eight; make the bundle again")
    shift = _whole(p.shift, 0, MAX_LEFT, f"{what}: shift")
    lattice = _reals(p.lattice, f"{what}: lattice")
    return ProjectionNumbers(
        weight=_bytes(weight, bits, f"{what}: a weight of {bits} bits"),
        bits=bits,
        bias=_biases(bias, f"{what}: a bias"),
        shift=shift,
        over_time=_flag(p.over_time, f"{what}: over_time"),
        input=None if p.input is None else _grid(p.input, what),
        rescale=None if p.rescale is None else _rescale(p.rescale, what),
        unit=lattice * 2.0**-shift,
        role=_word(p.role, ROLES, f"{what}: role"),
    )


def _biases(x: NDArray[Any], what: str) -> Integers:
    """One for each channel, or for each position and channel."""
    if np.ndim(x) != 2:
        return _vector(x, -INT32, INT32 - 1, what)
    found = _integers(x, -INT32, INT32 - 1, what)
    if not found.size:
        raise BundleError(f"{what} is missing; make the bundle again")
    return found


def _grid(p: InputPlan, what: str) -> InputGrid:
    scales = _reals(p.scales, f"{what}: an input scale")
    if not (scales >= LEAST_SCALE).all():
        raise BundleError(f"{what}: an input scale is not positive; make the bundle again")
    inside = _vector(p.zeros, -INT32, INT32 - 1, f"{what}: an input zero")
    if not p.raw_scales:
        return InputGrid(scales, inside)
    raw = _reals(p.raw_scales, f"{what}: a scale of the raw input")
    if not (np.abs(raw) >= LEAST_SCALE).all():
        raise BundleError(f"{what}: a scale of the raw input is 0; make the bundle again")
    return InputGrid(raw, _vector(p.raw_zeros, -INT32, INT32 - 1, f"{what}: a zero of the raw input"), inside)


def _rescale(p: RescalePlan, what: str) -> Rescale:
    return Rescale(
        _vector(p.multipliers, 0, MAX_MULTIPLIER, f"{what}: a rescale multiplier"),
        _vector(p.shifts, 0, INT64_SHIFT, f"{what}: a rescale shift"),
        _whole(p.bits, RESCALE_BITS.start, RESCALE_BITS.stop - 1, f"{what}: rescale bits"),
        _reals(p.scales, f"{what}: a rescale scale"),
    )


def neuron_numbers(n: NeuronPlan) -> NeuronNumbers:
    what = f"the neuron '{n.name}'"
    shift = _whole(n.shift, 0, MAX_LEFT, f"{what}: shift")
    bits = _vector(n.bits, 2, 32, f"{what}: bits")
    if odd := set(bits.tolist()) - set(STATE_BITS):
        raise BundleError(f"{what}: a state of {min(odd)} bits cannot be packed; make the bundle again")
    zero = _vector(n.zero, -INT32, INT32 - 1, f"{what}: a zero point")
    half = 2 ** (bits - 1)
    if len(zero) != len(bits):
        raise BundleError(f"{what}: {len(zero)} zero points for {len(bits)} channels; make the bundle again")
    charge_m, charge_n = _fractions(n.charge, f"{what}: charge")
    settle_m, settle_n = _fractions(n.settle, f"{what}: settle")
    empty = np.zeros(0, dtype=np.int64)
    lift_m, lift_n = _fractions(n.lift, f"{what}: lift") if n.lift else (empty, empty)
    most = _whole(n.most, 1, MAX_SPIKES, f"{what}: the most spikes of a step")
    least = 1 if most > 1 else -INT32  # a count divides by it
    shape = _vector(n.layout.shape, 1, INT32, f"{what}: the state's shape")
    if len(shape) > MAX_RANK:
        raise BundleError(f"{what}: a state of {len(shape)} axes is absurd; make the bundle again")
    return NeuronNumbers(
        shift=0 if _flag(n.emits_units, f"{what}: emits_units") else shift,
        over_time=_flag(n.over_time, f"{what}: over_time"),
        bits=bits,
        zero=zero,
        low=zero - half,
        high=zero + half - 1,
        theta=_vector(n.theta, least, INT32 - 1, f"{what}: a threshold"),
        rho=_vector(n.rho, -INT32, INT32 - 1, f"{what}: rho"),
        charge_m=charge_m,
        charge_n=charge_n,
        settle_m=settle_m,
        settle_n=settle_n,
        reset=_word(n.reset, RESETS, f"{what}: reset"),
        rounding=_word(n.rounding, STATE_ROUNDINGS, f"{what}: rounding"),
        unit=_reals(n.unit, f"{what}: unit"),
        v_rest=float(_reals((n.v_rest,), f"{what}: v_rest")[0]),
        shape=tuple(shape.tolist()),
        lift_m=lift_m,
        lift_n=lift_n,
        most=most,
    )


def _fractions(pairs: Any, what: str) -> tuple[Integers, Integers]:
    """Multipliers and shifts of pairs m, n."""
    if not all(isinstance(p, (tuple, list)) and len(p) == 2 for p in pairs):
        raise BundleError(f"{what} is not made of pairs; make the bundle again")
    m = _vector([p[0] for p in pairs], 0, MAX_MULTIPLIER, f"{what}, a multiplier")
    return m, _vector([p[1] for p in pairs], 0, INT64_SHIFT, f"{what}, a shift")


def mirror_numbers(name: str, m: MirrorPlan) -> Mirror:
    what = f"the mirror '{name}'"
    signs = _vector(m.signs, -1, 1, f"{what}: a sign")
    return Mirror(signs, _vector(m.shifts, -INT32, INT32 - 1, f"{what}: a shift"))


def _whole(x: Any, low: int, high: int, what: str) -> int:
    if not isinstance(x, int) or isinstance(x, bool) or not low <= x <= high:
        raise BundleError(f"{what} is no whole number in {low} .. {high}; make the bundle again")
    return x


def _flag(x: Any, what: str) -> bool:
    if not isinstance(x, bool):
        raise BundleError(f"{what} is neither true nor false; make the bundle again")
    return x


def _word(x: Any, known: tuple[str, ...], what: str) -> str:
    if not isinstance(x, str) or x not in known:
        raise BundleError(f"{what} is none of {', '.join(known)}; make the bundle again")
    return x


def _array(x: Any, what: str) -> NDArray[Any]:
    try:
        array = np.asarray(x)
    except (ValueError, TypeError, OverflowError) as why:
        raise BundleError(f"{what} is not a number; make the bundle again") from why
    if array.dtype.kind not in "iuf":
        raise BundleError(f"{what} is not a number; make the bundle again")
    return array


def _integers(x: Any, low: int, high: int, what: str) -> Integers:
    """Whole numbers of any shape, perhaps carried in floats."""
    array = _array(x, what)
    # compared before any conversion: NaN and what does not fit int64 fail here
    fits = not array.size or bool(array.min() >= low and array.max() <= high)
    if not fits or (array.dtype.kind == "f" and (array != np.rint(array)).any()):
        raise BundleError(f"{what} is no whole number in {low} .. {high}; make the bundle again")
    return array.astype(np.int64)


def _bytes(x: Any, bits: int, what: str) -> NDArray[np.int8]:
    """Whole numbers of at most eight bits; bytes are taken as they are, without a copy."""
    low, high = -(2 ** (bits - 1)), 2 ** (bits - 1) - 1
    array = _array(x, what)
    found = array if array.dtype == np.int8 else _integers(array, low, high, what).astype(np.int8)
    if found.size and not (found.min() >= low and found.max() <= high):
        raise BundleError(f"{what} is no whole number in {low} .. {high}; make the bundle again")
    return np.ascontiguousarray(found)


def _vector(x: Any, low: int, high: int, what: str) -> Integers:
    array = _integers(x, low, high, what)
    if array.ndim != 1 or not len(array):
        raise BundleError(f"{what} is missing; make the bundle again")
    return array


def _reals(x: Any, what: str) -> Reals:
    array = _array(x, what).astype(np.float64)
    if array.ndim != 1 or not len(array) or not (np.abs(array) <= MAX_REAL).all():  # nor NaN
        raise BundleError(f"{what} is not an ordinary number; make the bundle again")
    return array
