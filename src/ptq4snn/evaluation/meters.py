"""Probes that count how one neuron of the quantized network behaves beside its float original."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from ptq4snn.discovery.info import NeuronInfo
from ptq4snn.heap import trim_behind
from ptq4snn.memory import Undo
from ptq4snn.modules.carrier import plain
from ptq4snn.modules.integer import IntegerCore

__all__ = ["InputMeter", "Meter", "NeuronFidelity", "NeuronMeter", "OverTime", "emd", "share"]


FINE = 2.0**24  # parts of a squared threshold that errors are counted in


def emd(a: Tensor, b: Tensor) -> float:
    """Earth mover's distance of two sets of as many numbers [C]: mean |sorted a - sorted b|."""
    return float((a.double().sort().values - b.double().sort().values).abs().mean()) if a.numel() else 0.0


def share(part: int, whole: int) -> float | None:
    return part / whole if whole else None


class Meter(Protocol):
    """What counts while a network runs. A batch runs in portions, each of which may have to be taken back."""

    def begin(self) -> None:
        """A batch comes next."""

    def start(self, samples: int) -> None:
        """A portion of so many samples comes next."""

    def mark(self) -> Undo:
        """What takes back all that is seen from here on."""
        ...


class Tally:
    """A sum and the number of values in it, for each time step. Sums stay on the device."""

    def __init__(self) -> None:
        self.sums: dict[int, Tensor] = {}
        self.counts: dict[int, int] = {}

    def add(self, t: int, value: Tensor, count: int) -> None:
        self.sums[t] = self.sums[t] + value if t in self.sums else value
        self.counts[t] = self.counts.get(t, 0) + count

    def mark(self) -> Undo:
        """What takes back all that is added from here on."""
        sums, counts = dict(self.sums), dict(self.counts)

        def undo() -> None:
            self.sums, self.counts = sums, counts

        return undo

    @property
    def count(self) -> int:
        return sum(self.counts.values())

    def total(self) -> int:
        return round(sum(float(s) for s in self.sums.values()))

    def means(self) -> tuple[float, ...]:
        return tuple(float(self.sums[t]) / self.counts[t] for t in sorted(self.sums))


@dataclass(frozen=True)
class OverTime:
    """One neuron, an entry for each time step; calls of the same step in one forward pass fall together."""

    divergence: tuple[float, ...]  # RMS of V_quantized - V_float, in theta; empty: carries no state
    flips: tuple[float, ...]  # shares
    saturation: tuple[float, ...]  # shares; empty: carries no state
    rates_before: tuple[float, ...]
    rates_after: tuple[float, ...]


@dataclass(frozen=True)
class NeuronFidelity:
    """One neuron, float against quantized, over all held-out samples and time steps."""

    rates_before: Tensor  # [C] spikes per sample, step and position
    rates_after: Tensor  # [C]
    flips: int
    positions: int  # spikes that were compared
    saturated: int
    states: int  # state values that were counted; 0: carries none
    over_time: OverTime

    @property
    def rate_before(self) -> float:
        return float(self.rates_before.mean())

    @property
    def rate_after(self) -> float:
        return float(self.rates_after.mean())

    @property
    def silent_before(self) -> int:
        """Channels without a single spike."""
        return int((self.rates_before == 0).sum())

    @property
    def silent_after(self) -> int:
        return int((self.rates_after == 0).sum())

    @property
    def flip_rate(self) -> float | None:
        return share(self.flips, self.positions)

    @property
    def saturation(self) -> float | None:
        """Per cent of the state values that do not fit their bits."""
        found = share(self.saturated, self.states)
        return None if found is None else 100 * found

    @property
    def emd(self) -> float:
        return emd(self.rates_before, self.rates_after)


