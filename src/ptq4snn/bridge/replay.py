"""What a state scale does to the spikes: the neuron is run again on its recorded currents.

    d[t] = S[t] - S_float[t]        cost = mean( sum_t |d[t]| + 1/2 |sum_t d[t]| ) + 2 |mean( sum_t d[t] )|

with means over trajectories: a flip is forgiven more easily than a spike too many or too few, and that
more easily than a channel whose firing rate drifts, because such errors add up in the next layer. Far tails
of the state, which dominate a squared error, cannot change a spike and cost nothing here; a step so coarse
that small currents never add up costs every spike that is lost. Of scales that cost as much, the one whose
potential stays nearer to the float one's is better.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TypeVar

import torch
from torch import Tensor

from ptq4snn.numerics.dither import PHASES, dither_phase
from ptq4snn.numerics.grid import signed_range
from ptq4snn.observation.channel_statistics import ChannelStatistics
from ptq4snn.observation.traces import Trace

__all__ = ["ChannelCosts", "Dynamics", "Reference", "Replay", "raised", "replay_cost"]

COUNT_WEIGHT, RATE_WEIGHT = 0.5, 2.0
COARSEST = 1  # a step is at most 2 theta
NARROWEST = -2  # all levels together span at least theta / 4
PREVIEW = 256  # trajectories that tell which candidates are worth all of them
WORTH = 3  # times fewer than there are, at least
FINALISTS = 8  # of a channel
TIE = 0.01  # of a whole threshold of difference, so that it only decides between equals
T = TypeVar("T")
TOGETHER = 2**16  # values of a state that are run at once, so that they stay in the cache
Levels = tuple[Tensor, ...]  # least and largest level, [C, 1]


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
        """Ones and zeros, or how often, in the type of h: bool is slower."""
        if self.most > 1:
            return (h / self.theta).floor_().clamp_(0, self.most)
        return (torch.gt if self.strict else torch.ge)(h, self.theta, out=torch.empty_like(h))

    def after(self, h: Tensor, s: Tensor) -> Tensor:
        """The state that spikes s, in the type of h, leave; it takes the place of h."""
        if self.reset == "hard":
            h.mul_(torch.eq(s, 0, out=torch.empty_like(s)))
        elif self.reset == "soft":
            h.sub_(self.rho * s)
        return h if self.floor is None else h.clamp_min_(self.floor)

    def of_channels(self, index: Tensor) -> Dynamics:
        """Of some channels only."""
        leak, theta, rho = (v[index] if len(v) > 1 else v for v in (self.leak, self.theta, self.rho))
        floor = self.floor if self.floor is None or len(self.floor) == 1 else self.floor[index]
        behind = None if self.behind is None else self.behind.of_channels(index)
        return replace(self, leak=leak, theta=theta, rho=rho, floor=floor, behind=behind)


def charged(current: Tensor, v: Tensor, leak: Tensor) -> Tensor:
    """current + leak v, rounded twice on every CPU (torch.addcmul rounds once where the CPU can)."""
    return (v * leak).add_(current)


def settle(v: Tensor, step: Tensor, levels: Levels, offset: Tensor | None) -> Tensor:
    """The stored state [C, n] as a real number, in the place of v; `offset` in [0, 1) dithers, without it
    halves go to even."""
    v.div_(step)
    v = v.round_() if offset is None else v.add_(offset).floor_()
    low, high = levels  # clamp itself is slow with tensors that are spread
    return torch.minimum(torch.maximum(v, low, out=v), high, out=v).mul_(step)


def offsets(places: Tensor, t: int) -> Tensor:
    """The dither of the state's shift as a part of one step, [C, n] in [0, 1)."""
    return dither_phase(places, t).float() / PHASES


@dataclass(frozen=True)
class Reference:
    """What a float neuron does on a trace, whatever the step its state is stored in: potentials H and spikes,
    [T, C, n] in float32."""

    potentials: Tensor
    fired: Tensor

    @classmethod
    def of(cls, neuron: Dynamics, trace: Trace) -> Reference:
        potentials, spikes = torch.empty_like(trace.currents), trace.spikes.float()
        v = torch.zeros_like(trace.currents[0])
        for current, fired, h in zip(trace.currents, spikes, potentials, strict=True):
            v = neuron.after(h.copy_(charged(current, v, neuron.leak)).clone(), fired)
        return cls(potentials, spikes)

    def some(self, every: int) -> Reference:
        """Of every n-th trajectory."""
        return Reference(*(x[..., ::every].contiguous() for x in (self.potentials, self.fired)))


