"""One float pass over the calibration set: states, firing, stream currents, ranges of inputs and chains."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from ptq4snn.discovery.discover import reset_neurons
from ptq4snn.discovery.folding import Folded
from ptq4snn.discovery.projection_modules import channel_axis
from ptq4snn.memory import Portion, Room, Undo
from ptq4snn.network.state_layout import Layout
from ptq4snn.observation.channel_statistics import BINS, ChannelStatistics, bin_index
from ptq4snn.observation.float_traces import FloatTracers
from ptq4snn.observation.input_statistics import InputStatistics
from ptq4snn.observation.traces import Tracer

__all__ = ["Observation", "observe"]

FLUSH = 4_000_000  # state values a neuron may hold back before they are counted
SMALL = 2**17  # those of a step that are held back: of more each step is counted by itself


@dataclass
class Observation:
    """Sums and counts of one part of the calibration set; parts merge exactly."""

    neurons: dict[str, ChannelStatistics]
    writers: dict[str, Tensor]  # [C] largest |output| of projections that write streams or chains
    inputs: dict[str, InputStatistics]
    samples: int = 0
    readers: dict[str, Tensor] = field(default_factory=dict)  # [C] largest |input| of those that read streams

    def merge(self, other: Observation) -> Observation:
        return Observation(
            {n: s.merge(other.neurons[n]) for n, s in self.neurons.items()},
            {n: torch.maximum(w, other.writers[n]) for n, w in self.writers.items()},
            {n: i.merge(other.inputs[n]) for n, i in self.inputs.items()},
            self.samples + other.samples,
            {n: torch.maximum(r, other.readers[n]) for n, r in self.readers.items()},
        )


@dataclass
class NeuronObserver:
    """Counts what a float core's probe reports."""

    layout: Layout
    theta: Tensor
    currents: bool
    statistics: ChannelStatistics
    name: str = ""
    portion: Portion | None = None  # of the micro-batch that runs; None: all of it
    held: list[tuple[Tensor, Tensor]] = field(default_factory=list)
    size: int = 0  # values of the whole micro-batch that are held back, or were counted since the last flush
    rows: int = 0  # that were counted since then

    def __call__(self, x: Tensor, h: Tensor, s: Tensor, v: Tensor, t: int) -> None:
        if self.currents:
            top = self.layout.by_channel(x.abs()).amax((0, 2)).double().cpu()
            self.statistics.current = torch.maximum(self.statistics.current, top)
        if self.portion is not None:
            self.portion.check_rows(len(v), self.name)
        if v.numel() < SMALL:
            self.held.append((s.clone(), v))  # what the network makes of its spikes may overwrite them
        else:
            self._count(s, v)
        self.size += v.numel() if self.portion is None else v[0].numel() * self.portion.whole
        if self.size > FLUSH:
            self.flush()

    def flush(self) -> None:
        """Count what is held back; positions are chosen from the first again."""
        if self.held:
            self._count(*map(torch.cat, zip(*self.held, strict=True)))
        self.held, self.size, self.rows = [], 0, 0

    def _count(self, s: Tensor, v: Tensor) -> None:
        """Spikes and states of some steps [steps * B, ...]."""
        s, v = (self.layout.by_channel(x) for x in (s, v))  # [steps * B, C, P]
        theta, rows = self._theta(v), self._rows(v)
        self.rows += len(v)
        st, channels = self.statistics, self.layout.channels
        st.spikes += s.sum(2).sum(0, dtype=torch.float64).long().cpu()  # of a row exact in any type
        st.steps += s.shape[0] * s.shape[2]
        low, high = ((f((0, 2)) / theta).double().cpu() for f in (v.amin, v.amax))
        st.low, st.high = torch.minimum(st.low, low), torch.maximum(st.high, high)
        number = bin_index(_some_positions(v, rows) / theta.view(-1, 1)) + BINS * torch.arange(
            channels, device=v.device
        ).view(1, -1, 1)
        counts = torch.bincount(number.flatten(), minlength=channels * BINS)
        st.histogram += counts.view(channels, BINS).cpu()

    def _rows(self, v: Tensor) -> Tensor:
        """Which rows of the whole micro-batch those of v [steps * B, C, P] are."""
        rows = torch.arange(self.rows, self.rows + len(v), device=v.device)
        p = self.portion
        return rows if p is None else rows // p.count * p.whole + p.first + rows % p.count

    def _theta(self, v: Tensor) -> Tensor:
        """[C] or one number, in the type of v."""
        theta = self.theta.to(v)
        if theta.dim() == 0:
            return theta.view(1)
        return self.layout.by_channel(theta.expand(1, *self.layout.shape))[0, :, 0]


