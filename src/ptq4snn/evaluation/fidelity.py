"""How far the quantized network behaves like the float one: both run in lockstep on the held-out samples.

Of each micro-batch the float model runs first and its spikes (bool) and states are held per neuron and step;
the quantized model's probes take them out again one by one. Memory follows the micro-batch, not the data set.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from ptq4snn.allocation.search import divergence
from ptq4snn.discovery.discover import reset_neurons
from ptq4snn.discovery.pairs import NeuronInfo
from ptq4snn.evaluation.readout import same_draws
from ptq4snn.modules.carrier import plain
from ptq4snn.modules.integer import IntegerCore
from ptq4snn.modules.quantized import QuantizedModel

if TYPE_CHECKING:
    from ptq4snn.prepare import Prepared

__all__ = ["Fidelity", "NeuronFidelity", "compare", "emd"]

HELD_BYTES = 2**28  # of float spikes and states; larger models are compared in smaller parts


def emd(a: Tensor, b: Tensor) -> float:
    """Earth mover's distance of two sets of as many numbers [C]: mean |sorted a - sorted b|."""
    return float((a.double().sort().values - b.double().sort().values).abs().mean()) if a.numel() else 0.0


def _share(part: int, whole: int) -> float | None:
    return part / whole if whole else None


@dataclass(frozen=True)
class NeuronFidelity:
    """One neuron, float against quantized, over all held-out samples and time steps."""

    rates_before: Tensor  # [C] spikes per sample, step and position
    rates_after: Tensor  # [C]
    flips: int
    positions: int  # spikes that were compared
    saturated: int
    states: int  # state values that were counted; 0: carries none
    divergence: tuple[float, ...]  # per time step: RMS of V_quantized - V_float, in theta

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
        return _share(self.flips, self.positions)

    @property
    def saturation(self) -> float | None:
        """Per cent of the state values that do not fit their bits."""
        share = _share(self.saturated, self.states)
        return None if share is None else 100 * share

    @property
    def emd(self) -> float:
        return emd(self.rates_before, self.rates_after)


@dataclass(frozen=True)
class Fidelity:
    """The whole network. `firing`: mean |input| of every projection that reads spikes.

    kl and agreement (equal decisions) are means over the samples, of a segmentation over their pixels.
    """

    neurons: dict[str, NeuronFidelity]
    firing_before: dict[str, float]
    firing_after: dict[str, float]
    kl: float
    agreement: float
    samples: int

    @property
    def flip_rate(self) -> float | None:
        """Share of all spike positions that differ."""
        return _share(
            sum(n.flips for n in self.neurons.values()), sum(n.positions for n in self.neurons.values())
        )

    @property
    def saturation(self) -> float | None:
        """Per cent of all state values."""
        share = _share(
            sum(n.saturated for n in self.neurons.values()), sum(n.states for n in self.neurons.values())
        )
        return None if share is None else 100 * share

    @property
    def emd(self) -> float:
        """Mean over the neurons, weighted by their channels: mass moves inside a neuron only."""
        total = sum(n.rates_before.numel() for n in self.neurons.values())
        return sum(n.emd * n.rates_before.numel() for n in self.neurons.values()) / max(1, total)


class NeuronMeter:
    """Counts what the probes of one neuron's float and integer core report. Tallies stay on the device."""

    def __init__(self, info: NeuronInfo, core: IntegerCore, theta: Tensor) -> None:
        self.info, self.core = info, core
        self.per_theta = 1 / torch.where(theta > 0, theta, 1.0)  # a threshold of zero is no unit
        scale = info.layout.broadcast(torch.tensor(core.plan.scales, dtype=torch.float64))
        self.scale = scale.to(theta.device) * self.per_theta
        self.held: deque[tuple[Tensor, Tensor | None]] = deque()
        self.spikes: dict[str, Tensor | float] = {"before": 0.0, "after": 0.0}  # per position of a sample
        self.steps = {"before": 0, "after": 0}
        self.flips: Tensor | int = 0
        self.saturated: Tensor | int = 0
        self.positions = self.states = 0
        self.squares: dict[int, Tensor | float] = {}
        self.counts: dict[int, int] = {}

    def _fired(self, side: str, s: Tensor) -> None:
        self.spikes[side] = self.spikes[side] + s.sum(0).double()
        self.steps[side] += s.shape[0]

    def before(self, x: Tensor, h: Tensor, s: Tensor, v: Tensor, t: int) -> None:
        self._fired("before", s)
        self.held.append((s.bool(), v if self.info.carries_state else None))

    def after(self, x: Tensor, h: Tensor, s: Tensor, v: Tensor, t: int) -> None:
        self._fired("after", s)
        if self.info.carries_state:
            self.saturated = self.saturated + self.core.clipped(h, s).count_nonzero()
            self.states += v.numel()
        if not self.held:  # the quantized model took more steps than the float one: nothing to compare with
            return
        spikes, state = self.held.popleft()
        self.flips = self.flips + (s.bool() ^ spikes).count_nonzero()
        self.positions += s.numel()
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
        self.squares[t] = self.squares.get(t, 0.0) + error.square_().sum().double()
        self.counts[t] = self.counts.get(t, 0) + v.numel()

    def _rates(self, side: str) -> Tensor:
        spikes = self.spikes[side]
        layout = self.info.layout
        if not isinstance(spikes, Tensor):
            return torch.zeros(layout.channels, dtype=torch.float64)
        by_channel = layout.by_channel(spikes.unsqueeze(0))[0]  # [C, positions]
        return (by_channel.sum(1) / (by_channel.shape[1] * self.steps[side])).cpu()

    def result(self) -> NeuronFidelity:
        return NeuronFidelity(
            rates_before=self._rates("before"),
            rates_after=self._rates("after"),
            flips=int(self.flips),
            positions=self.positions,
            saturated=int(self.saturated),
            states=self.states,
            divergence=tuple(
                math.sqrt(float(self.squares[t]) / self.counts[t]) for t in sorted(self.squares)
            ),
        )


