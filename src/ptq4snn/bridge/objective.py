"""What a good state scale is. The paper's answer: least squared error of the recorded states."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import torch
from torch import Tensor

from ptq4snn.numerics.grid import interval_error
from ptq4snn.observation.channel_statistics import ChannelStatistics, bin_edges

__all__ = ["Objective", "SquaredError"]

CHUNK = 8_000_000  # elements of a temporary


class Objective(Protocol):
    """Judges candidate scales of a neuron's channels."""

    def errors(
        self, statistics: ChannelStatistics, theta: Tensor, scales: Tensor, bits: int,
        zeros: Sequence[int] = (0,),
    ) -> Tensor:  # fmt: skip
        """Cost [Z, C, n] of the candidate scales [C, n] at `bits` bits, with levels shifted by each of the Z
        `zeros`; states are recorded in theta [C]."""
        ...


class SquaredError:
    """Mean squared error over the histogram of the post-reset state."""

    def errors(
        self, statistics: ChannelStatistics, theta: Tensor, scales: Tensor, bits: int,
        zeros: Sequence[int] = (0,),
    ) -> Tensor:  # fmt: skip
        return torch.stack([self.error(statistics, theta, scales, bits, zero) for zero in zeros])

    def error(
        self, statistics: ChannelStatistics, theta: Tensor, scales: Tensor, bits: int, zero: int = 0
    ) -> Tensor:
        """[C, n] for one zero point."""
        histogram = statistics.histogram
        used = histogram.sum(0).nonzero().flatten()
        used = used[used > 0]  # bin 0 is zero itself: no error
        inner, outer = (e[used] for e in bin_edges())
        weight = histogram[:, used].double() / histogram.sum(1, keepdim=True).clamp_min(1)
        out = torch.zeros_like(scales)
        if len(used) == 0:
            return out
        rows = max(1, CHUNK // (scales.shape[1] * len(used)))
        for i in range(0, len(scales), rows):
            part = slice(i, i + rows)
            step = (scales[part] / theta[part, None])[:, :, None]  # [c, n, 1] in theta
            cost = interval_error(inner, outer, step, bits, zero)
            out[part] = torch.einsum("cnb,cb->cn", cost, weight[part])
        return out * theta[:, None] ** 2
