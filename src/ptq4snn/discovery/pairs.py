"""Read the walked graph: every neuron as pair, stream or bare, every projection with its role.

pair    fed by one projection, through BatchNorm, reshapes, pooling, upsampling
stream  fed by a sum of projections; all writers of the sum share one scale per channel
bare    fed by spikes only
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from math import prod
from typing import Any, Literal

import torch
from torch import Tensor, nn

from ptq4snn.discovery.facts import TIME, Count, Current, Data, Fact, Membrane, Norm, Opaque, Sheet
from ptq4snn.discovery.layout import Layout, layout_of
from ptq4snn.discovery.walk import NeuronCall, ProjectionCall, Walk
from ptq4snn.errors import UnsupportedOperation
from ptq4snn.frameworks import NeuronSpec

__all__ = ["Kind", "NeuronInfo", "ProjectionInfo", "Role", "find_streams", "output_axis", "read_neurons", "read_projections"]

Kind = Literal["pair", "stream", "bare"]
Role = Literal["pair", "stream", "chain", "output"]


@dataclass(frozen=True)
class NeuronInfo:
    name: str
    kind: Kind
    projections: tuple[str, ...]  # in the order they ran
    spike_sources: tuple[str, ...]
    norms: tuple[str, ...]
    ops: tuple[str, ...]
    layout: Layout
    source_projection: Tensor  # [C] int64: index into `projections`
    source_channel: Tensor  # [C] int64: output channel there
    factor: float
    window: float
    lo: float  # bounds of a bare neuron's integer input
    hi: float
    steps: int
    over_time: bool = False  # its input is a mean over time steps
    stream: int | None = None  # the stream it reads, also for a pair whose current goes on as a stream
    stem: bool = False
    readout: bool = False  # its membrane is an output of the model
    last: bool = False  # its spikes feed the classifier or are the output
    zero_state: bool = False

    @property
    def carries_state(self) -> bool:
        return self.steps > 1 and not self.zero_state


@dataclass(frozen=True)
class ProjectionInfo:
    name: str
    role: Role
    norms: tuple[Norm, ...]
    reads: Literal["data", "count", "chain"]
    spike_sources: tuple[str, ...]
    chained_from: tuple[str, ...]
    factor: float
    lo: float
    hi: float
    over_time: bool
    macs: int  # per sample, over the whole forward pass
    feeds: tuple[str, ...]
    stream: int | None = None
    decode: bool = False  # its output leaves integer arithmetic at once (an operation like softmax follows)


class Groups:
    """Union-find over names."""

    def __init__(self) -> None:
        self.parent: dict[str, str] = {}

    def find(self, a: str) -> str:
        self.parent.setdefault(a, a)
        while self.parent[a] != a:
            a = self.parent[a]
        return a

    def join(self, names: Iterable[str]) -> None:
        roots = [self.find(n) for n in names]
        for r in roots[1:]:
            self.parent[self.find(r)] = self.find(roots[0])


def _sheets(fact: Fact) -> tuple[Sheet, ...]:
    return fact.sheets if isinstance(fact, Current) else ()


def _unique(names: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(names))


def find_streams(w: Walk) -> dict[str, int]:
    """Stream number of every projection that writes into a sum."""
    groups = Groups()
    for current in (c.fact for c in w.neurons):
        if isinstance(current, Current) and len(current.sheets) > 1:
            groups.join(sorted(current.projections))
            _check_aligned(w, current)
    by_neuron: dict[str, set[str]] = {}
    for call in w.neurons:
        if isinstance(call.fact, Current):
            by_neuron.setdefault(call.name, set()).add(" ".join(sorted(call.fact.projections)))
    for sets in by_neuron.values():
        if len(sets) > 1:  # a neuron reused behind different projections reads them all on one scale
            groups.join(sorted(n for s in sets for n in s.split()))
    roots = {n: groups.find(n) for n in groups.parent}
    order = {r: i for i, r in enumerate(dict.fromkeys(roots[n] for n in w.base if n in roots))}
    return {n: order[r] for n, r in roots.items()}


def _check_aligned(w: Walk, current: Current) -> None:
    starts = torch.tensor(sorted(w.base.values()), dtype=torch.float64)
    numbers = [(s.ids % TIME).contiguous() for s in current.sheets]
    channels = [n - starts[torch.searchsorted(starts, n, right=True) - 1] for n in numbers]
    if any(not torch.equal(c, channels[0]) for c in channels[1:]):
        names = ", ".join(f"'{n}'" for n in sorted(current.projections))
        raise UnsupportedOperation(
            f"a sum adds different channels of {names} to each other; one scale per channel needs them aligned"
        )


def read_neurons(w: Walk, specs: dict[str, NeuronSpec], streams: dict[str, int]) -> dict[str, NeuronInfo]:
    calls: dict[str, list[NeuronCall]] = {}
    for c in w.neurons:
        calls.setdefault(c.name, []).append(c)
    stems = {p.name for p in w.projections if isinstance(p.fact, Data)}
    readouts = {f.neuron for f in w.outputs if isinstance(f, Membrane)}.union(
        *(f.membranes for f in w.outputs if isinstance(f, Opaque))
    )
    final = _feeding_output(w)
    out = {}
    for name, cs in calls.items():
        out[name] = _read_neuron(name, cs, specs[name], streams, stems, name in readouts, name in final, w.base)
    return out


def _feeding_output(w: Walk) -> set[str]:
    """Neurons whose spikes are the output or feed the projections that make it."""
    made_output = set[str]().union(*(f.projections for f in w.outputs if isinstance(f, (Current, Opaque))))
    names = {n for f in w.outputs if isinstance(f, Count) for n in f.sources}
    names |= {f.neuron for f in w.outputs if isinstance(f, Membrane)}
    for call in w.neurons:
        if call.name in names and isinstance(call.fact, Current):
            made_output |= call.fact.projections
    for p in w.projections:
        if p.name in made_output and isinstance(p.fact, Count):
            names |= p.fact.sources
    return names


def _read_neuron(
    name: str, calls: list[NeuronCall], spec: NeuronSpec, streams: dict[str, int], stems: set[str],
    readout: bool, last: bool, base: dict[str, int],
) -> NeuronInfo:  # fmt: skip
    first = calls[0]
    if any(c.layout != first.layout for c in calls):
        raise UnsupportedOperation(f"the neuron '{name}' is called with states of different shapes; use one each")
    sheets = [s for c in calls for s in _sheets(c.fact)]
    projections = _unique(n for s in sheets for n in sorted(s.projections))
    bare = not projections
    summed = any(len(_sheets(c.fact)) > 1 for c in calls) or len({c.fact.projections for c in calls}) > 1 if (
        not bare
    ) else False
    facts: list[Any] = [c.fact for c in calls]
    lo, hi = (min(f.lo for f in facts), max(f.hi for f in facts)) if bare else (0.0, 0.0)
    factor = min(f.factor for f in facts)
    sources = _unique(n for f in facts if isinstance(f, Count) for n in sorted(f.sources))
    zero = bare and spec.reset == "hard" and lo >= 0 and bool((factor * spec.gain >= spec.theta).all())
    stream = next((streams[p] for p in projections if p in streams), None)
    owner, channel = _locate(first.sources, projections, base)
    return NeuronInfo(
        name=name,
        kind="bare" if bare else "stream" if summed else "pair",
        projections=projections,
        spike_sources=sources,
        norms=_unique(n.name for s in sheets for n in s.norms),
        ops=_unique(o for s in sheets for o in s.ops),
        layout=first.layout,
        source_projection=owner,
        source_channel=channel,
        factor=factor,
        window=max(f.window for f in facts) if not bare else 1.0,
        lo=lo,
        hi=hi,
        steps=sum(c.steps or 1 for c in calls),
        over_time=any(f.over_time for f in facts),
        stream=stream,
        stem=any(p in stems for p in projections) and not summed,
        readout=readout,
        last=last,
        zero_state=zero,
    )


def _locate(ids: Tensor, projections: tuple[str, ...], base: dict[str, int]) -> tuple[Tensor, Tensor]:
    """Projection and channel of every numbered channel; zeros for a bare neuron, which has none."""
    if not projections:
        zero = torch.zeros(len(ids), dtype=torch.int64)
        return zero, zero
    names = sorted(base, key=lambda n: base[n])
    starts = torch.tensor([base[n] for n in names], dtype=torch.float64)
    which = torch.searchsorted(starts, ids.contiguous(), right=True) - 1
    channel = (ids - starts[which]).long()
    owner = torch.tensor([projections.index(names[i]) for i in which.tolist()], dtype=torch.int64)
    return owner, channel


def read_projections(w: Walk, neurons: dict[str, NeuronInfo], streams: dict[str, int],
                     modules: dict[str, nn.Module], batch: int) -> dict[str, ProjectionInfo]:  # fmt: skip
    sinks: dict[str, list[Sheet]] = {}
    for fact in [c.fact for c in w.neurons] + [c.fact for c in w.projections] + w.outputs:
        for s in _sheets(fact):
            for n in s.projections:
                sinks.setdefault(n, []).append(s)
    calls: dict[str, list[ProjectionCall]] = {}
    for p in w.projections:
        calls.setdefault(p.name, []).append(p)
    return {
        n: _read_projection(n, cs, sinks.get(n, []), w, neurons, streams, modules[n], batch)
        for n, cs in calls.items()
    }


def _read_projection(
    name: str, calls: list[ProjectionCall], sinks: list[Sheet], w: Walk, neurons: dict[str, NeuronInfo],
    streams: dict[str, int], module: nn.Module, batch: int,
) -> ProjectionInfo:  # fmt: skip
    chains = {s.norms for s in sinks}
    if len(chains) > 1:
        raise UnsupportedOperation(
            f"the output of '{name}' is read behind different BatchNorms ({', '.join(sorted({n.name for c in chains for n in c}))}); "
            f"give each reader a projection of its own"
        )
    feeds = tuple(n.name for n in neurons.values() if name in n.projections)
    chained = [p.name for p in w.projections if isinstance(p.fact, Current) and name in p.fact.projections]
    decode = any(_leaves(f) and name in f.projections for f in w.outputs)  # type: ignore[union-attr]
    role: Role = "stream" if name in streams else "chain" if chained else "pair" if feeds else "output"
    if chained and (feeds or name in streams):
        raise UnsupportedOperation(
            f"the output of '{name}' feeds both a neuron and the projection '{chained[0]}'; give each its own"
        )
    facts = [c.fact for c in calls]
    reads: Any = {Data: "data", Count: "count", Current: "chain"}[type(facts[0])]
    if len({type(f) for f in facts}) > 1:
        raise UnsupportedOperation(f"'{name}' is called on spikes and on other inputs; give each its own projection")
    counts = [f for f in facts if isinstance(f, Count)]
    weight: Tensor = module.weight  # type: ignore[assignment]
    return ProjectionInfo(
        name=name,
        role=role,
        norms=next(iter(chains), ()),
        reads=reads,
        spike_sources=_unique(n for c in counts for n in sorted(c.sources)),
        chained_from=_unique(n for f in facts if isinstance(f, Current) for n in sorted(f.projections)),
        factor=min((f.factor for f in facts if isinstance(f, (Count, Current))), default=1.0),
        lo=min((c.lo for c in counts), default=0.0),
        hi=max((c.hi for c in counts), default=0.0),
        over_time=any(f.over_time for f in facts if isinstance(f, (Count, Current))),
        macs=sum(prod(c.out_shape) for c in calls) // batch * (weight.numel() // weight.shape[0]),
        feeds=feeds,
        stream=streams.get(name),
        decode=decode and not feeds,
    )


def _leaves(fact: Fact) -> bool:
    """An output that cannot be turned into real numbers at the end, only where it is made."""
    return isinstance(fact, Opaque) or (isinstance(fact, Current) and output_axis(fact) is None)


def output_axis(fact: Current) -> int | None:
    """Channel axis, counted from the end, of an output made of one projection's channels in order."""
    if len(fact.sheets) > 1 or len(fact.projections) > 1:
        return None
    ids = fact.sheets[0].ids % TIME
    layout = layout_of(ids)
    if len(layout.dims) > 1:
        return None
    axis = layout.dims[0] if layout.dims else ids.dim() - 1
    line = ids.movedim(axis, -1).reshape(-1, ids.shape[axis])[0]
    whole = torch.equal(line - line[0], torch.arange(len(line), dtype=ids.dtype))
    return axis - ids.dim() if whole else None