def replay_cost(
    neuron: Dynamics, trace: Trace, step: Tensor, levels: Levels, trained: Tensor | None = None,
    reference: Reference | None = None,
) -> Tensor:  # fmt: skip
    """Cost [C] of storing the state in steps of `step` [C], from the least to the largest of `levels`; of
    several candidates at once, [n, C] with levels [n, C, 1], cost [n, C].

    Potentials are compared in parts of the threshold `trained` [C, 1]; None: it is the neuron's. `reference`
    saves time where it is known.
    """
    step = step.float()[..., None]
    if neuron.behind is not None:
        return _synapse_cost(neuron, neuron.behind, trace, step, levels)
    theta = neuron.theta if trained is None else trained
    known = Reference.of(neuron, trace) if reference is None else reference
    shape = (*step.shape[:-1], trace.currents.shape[2])
    v, flips, drift, apart = (torch.zeros(shape) for _ in range(4))
    for t, current in enumerate(trace.currents):
        h = charged(current, v, neuron.leak)
        s = neuron.fires(h)
        difference = s - known.fired[t]
        drift += difference
        flips += difference.abs_()
        apart += (h - known.potentials[t]).div_(theta).abs_().clamp_max_(1)
        offset = offsets(trace.places, t) if neuron.rounding == "dither" else None
        v = settle(neuron.after(h, s), step, levels, offset)
    each = (flips + COUNT_WEIGHT * drift.abs() + TIE * apart).mean(-1, dtype=torch.float64)
    return each + RATE_WEIGHT * drift.mean(-1, dtype=torch.float64).abs()


class ChannelCosts:
    """`replay_cost` of one neuron, whose channels are run again only with steps and levels they have not had:
    allocations that are tried one after the other have most channels in common."""

    def __init__(self, neuron: Dynamics, trace: Trace) -> None:
        self.neuron, self.trace = neuron, trace
        self.known: list[dict[tuple[float, float, float], float]] = [{} for _ in trace.places]

    def of(self, step: Tensor, levels: Levels) -> Tensor:
        """Cost [C] of steps [C] and levels [C, 1]."""
        low, high = levels
        keys = list(zip(step.tolist(), low[:, 0].tolist(), high[:, 0].tolist(), strict=True))
        new = [c for c, key in enumerate(keys) if key not in self.known[c]]
        if new:
            index, t = torch.tensor(new), self.trace
            some = Trace(t.currents[:, index], t.spikes[:, index], t.places[index])
            neuron = self.neuron.of_channels(index)
            found = replay_cost(neuron, some, step[index], (low[index], high[index])).tolist()
            for c, cost in zip(new, found, strict=True):
                self.known[c][keys[c]] = cost
        return torch.tensor([self.known[c][key] for c, key in enumerate(keys)], dtype=torch.float64)


def _synapse_cost(
    synapse: Dynamics, membrane: Dynamics, trace: Trace, step: Tensor, levels: Levels
) -> Tensor:
    """The same for a synaptic current: what counts are the spikes of the membrane behind it."""
    shape = (*step.shape[:-1], trace.currents.shape[2])
    current, v, flips, drift, apart = (torch.zeros(shape) for _ in range(5))
    exact = torch.zeros_like(trace.currents[0])
    for t, (x, fired) in enumerate(zip(trace.currents, trace.spikes, strict=True)):
        emitted, reference = (charged(x, i, synapse.leak) for i in (current, exact))
        h = charged(current if synapse.carried else emitted, v, membrane.leak)
        s = membrane.fires(h)
        difference = s - fired.float()
        flips += difference.abs()
        drift += difference
        apart += ((emitted - reference) / membrane.theta).abs_().clamp_max_(1)
        v, exact = membrane.after(h, s), reference
        offset = offsets(trace.places, t) if synapse.rounding == "dither" else None
        current = settle(emitted, step, levels, offset)
    each = (flips + COUNT_WEIGHT * drift.abs() + TIE * apart).mean(-1, dtype=torch.float64)
    return each + RATE_WEIGHT * drift.mean(-1, dtype=torch.float64).abs()


