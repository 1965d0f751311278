"""What a state scale does to the spikes: the neuron is run again on its recorded currents.

    d[t] = S[t] - S_float[t]        cost = mean( sum_t |d[t]| + 1/2 |sum_t d[t]| ) + 2 |mean( sum_t d[t] )|

with means over trajectories: a flip is forgiven more easily than a spike too many or too few, and that
more easily than a channel whose firing rate drifts, because such errors add up in the next layer. Far tails
of the state, which dominate a squared error, cannot change a spike and cost nothing here; a step so coarse
that small currents never add up costs every spike that is lost. Of scales that cost as much, the one whose
potential stays nearer to the float one's is better.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from ptq4snn.numerics.dither import PHASES, dither_phase
from ptq4snn.numerics.grid import signed_range
from ptq4snn.observation.channel_statistics import ChannelStatistics
from ptq4snn.observation.traces import Trace

__all__ = ["Dynamics", "Replay", "raised", "replay_cost"]

COUNT_WEIGHT, RATE_WEIGHT = 0.5, 2.0
COARSEST = 1  # a step is at most 2 theta
NARROWEST = -2  # all levels together span at least theta / 4
TIE = 0.01  # of a whole threshold of difference, so that it only decides between equals
Levels = tuple[Tensor, ...]  # least and largest level, for all channels or [C, 1]


@dataclass(frozen=True)
class Dynamics:
    """A canonical neuron; vectors [C, 1] in float32."""

    leak: Tensor
    theta: Tensor
    rho: Tensor
    reset: str
    strict: bool  # fires above the threshold only
    rounding: str
    behind: Dynamics | None = None  # of a synapse: the membrane that it feeds, which fires
    carried: bool = False  # a synapse that emits the state it began the step with
    floor: Tensor | None = None  # the least state
    most: int = 1  # spikes of a step

    def fires(self, h: Tensor) -> Tensor:
        """Whether, or how often."""
        if self.most > 1:
            return (h / self.theta).floor_().clamp_(0, self.most)
        return h > self.theta if self.strict else h >= self.theta

    def after(self, h: Tensor, s: Tensor) -> Tensor:
        if self.reset == "hard":
            h = h.masked_fill(s.bool(), 0.0)
        elif self.reset == "soft":
            h = h - self.rho * s
        return h if self.floor is None else h.clamp_min(self.floor)


def charged(current: Tensor, v: Tensor, leak: Tensor) -> Tensor:
    """current + leak v, rounded twice on every CPU (torch.addcmul rounds once where the CPU can)."""
    return (v * leak).add_(current)


def settle(v: Tensor, step: Tensor, levels: Levels, offset: Tensor | None) -> Tensor:
    """The stored state [C, n] as a real number; `offset` in [0, 1) dithers, without it halves go to even."""
    q = v / step
    q = q.round_() if offset is None else q.add_(offset).floor_()
    return torch.clamp(q, *levels).mul_(step)


def offsets(places: Tensor, t: int) -> Tensor:
    """The dither of the state's shift as a part of one step, [C, n] in [0, 1)."""
    return dither_phase(places, t).float() / PHASES


def replay_cost(
    neuron: Dynamics, trace: Trace, step: Tensor, levels: Levels, trained: Tensor | None = None
) -> Tensor:
    """Cost [C] of storing the state in steps of `step` [C], from the least to the largest of `levels`.

    Potentials are compared in parts of the threshold `trained` [C, 1]; None: it is the neuron's.
    """
    step = step.float()[:, None]
    if neuron.behind is not None:
        return _synapse_cost(neuron, neuron.behind, trace, step, levels)
    theta = neuron.theta if trained is None else trained
    v = exact = torch.zeros_like(trace.currents[0])
    flips, drift, apart = torch.zeros_like(v), torch.zeros_like(v), torch.zeros_like(v)
    for t, (current, fired) in enumerate(zip(trace.currents, trace.spikes, strict=True)):
        h = charged(current, v, neuron.leak)
        s = neuron.fires(h)
        difference = s.float() - fired.float()
        flips += difference.abs()
        drift += difference
        reference = charged(current, exact, neuron.leak)
        exact = neuron.after(reference, fired)
        apart += ((h - reference) / theta).abs_().clamp_max_(1)
        offset = offsets(trace.places, t) if neuron.rounding == "dither" else None
        v = settle(neuron.after(h, s), step, levels, offset)
    each = (flips + COUNT_WEIGHT * drift.abs() + TIE * apart).mean(1, dtype=torch.float64)
    return each + RATE_WEIGHT * drift.mean(1, dtype=torch.float64).abs()


def _synapse_cost(
    synapse: Dynamics, membrane: Dynamics, trace: Trace, step: Tensor, levels: Levels
) -> Tensor:
    """The same for a synaptic current: what counts are the spikes of the membrane behind it."""
    current, exact, v = (torch.zeros_like(trace.currents[0]) for _ in range(3))
    flips, drift, apart = (torch.zeros_like(v) for _ in range(3))
    for t, (x, fired) in enumerate(zip(trace.currents, trace.spikes, strict=True)):
        emitted, reference = (charged(x, i, synapse.leak) for i in (current, exact))
        h = charged(current if synapse.carried else emitted, v, membrane.leak)
        s = membrane.fires(h)
        difference = s.float() - fired.float()
        flips += difference.abs()
        drift += difference
        apart += ((emitted - reference) / membrane.theta).abs_().clamp_max_(1)
        v, exact = membrane.after(h, s), reference
        offset = offsets(trace.places, t) if synapse.rounding == "dither" else None
        current = settle(emitted, step, levels, offset)
    each = (flips + COUNT_WEIGHT * drift.abs() + TIE * apart).mean(1, dtype=torch.float64)
    return each + RATE_WEIGHT * drift.mean(1, dtype=torch.float64).abs()


class Replay:
    """Objective: cost of a neuron's candidate scales by replay."""

    def __init__(self, neuron: Dynamics, trace: Trace) -> None:
        self.neuron, self.trace = neuron, trace

    def errors(
        self, statistics: ChannelStatistics, theta: Tensor, scales: Tensor, bits: int, zero: int = 0
    ) -> Tensor:
        """[C, n] of the candidate scales [C, n]."""
        away = outside(scales / theta[:, None], bits)
        worst = max(self.neuron.most, 1 if self.neuron.behind is None else self.neuron.behind.most)
        hopeless = ((1 + COUNT_WEIGHT + RATE_WEIGHT) * worst + TIE) * len(
            self.trace.currents
        )  # the largest cost
        out = hopeless + away
        levels = tuple(torch.tensor(float(level + zero)) for level in signed_range(bits))
        floor = self.neuron.floor
        for i in (away == 0).any(0).nonzero().flatten().tolist():
            shift = 0.0 if floor is None else raised(floor, scales[:, i, None], levels[0]).float()
            cost = replay_cost(self.neuron, self.trace, scales[:, i], tuple(v + shift for v in levels))
            out[:, i] = torch.where(away[:, i] == 0, cost, out[:, i])
        return out


def raised(floor: Tensor, scales: Tensor, lowest: Tensor) -> Tensor:
    """By how many steps the levels from `lowest` on move up, so that none is below the floor."""
    return ((floor.double() / scales).round() - lowest).clamp_min(0)


def outside(steps: Tensor, bits: int) -> Tensor:
    """By how many octaves steps (in theta) are too coarse to tell a state from 0 or too fine to hold one."""
    octave = torch.log2(steps)
    return (octave - COARSEST).clamp_min(0) + (NARROWEST - bits - octave).clamp_min(0)