class InputMeter:
    """Mean |input| of one projection, as a forward pre-hook."""

    def __init__(self, signed: bool) -> None:
        self.signed = signed
        self.total: Tensor | float = 0.0
        self.count = 0

    def __call__(self, _module: nn.Module, args: Any) -> None:
        x = plain(args[0])
        self.total = self.total + (x.abs() if self.signed else x).sum().double()
        self.count += x.numel()

    def mean(self) -> float:
        return float(self.total) / max(1, self.count)


@contextmanager
def _attached(
    prepared: Prepared, model: QuantizedModel, meters: dict[str, NeuronMeter],
    inputs: dict[str, tuple[InputMeter, InputMeter]],
) -> Iterator[None]:  # fmt: skip
    """Probes on all neurons and hooks on all projections that read spikes, taken off again in any case."""
    folded = prepared.folded
    handles = []
    try:
        for name, meter in meters.items():
            folded.core(name).probe, model.core(name).probe = meter.before, meter.after
        for name, (before, after) in inputs.items():
            handles.append(folded.projection(name).register_forward_pre_hook(before))
            handles.append(model.model.get_submodule(name).register_forward_pre_hook(after))
        yield
    finally:
        for h in handles:
            h.remove()
        for name in meters:
            folded.core(name).probe = model.core(name).probe = None
        reset_neurons(folded.model)
        reset_neurons(model)


def _part_size(prepared: Prepared) -> int:
    """Samples that may be held at a time."""
    held = (
        n.steps * prod(n.layout.shape) * (5 if n.carries_state else 1)
        for n in prepared.folded.discovery.neurons.values()
    )
    return max(1, HELD_BYTES // max(1, sum(held)))


def _lockstep(
    prepared: Prepared, model: QuantizedModel, meters: dict[str, NeuronMeter]
) -> tuple[float, float, int]:
    """Run both models over all held-out samples; mean KL, agreement, number of samples."""
    axis, size = prepared.batch_axis, _part_size(prepared)
    kl = agreement = 0.0
    samples = 0
    for batch in prepared.held_out:
        for x in batch.split(size, axis):
            logits = []
            for network in (prepared.folded.model, model):
                reset_neurons(network)
                with same_draws():
                    logits.append(prepared.readout(network(x)))
            for meter in meters.values():
                meter.held.clear()
            here, (a, b) = x.shape[axis], divergence(*logits)
            kl, agreement, samples = kl + here * a, agreement + here * b, samples + here
    return kl / max(1, samples), agreement / max(1, samples), samples


def compare(prepared: Prepared, model: QuantizedModel) -> Fidelity:
    """One float and one quantized pass over the held-out micro-batches."""
    d, specs = prepared.folded.discovery, prepared.folded.specs
    meters = {n: NeuronMeter(i, model.core(n), specs[n].theta) for n, i in d.neurons.items()}
    inputs = {
        n: (InputMeter(p.lo < 0), InputMeter(p.lo < 0))
        for n, p in d.projections.items()
        if p.reads == "count"
    }
    with torch.no_grad(), _attached(prepared, model, meters, inputs):
        kl, agreement, samples = _lockstep(prepared, model, meters)
    return Fidelity(
        neurons={n: m.result() for n, m in meters.items()},
        firing_before={n: before.mean() for n, (before, _) in inputs.items()},
        firing_after={n: after.mean() for n, (_, after) in inputs.items()},
        kl=kl,
        agreement=agreement,
        samples=samples,
    )