class Replay:
    """Objective: cost of a neuron's candidate scales by replay."""

    def __init__(self, neuron: Dynamics, trace: Trace) -> None:
        self.neuron, self.trace = neuron, trace

    def errors(
        self, statistics: ChannelStatistics, theta: Tensor, scales: Tensor, bits: int,
        zeros: Sequence[int] = (0,),
    ) -> Tensor:  # fmt: skip
        """[Z, C, n] of the candidate scales [C, n] with each of the Z zero points.

        A share of the trajectories tells which candidates of a channel are worth all of them. The others
        keep the cost that the share gave them, no less than those that were looked at closely.
        """
        away = outside(scales / theta[:, None], bits)
        cost = (self._hopeless() + away).expand(len(zeros), *away.shape).clone()
        few = self._preview
        open_to = away == 0  # [C, n]
        tried = [(z, i) for i in open_to.any(0).nonzero().flatten().tolist() for z in range(len(zeros))]
        for part in few.parts(tried):
            step = torch.stack([scales[:, i] for _, i in part])  # [n, C]
            zero = torch.tensor([zeros[z] for z, _ in part])[:, None].expand_as(step)
            found = self._costs(few, step, bits, zero)
            for (z, i), found_here in zip(part, found, strict=True):
                cost[z, :, i] = torch.where(open_to[:, i], found_here, cost[z, :, i])
        return cost if few is self._whole else self._closely(cost, scales, bits, zeros)

    def _closely(self, cost: Tensor, scales: Tensor, bits: int, zeros: Sequence[int]) -> Tensor:
        """`cost` [Z, C, n] with that of all trajectories for the FINALISTS of each channel."""
        whole, rows = self._whole, cost.transpose(0, 1).flatten(1)  # [C, Z n]
        best = rows.sort(dim=1, stable=True).indices[:, :FINALISTS]  # of equal costs the first
        index = torch.arange(len(scales))
        final = torch.empty(best.shape, dtype=cost.dtype)
        for part in whole.parts(list(enumerate(best.unbind(1)))):
            at = torch.stack([places for _, places in part])  # [n, C]
            step = scales[index, at % scales.shape[1]]
            found = self._costs(whole, step, bits, torch.tensor(zeros)[at // scales.shape[1]])
            known = rows[index, at]
            final[:, [place for place, _ in part]] = torch.where(known < self._hopeless(), found, known).t()
        rows = torch.maximum(rows, final.amax(1, keepdim=True)).scatter(1, best, final)
        return rows.reshape(len(scales), len(zeros), -1).transpose(0, 1)

    def _costs(self, sample: Sample, step: Tensor, bits: int, zero: Tensor) -> Tensor:
        """[n, C] of steps [n, C] with the zero points [n, C]."""
        levels = self._levels(bits, zero, step)
        return replay_cost(self.neuron, sample.trace, step, levels, reference=sample.reference)

    def _levels(self, bits: int, zero: Tensor, step: Tensor) -> Levels:
        """Least and largest level [n, C, 1] with the zero points [n, C], none below the floor."""
        low, high = ((zero + level).float()[..., None] for level in signed_range(bits))
        if self.neuron.floor is None:
            return low, high
        shift = raised(self.neuron.floor, step[..., None], low).float()
        return low + shift, high + shift

    def _hopeless(self) -> float:
        """The largest cost."""
        worst = max(self.neuron.most, 1 if self.neuron.behind is None else self.neuron.behind.most)
        return ((1 + COUNT_WEIGHT + RATE_WEIGHT) * worst + TIE) * len(self.trace.currents)

    @cached_property
    def _whole(self) -> Sample:
        return Sample(self.trace, Reference.of(self.neuron, self.trace))

    @cached_property
    def _preview(self) -> Sample:
        """Some PREVIEW trajectories; all of them where that spares little."""
        every = self.trace.currents.shape[2] // PREVIEW
        return self._whole if every < WORTH else self._whole.some(every)


@dataclass(frozen=True)
class Sample:
    """A trace with what the float neuron does on it."""

    trace: Trace
    reference: Reference

    def parts(self, tried: list[T]) -> Iterator[list[T]]:
        """Candidates that are run at once."""
        size = max(1, TOGETHER // max(1, self.trace.currents[0].numel()))
        for i in range(0, len(tried), size):
            yield tried[i : i + size]

    def some(self, every: int) -> Sample:
        """Every n-th trajectory."""
        t = self.trace
        currents, spikes, places = (x[..., ::every].contiguous() for x in (t.currents, t.spikes, t.places))
        return Sample(Trace(currents, spikes, places), self.reference.some(every))


def raised(floor: Tensor, scales: Tensor, lowest: Tensor) -> Tensor:
    """By how many steps the levels from `lowest` on move up, so that none is below the floor."""
    return ((floor.double() / scales).round() - lowest).clamp_min(0)


def outside(steps: Tensor, bits: int) -> Tensor:
    """By how many octaves steps (in theta) are too coarse to tell a state from 0 or too fine to hold one."""
    octave = torch.log2(steps)
    return (octave - COARSEST).clamp_min(0) + (NARROWEST - bits - octave).clamp_min(0)
