"""Mergeable statistics per channel: sums, counts, extremes and a histogram of the state.

The bins are fixed in units of theta, eight to an octave from 2^-10 to 2^10 on both sides of zero, so that
statistics of different processes add up exactly.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

import torch
from torch import Tensor

__all__ = ["BINS", "ChannelStatistics", "bin_edges", "bin_index"]

LOWEST, OCTAVES, PER_OCTAVE = -10, 20, 8
SIDE = OCTAVES * PER_OCTAVE
BINS = 2 * SIDE + 1  # bin 0 holds |v| < 2^-10 theta; then the positive side, then the negative one
_FIRST = (127 + LOWEST) * PER_OCTAVE  # exponent and top mantissa bits of 2^-10 in a float32


def bin_index(v: Tensor) -> Tensor:
    """Bin of every value of v (in theta); beyond the last edge the last bin."""
    bits = v.float().contiguous().view(torch.int32)
    code = (bits & 0x7FFFFFFF) >> 20  # 8 exponent bits, 3 mantissa bits
    index = code.sub_(_FIRST - 1).clamp_(0, SIDE)
    other_side = (bits >> 31).bitwise_and_(SIDE)  # of numbers with a sign; bin 0 has none
    return index.clamp_max(1).mul_(other_side).add_(index)


def bin_edges() -> tuple[Tensor, Tensor]:
    """Inner and outer edge [BINS] of every bin, in theta; those of bin 0 are zero."""
    i = torch.arange(SIDE + 1, dtype=torch.float64)
    edges = torch.exp2(LOWEST + (i // PER_OCTAVE)) * (1 + (i % PER_OCTAVE) / PER_OCTAVE)
    zero = torch.zeros(1, dtype=torch.float64)
    inner = torch.cat([zero, edges[:-1], -edges[:-1]])
    outer = torch.cat([zero, edges[1:], -edges[1:]])
    return inner, outer


@dataclass
class ChannelStatistics:
    """Of one neuron with C channels; states in units of theta, `current` in the neuron's input units."""

    histogram: Tensor  # [C, BINS] int64, of a fixed fraction of the states
    low: Tensor  # [C] smallest state
    high: Tensor  # [C] largest state
    current: Tensor  # [C] largest |input current|
    spikes: Tensor  # [C] int64
    steps: int = 0  # (sample, time, position) triples per channel

    @classmethod
    def empty(cls, channels: int) -> ChannelStatistics:
        return cls(
            torch.zeros(channels, BINS, dtype=torch.int64),
            torch.full((channels,), torch.inf, dtype=torch.float64),
            torch.full((channels,), -torch.inf, dtype=torch.float64),
            torch.zeros(channels, dtype=torch.float64),
            torch.zeros(channels, dtype=torch.int64),
        )

    def merge(self, other: ChannelStatistics) -> ChannelStatistics:
        """Statistics of both parts together; the order does not matter."""
        return ChannelStatistics(
            self.histogram + other.histogram,
            torch.minimum(self.low, other.low),
            torch.maximum(self.high, other.high),
            torch.maximum(self.current, other.current),
            self.spikes + other.spikes,
            self.steps + other.steps,
        )

    def firing_rate(self) -> Tensor:
        """r_c [C]: spikes per sample, time step and position."""
        return self.spikes.double() / max(1, self.steps)

    def equals(self, other: ChannelStatistics) -> bool:
        return all(
            torch.equal(a, b) if isinstance(a, Tensor) else a == b
            for a, b in ((getattr(self, f.name), getattr(other, f.name)) for f in fields(self))
        )