def _some_positions(v: Tensor, rows: Tensor) -> Tensor:
    """Every 16th position (of small maps more) of v [n, C, P], others in each row, the same always; `rows`
    [n] are the numbers of v's."""
    _, channels, positions = v.shape
    stride = max(1, min(16, positions // 16))
    if stride == 1:
        return v
    index = (rows[:, None] + stride * torch.arange(positions // stride, device=v.device)) % positions
    return v.gather(2, index[:, None].expand(-1, channels, -1))


def _neuron_observers(folded: Folded) -> dict[str, NeuronObserver]:
    observers = {}
    for name, info in folded.discovery.neurons.items():
        theta = folded.specs[name].theta
        observer = NeuronObserver(
            info.layout, theta, info.stream is not None, ChannelStatistics.empty(info.layout.channels), name
        )
        observers[name] = observer
    return observers


def _watch_projections(folded: Folded, seen: Observation) -> list[Any]:
    handles = []
    for name, info in folded.discovery.projections.items():
        module = folded.projection(name)
        if info.reads == "data":
            statistics = InputStatistics.for_module(module)
            seen.inputs[name] = statistics

            def read(_m: nn.Module, args: Any, statistics: InputStatistics = statistics) -> None:
                statistics.update(args[0])

            handles.append(module.register_forward_pre_hook(read))
        axis = channel_axis(module)
        if info.source_stream is not None:
            seen.readers[name] = torch.zeros(len(info.source_channels), dtype=torch.float64)

            def took(_m: nn.Module, args: Any, name: str = name, axis: int = axis) -> None:
                seen.readers[name] = torch.maximum(seen.readers[name], _largest(args[0].abs(), axis))

            handles.append(module.register_forward_pre_hook(took))
        if info.role in ("stream", "chain"):
            seen.writers[name] = torch.zeros(folded.weight(name).shape[0], dtype=torch.float64)
            # of a chain the ReLU is next; what is added to a stream counts with its sign
            relu = info.rectified and info.role == "chain"

            def wrote(
                _m: nn.Module, _a: Any, out: Tensor, name: str = name, axis: int = axis, relu: bool = relu
            ) -> None:
                top = _largest(out.clamp_min(0) if relu else out.abs(), axis)
                seen.writers[name] = torch.maximum(seen.writers[name], top)

            handles.append(module.register_forward_hook(wrote))
    return handles


def _largest(x: Tensor, axis: int) -> Tensor:
    """The largest value of each channel, [C]."""
    return x.movedim(axis, 0).flatten(1).amax(1).double().cpu()


@dataclass(frozen=True)
class Both:
    """Two probes in one."""

    observer: NeuronObserver
    tracer: Tracer

    def __call__(self, x: Tensor, h: Tensor, s: Tensor, v: Tensor, t: int) -> None:
        self.observer(x, h, s, v, t)
        self.tracer(x, h, s, v, t)


def _attach(folded: Folded, observers: dict[str, NeuronObserver], tracers: FloatTracers | None) -> None:
    traced = {} if tracers is None else tracers.by_neuron
    for name, observer in observers.items():
        folded.core(name).probe = Both(observer, traced[name]) if name in traced else observer


def observe(
    folded: Folded, batches: Iterable[Tensor], batch_axis: int, tracers: FloatTracers | None = None,
    room: Room | None = None,
) -> Observation:  # fmt: skip
    """Run the float model over the micro-batches and count; the first of them are traced on the way."""
    seen = Observation({n: o.statistics for n, o in _neuron_observers(folded).items()}, {}, {})
    handles = _watch_projections(folded, seen)
    room = room or Room(batch_axis)
    try:
        for number, x in enumerate(batches):
            traced = tracers if tracers is not None and number < tracers.batches else None
            begin = None if traced is None else traced.mark()
            work, mark = partial(_observed, folded, traced), partial(_mark, seen, traced)
            parts = room.run(x, work, "observing the float model", mark)
            for found in parts:
                seen.neurons = {n: s.merge(found[n]) for n, s in seen.neurons.items()}
            if traced is not None and begin is not None and len(parts) > 1:
                traced.join(begin)
            seen.samples += x.shape[batch_axis]
    finally:
        for h in handles:
            h.remove()
        for name in seen.neurons:
            folded.core(name).probe = None
        reset_neurons(folded.model)
    return seen


def _observed(folded: Folded, tracers: FloatTracers | None, portion: Portion) -> dict[str, ChannelStatistics]:
    """What the neurons do on some samples of a micro-batch; what the projections see is noted on the way."""
    observers = _neuron_observers(folded)
    for observer in observers.values():
        observer.portion = None if portion.is_whole else portion
    _attach(folded, observers, tracers)
    before = {} if tracers is None else tracers.mark()
    reset_neurons(folded.model)
    with torch.no_grad():
        folded.model(portion.x)
    for name, (_, rows) in before.items():
        assert tracers is not None
        portion.check_rows(tracers.by_neuron[name].seen - rows, name)
    for o in observers.values():
        o.flush()
    return {n: o.statistics for n, o in observers.items()}


def _mark(seen: Observation, tracers: FloatTracers | None) -> Undo:
    """What projections saw and traces hold, to come back to it: all of it is replaced, never changed, while
    it is noted."""
    mark = None if tracers is None else tracers.mark()
    kept = {n: replace(i) for n, i in seen.inputs.items()}, dict(seen.writers), dict(seen.readers)

    def undo() -> None:
        for name, statistics in kept[0].items():
            vars(seen.inputs[name]).update(vars(statistics))
        seen.writers, seen.readers = dict(kept[1]), dict(kept[2])
        if tracers is not None and mark is not None:
            tracers.rewind(mark)

    return undo
