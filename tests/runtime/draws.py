"""Random numbers of projections, neurons and windows, from one generator."""

from __future__ import annotations

from typing import Any

import numpy as np

from ptq4snn.network.index import Index, Window, compact
from ptq4snn.network.program import PoolAxis, Value
from ptq4snn.runtime.parameters import InputGrid, NeuronNumbers, Rescale

WIDTHS = ((4,), (8,), (16,), (32,), (2, 4, 8), (2, 3, 4, 5, 6, 7, 8), (3, 16), (2, 4, 8, 16))


class Draws:
    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)

    def one(self, *items: Any) -> Any:
        return items[int(self.rng.integers(len(items)))]

    def between(self, low: int, high: int) -> int:
        return int(self.rng.integers(low, high + 1))

    def integers(self, low: int, high: int, size: Any) -> Any:
        return self.rng.integers(low, high + 1, size=size, dtype=np.int64)

    def axes(self, rank: int, timed: bool) -> tuple[int, int | None]:
        """Places of batch and time."""
        if not timed:
            return self.between(0, rank), None
        batch, time = self.rng.choice(rank + 2, 2, replace=False)
        return int(batch), int(time)

    def grid(self, channels: int) -> InputGrid:
        n = self.one(1, channels)
        zeros = self.integers(-(2**20), 2**24, n) * self.one(0, 1)
        if self.one(True, False):
            zeros = zeros >> 15 << 15  # biases that lie halfway
        return InputGrid(self.rng.uniform(0.003, 0.03, n), zeros)

    def window(self, area: tuple[int, ...], most: int = 3) -> Window:
        parts: dict[str, list[int]] = {k: [] for k in ("kernel", "stride", "before", "after", "dilation")}
        for n in area:
            kernel, dilation = self.between(1, most), self.between(1, 2)
            before, after = (self.between(0, (kernel + 1) // 2) for _ in range(2))
            if n + before + after < dilation * (kernel - 1) + 1:
                kernel = dilation = 1
            for key, x in zip(parts, (kernel, self.between(1, 2), before, after, dilation), strict=True):
                parts[key].append(x)
        return Window(area, *(tuple(parts[k]) for k in ("kernel", "stride", "before", "after", "dilation")))

    def pool_axis(self, n: int) -> PoolAxis:
        kernel, out = self.between(1, 3), self.between(1, 4)
        taps, weights = self.integers(0, n - 1, out * kernel), self.integers(0, 9, out * kernel)
        return PoolAxis(n, kernel, tuple(taps.tolist()), tuple(weights.tolist()))

    def strided(self, sizes: tuple[int, ...], total: int) -> Index:
        """Numbers below `total`; the last axis in a list of its own at times."""
        left, strides = total - 1, []
        for n in sizes:
            strides.append(self.between(0, min(9, left // max(1, n - 1))))
            left -= (n - 1) * strides[-1]
        if self.one(True, False):
            return Index(sizes, tuple(strides), self.between(0, left))
        rest = left + (sizes[-1] - 1) * strides[-1]
        numbers = tuple(self.integers(0, rest // 2, sizes[-1]).tolist())
        return Index(sizes[:-1], tuple(strides[:-1]), self.between(0, rest - rest // 2), numbers)

    def rescale(self, channels: int, role: str, peak: float) -> tuple[Rescale | None, float]:
        if role not in ("stream", "chain"):
            return None, peak
        bits = 16 if role == "stream" else self.one(8, 16)
        multipliers, shifts = self.integers(2**14, 2**15 - 1, channels), self.integers(14, 24, channels)
        if self.one(True, False):
            multipliers[:], shifts = 1, self.integers(0, 9, channels)  # ties are met
        scales = self.rng.uniform(1e-3, 1e-1, channels)
        return Rescale(multipliers, shifts, bits, scales), min(2 * peak, 2.0 ** (bits - 1))

    def state_order(self, x: Value, size: int) -> tuple[tuple[int, ...], Index | None]:
        if self.one(True, False):
            return (x.positions, x.channels), None
        if self.one(True, False):
            return (x.channels, x.positions), Index((x.positions, x.channels), (1, x.positions))
        return (size,), compact(self.rng.permutation(size))

    def membrane(self, channels: int, shape: Any, shift: int, top: float, once: bool) -> NeuronNumbers:
        bits = self.rng.choice(self.one(*WIDTHS), channels).astype(np.int64)
        half = 2 ** (bits - 1)
        zero = np.zeros(channels, dtype=np.int64)
        if self.one(True, False) and bits.max() <= 16:
            zero = self.rng.integers(1 - half, half + 1)
        rounding = self.one("even", "dither")
        settle_n = np.where(bits == 32, 0, self.rng.integers(0, np.minimum(28 - np.minimum(bits, 27), 17)))
        settle_m = np.ones(channels, dtype=np.int64)
        leak_m, leak_n = self.integers(0, 2**4, channels), np.full(channels, 4)
        charge_m, charge_n = leak_m << settle_n, leak_n
        if rounding == "even" and self.one(True, False):  # a scale that is no power of two
            settle_m = self.integers(2**14, 2**15 - 1, channels)
            settle_n = settle_n + 15
            charge_m, charge_n = (
                self.integers(2**10, 2**15 - 1, channels),
                15 + self.integers(-1, 1, channels),
            )
        reset = self.one("hard", "soft", "none")
        most = self.one(1, 1, 1, 2, 3, 6, 40, 255)  # those above 1 count
        theta = self.integers(1 if most > 1 else -2, int(top / (4 * most)) + 2, channels)
        rho = np.maximum(1, theta + self.integers(-3, 3, channels)) if reset == "soft" else 0 * theta
        return NeuronNumbers(
            shift, once and self.one(True, False), bits, zero, zero - half, zero + half - 1, theta, rho,
            charge_m, charge_n, settle_m, settle_n, reset, rounding, self.rng.uniform(1e-3, 1e-1, channels),
            self.one(0.0, 0.25), shape, most=most,
        )  # fmt: skip
