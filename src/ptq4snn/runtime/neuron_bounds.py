"""Ranges inside of a neuron: its potential, what the reset leaves of it, and its state."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ptq4snn.numerics.dither import PHASES
from ptq4snn.numerics.limits import WIDE_STATE
from ptq4snn.runtime.parameters import NeuronNumbers
from ptq4snn.runtime.ranges import Range, fits, product_fits

__all__ = ["after_reset", "charged", "lifted", "settled"]


def charged(n: NeuronNumbers, x: Range, name: str) -> Range:
    """A = x + rshift(Vq m, n)."""
    v = Range(n.low.astype(np.float64), n.high.astype(np.float64))
    product_fits(v, n.charge_m, name, "its leaked state")
    by = n.charge_m * 2.0**-n.charge_n
    a = replace(x, wide=x.wide or bool((n.bits == WIDE_STATE).any()))
    return fits(a.plus(np.floor(v.lo * by), np.ceil(v.hi * by)), name, "its potential")


def lifted(n: NeuronNumbers, name: str) -> Range:
    """rshift(Vq m, n): the state in units."""
    v = Range(n.low.astype(np.float64), n.high.astype(np.float64)).with_zero()
    product_fits(v, n.lift_m, name, "the state that it hands on")
    by = n.lift_m * 2.0**-n.lift_n
    wide = bool((n.bits == WIDE_STATE).any())
    return fits(Range(np.floor(v.lo * by), np.ceil(v.hi * by), wide=wide), name, "the state that it hands on")


def settled(n: NeuronNumbers, a: Range, name: str) -> Range:
    """A' and its product with the settle factor."""
    settled = fits(after_reset(a, n), name, "its potential after the reset")
    if n.rounding == "dither":
        fits(settled.plus(0, PHASES), name, "its dithered potential")
    product_fits(settled, n.settle_m, name, "its settled state")
    return settled


def after_reset(a: Range, n: NeuronNumbers) -> Range:
    """A, or where it fired 0 or A - rho."""
    if n.reset == "hard":
        return a.with_zero()
    if n.reset == "none":
        return a
    if n.most > 1:
        return _after_counts(a, n)
    fired = np.minimum(np.maximum(a.lo, n.theta), a.hi) - n.rho
    return replace(a, lo=np.minimum(a.lo, fired), hi=np.maximum(a.hi, a.hi - n.rho))


def _after_counts(a: Range, n: NeuronNumbers) -> Range:
    """A - rho S with S = floor(A / theta), 0 .. most. Of S = k the least A is k theta, so that A - rho S is
    k (theta - rho) at least: least for k = 1 or for the largest k. No more than A, but for a negative rho."""
    largest = np.clip(np.floor(a.hi / n.theta), 1, n.most)
    once = n.theta - n.rho.astype(np.float64)
    low = np.minimum.reduce([a.lo, once, largest * once])
    return replace(a, lo=low, hi=np.maximum(a.hi, a.hi - n.most * n.rho.astype(np.float64)))