class NeuronMeter:
    """Counts what the probes of one neuron's float and integer core report. Tallies stay on the device."""

    def __init__(self, info: NeuronInfo, core: IntegerCore, theta: Tensor) -> None:
        self.info, self.core = info, core
        self.per_theta = 1 / torch.where(theta > 0, theta, 1.0)  # a threshold of zero is no unit
        scale = info.layout.broadcast(torch.tensor(core.plan.scales, dtype=torch.float64))
        self.scale = scale.to(theta.device) * self.per_theta
        self.held: deque[tuple[Tensor, Tensor | None]] = deque()
        self.spikes: dict[str, Tensor | float] = {"before": 0.0, "after": 0.0}  # [C]
        self.steps, self.positions = {"before": 0, "after": 0}, 1
        self.fired = {"before": Tally(), "after": Tally()}
        self.flips, self.saturated, self.squares = Tally(), Tally(), Tally()
        self.samples = 1  # of the part that runs
        self.pause: Callable[[], None] | None = None  # of a float network that runs beside
        self.advance: Callable[[], bool] | None = None  # lets it go on

    def mark(self) -> Undo:
        """What takes back all that is seen from here on."""
        tallies = (*self.fired.values(), self.flips, self.saturated, self.squares)
        undos = [tally.mark() for tally in tallies]
        spikes, steps = dict(self.spikes), dict(self.steps)

        def undo() -> None:
            self.spikes, self.steps = spikes, steps
            for one in undos:
                one()

        return undo

    def begin(self) -> None:
        """Nothing is of a whole batch."""

    def start(self, samples: int) -> None:
        """Before a part of so many samples runs."""
        self.held.clear()
        self.samples = samples

    def _step(self, s: Tensor, t: int) -> int:
        """The time step; some neurons run through [T * B] as if it were time."""
        return t // max(1, self.samples // s.shape[0])

    def _fired(self, side: str, s: Tensor, t: int) -> None:
        by_channel = self.info.layout.by_channel(s.sum(0).double().unsqueeze(0))[0]  # [C, positions]
        here, self.positions = by_channel.sum(1), by_channel.shape[1]  # whole numbers: exact in any order
        self.spikes[side] = self.spikes[side] + here
        self.steps[side] += s.shape[0]
        self.fired[side].add(t, here.sum(), s.numel())

    def before(self, x: Tensor, h: Tensor, s: Tensor, v: Tensor, t: int) -> None:
        self._fired("before", s, self._step(s, t))
        self.held.append((s.to(torch.uint8), v if self.info.carries_state else None))
        if self.pause is not None:
            self.pause()

    def after(self, x: Tensor, h: Tensor, s: Tensor, v: Tensor, t: int) -> None:
        t = self._step(s, t)
        if t == 0:
            trim_behind()
        self._fired("after", s, t)
        if self.info.carries_state:
            clipped = self.core.clipped(h, s).flatten(1).sum(1)  # whole numbers of one sample: exact
            self.saturated.add(t, clipped.double().sum(), v.numel())
        while not self.held and self.advance is not None and self.advance():
            pass
        if not self.held:  # the quantized model took more steps than the float one: nothing to compare with
            return
        spikes, state = self.held.popleft()
        self.flips.add(t, (s.to(torch.uint8) != spikes).count_nonzero(), s.numel())
        if state is not None:
            self._diverged(state, v, t)

    def _diverged(self, state: Tensor, v: Tensor, t: int) -> None:
        """Add up ((V_q - V) / theta)^2 of step t."""
        if self.scale.dtype != v.dtype or self.scale.device != v.device:
            self.scale, self.per_theta = self.scale.to(v), self.per_theta.to(v)
        error = torch.mul(v, self.scale)
        if self.per_theta.dim():
            error.sub_(state * self.per_theta)
        else:
            error.sub_(state, alpha=float(self.per_theta))
        whole = error.square_().mul_(FINE).round_()  # whole numbers: added up in any order alike
        self.squares.add(t, whole.double().sum(), v.numel())  # sooner than a sum that casts

    def _rates(self, side: str) -> Tensor:
        spikes = self.spikes[side]
        layout = self.info.layout
        if not isinstance(spikes, Tensor):
            return torch.zeros(layout.channels, dtype=torch.float64)
        return (spikes / (self.positions * self.steps[side])).cpu()

    def result(self) -> NeuronFidelity:
        return NeuronFidelity(
            rates_before=self._rates("before"),
            rates_after=self._rates("after"),
            flips=self.flips.total(),
            positions=self.flips.count,
            saturated=self.saturated.total(),
            states=self.saturated.count,
            over_time=OverTime(
                divergence=tuple(math.sqrt(mean / FINE) for mean in self.squares.means()),
                flips=self.flips.means(),
                saturation=self.saturated.means(),
                rates_before=self.fired["before"].means(),
                rates_after=self.fired["after"].means(),
            ),
        )


class InputMeter:
    """Mean |input| of one projection, as a forward pre-hook."""

    def __init__(self, signed: bool) -> None:
        self.signed = signed
        self.total: Tensor | float = 0.0
        self.count = 0

    def begin(self) -> None:
        """Nothing is of a whole batch."""

    def start(self, samples: int) -> None:
        """Nor of a portion."""

    def __call__(self, _module: nn.Module, args: Any) -> None:
        x = plain(args[0])
        self.total = self.total + (x.abs() if self.signed else x).double().sum()
        self.count += x.numel()

    def mark(self) -> Undo:
        """What takes back all that is seen from here on."""
        total, count = self.total, self.count

        def undo() -> None:
            self.total, self.count = total, count

        return undo

    def mean(self) -> float:
        return float(self.total) / max(1, self.count)
