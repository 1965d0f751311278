"""Read the walked graph: every neuron as pair, stream or bare, every projection with its role.

pair    fed by one projection, through BatchNorm, reshapes, pooling, upsampling
stream  fed by a sum of projections; all writers of the sum share one scale per channel
bare    fed by spikes only
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import replace
from math import prod
from typing import Any

import torch
from torch import Tensor, nn

from ptq4snn.discovery.chains import check_borders, even_constant
from ptq4snn.discovery.facts import RELU, TIME, Count, Current, Data, Fact, Membrane, NormCall, Opaque, Sheet
from ptq4snn.discovery.info import Kind, NeuronInfo, Norm, ProjectionInfo, Role
from ptq4snn.discovery.outputs import leaves, summed_with
from ptq4snn.discovery.walk import NeuronCall, ProjectionCall, Walk
from ptq4snn.errors import UnsupportedOperation
from ptq4snn.frameworks import NeuronSpec

__all__ = [
    "Groups", "Kind", "NeuronInfo", "Norm", "ProjectionInfo", "Role", "find_streams", "find_ties",
    "read_neurons", "read_projections",
]  # fmt: skip


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
    return fact.sheets if isinstance(fact, Current) and fact.through is None else ()


def _unique(names: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(names))


def _calls_of(w: Walk) -> dict[str, list[NeuronCall]]:
    calls: dict[str, list[NeuronCall]] = {}
    for c in w.neurons:
        calls.setdefault(c.name, []).append(c)
    return calls


def find_ties(w: Walk, shortcuts: Collection[str] = ()) -> dict[str, tuple[str, ...]]:
    """Of every projection that a recurrent neuron sums, all that it sums: W x[t] + W_rec s[t-1] is one
    projection over both inputs, with one scale a channel, so that nothing but adds is needed. So is W x + s,
    a sum with a shortcut of weights one."""
    calls = _calls_of(w)
    feeds: dict[str, set[str]] = {}  # neuron -> projections whose currents reach it, directly or not
    for name, cs in calls.items():
        feeds[name] = {p for c in cs for p in _projections(c.fact)}
    for name, cs in calls.items():
        feeds[name] |= {p for c in cs for p in feeds.get(_through(c.fact) or "", ())}
    reads: dict[str, set[str]] = {}  # projection -> neurons that it reads
    for p in w.projections:
        reads.setdefault(p.name, set()).update(p.fact.sources if isinstance(p.fact, Count) else ())
    ties: dict[str, tuple[str, ...]] = {}
    read_on = frozenset().union(*(_projections(p.fact) for p in w.projections))
    for name, cs in calls.items():
        summed = sorted(frozenset().union(*(_projections(c.fact) for c in cs if len(_sheets(c.fact)) > 1)))
        alone = all({n for n in feeds if p in feeds[n]} <= _with_membrane(calls, name) for p in summed)
        alone = alone and not read_on & set(summed)
        if summed and alone and any(p in shortcuts or _depends(p, name, feeds, reads, calls) for p in summed):
            ties |= dict.fromkeys(summed, tuple(summed))
    return ties


def _with_membrane(calls: dict[str, list[NeuronCall]], name: str) -> set[str]:
    """A neuron and, where it is a synapse, the neurons behind it."""
    return {name} | {n for n, cs in calls.items() if any(_through(c.fact) == name for c in cs)}


def _depends(
    projection: str, neuron: str, feeds: dict[str, set[str]], reads: dict[str, set[str]],
    calls: dict[str, list[NeuronCall]],
) -> bool:  # fmt: skip
    """Whether a projection reads, through whatever lies between, spikes of the neuron that it feeds."""
    goal, todo, seen = _with_membrane(calls, neuron), [projection], set[str]()
    while todo:
        p = todo.pop()
        if p in seen:
            continue
        seen.add(p)
        if reads.get(p, set()) & goal:
            return True
        todo += [q for n in reads.get(p, ()) for q in feeds.get(n, ())]
    return False


def find_streams(w: Walk, ties: dict[str, tuple[str, ...]]) -> dict[str, int]:
    """Stream number of every projection that writes into a sum which is not tied, or whose output neurons
    and projections read."""
    groups = Groups()
    for call in w.neurons:
        if len(_sheets(call.fact)) > 1 and not _projections(call.fact) <= set(ties):
            groups.join(sorted(_projections(call.fact)))
    for name, calls in _calls_of(w).items():
        found = {_projections(c.fact) for c in calls}
        if len(found) > 1 and not frozenset().union(*found) <= set(ties):  # reads them all on one scale
            _check_reuse(w, name, calls)
            groups.join(sorted(frozenset().union(*(_projections(c.fact) for c in calls))))
    fed = frozenset().union(*(_projections(c.fact) for c in w.neurons))
    for p in w.projections:
        if len(_sheets(p.fact)) > 1 or _projections(p.fact) & fed:  # its integers are the projection's input
            groups.join(sorted(_projections(p.fact)))
    roots = {n: groups.find(n) for n in groups.parent}
    order = {r: i for i, r in enumerate(dict.fromkeys(roots[n] for n in w.base if n in roots))}
    return {n: order[r] for n, r in roots.items()}


def _projections(fact: Fact) -> frozenset[str]:
    """Those that a current comes from without a neuron between."""
    return fact.projections if isinstance(fact, Current) and fact.through is None else frozenset()


def _through(fact: Fact) -> str | None:
    return fact.through if isinstance(fact, Current) else None


def _check_reuse(w: Walk, name: str, calls: list[NeuronCall]) -> None:
    channels = [w.locate(c.sources)[1] for c in calls]
    spiking = any(not isinstance(c.fact, Current) for c in calls)
    if spiking or any(not torch.equal(c, channels[0]) for c in channels):
        raise UnsupportedOperation(
            f"the neuron '{name}' is called behind projections whose channels do not match; use one each"
        )


def read_neurons(w: Walk, specs: dict[str, NeuronSpec], streams: dict[str, int]) -> dict[str, NeuronInfo]:
    stems = {p.name for p in w.projections if isinstance(p.fact, Data) and not p.fact.floating}
    readouts = {f.neuron for f in w.leaving if isinstance(f, Membrane)}.union(
        *(f.membranes for f in w.leaving if isinstance(f, Opaque))
    )
    final = _feeding_output(w)
    ran = {p.name: i for i, p in reversed(list(enumerate(w.projections)))}
    out: dict[str, NeuronInfo] = {}
    for name, calls in _calls_of(w).items():
        if any(c.layout != calls[0].layout for c in calls):
            raise UnsupportedOperation(
                f"the neuron '{name}' is called with states of different shapes; use one each"
            )
        projections = sorted(frozenset().union(*(_projections(c.fact) for c in calls)), key=lambda n: ran[n])
        synapse = _through(calls[0].fact)
        read = _read_current if projections else _read_bare if synapse is None else _read_synaptic
        fields = read(calls, tuple(projections), specs[name], w, streams)
        stem = fields["kind"] == "pair" and any(p in stems for p in projections)
        out[name] = NeuronInfo(
            name=name,
            layout=calls[0].layout,
            steps=sum(c.steps or 1 for c in calls),
            over_time=any(c.fact.over_time for c in calls),  # type: ignore[union-attr]
            stem=stem if synapse is None else out[synapse].stem,
            readout=name in readouts,
            last=name in final,
            **fields,
        )
    return {n: replace(i, last=_reaches_last(i, out)) for n, i in out.items()}


def _reaches_last(info: NeuronInfo, neurons: dict[str, NeuronInfo]) -> bool:
    """Whether a neuron, or the membrane behind a synapse, feeds what makes the output."""
    return info.last or any(n.last for n in neurons.values() if n.synapse == info.name)


def _feeding_output(w: Walk) -> set[str]:
    """Neurons whose spikes are the output or feed the projections that make it."""
    made_output = set[str]().union(*(f.projections for f in w.leaving if isinstance(f, (Current, Opaque))))
    names = {n for f in w.leaving if isinstance(f, Count) for n in f.sources}
    names |= {f.neuron for f in w.leaving if isinstance(f, Membrane)}
    names |= {s for c in w.neurons if c.name in names and (s := _through(c.fact)) is not None}
    for call in w.neurons:
        if call.name in names:
            made_output |= _projections(call.fact)
    for p in w.projections:
        if p.name in made_output and isinstance(p.fact, Count):
            names |= p.fact.sources
    return names


def _read_current(
    calls: list[NeuronCall], projections: tuple[str, ...], spec: NeuronSpec, w: Walk, streams: dict[str, int]
) -> dict[str, Any]:
    facts = [c.fact for c in calls if isinstance(c.fact, Current)]
    sheets = [s for f in facts for s in f.sheets]
    summed = any(len(f.sheets) > 1 for f in facts) or len({f.projections for f in facts}) > 1
    summed = summed and any(p in streams for p in projections)
    if len({f.factor for f in facts}) > 1:
        raise UnsupportedOperation(
            f"the neuron '{calls[0].name}' is called on currents of different quanta; use one each"
        )
    names = list(w.base)
    which, channel = w.locate(calls[0].sources)
    owner = torch.tensor([projections.index(names[i]) for i in which.tolist()], dtype=torch.int64)
    return {
        "kind": "stream" if summed else "pair",
        "projections": projections,
        "spike_sources": (),
        "norms": _unique(n.name for s in sheets for n in s.norms),
        "ops": _unique(o for s in sheets for o in s.ops),
        "source_projection": owner,
        "source_channel": channel.long(),
        "factor": facts[0].factor,
        "window": max(f.window for f in facts),
        "span": max(f.span for f in facts),
        "lo": 0.0,
        "hi": 0.0,
        "stream": next((streams[p] for p in projections if p in streams), None),
    }


def _read_synaptic(
    calls: list[NeuronCall], projections: tuple[str, ...], spec: NeuronSpec, w: Walk, streams: dict[str, int]
) -> dict[str, Any]:
    """A membrane behind a synapse: one state behind the other, channel by channel."""
    through = {_through(c.fact) for c in calls}
    if len(through) > 1:
        raise UnsupportedOperation(
            f"the neuron '{calls[0].name}' is called behind several synaptic currents; use one neuron each"
        )
    channels = torch.arange(calls[0].layout.channels)
    return {
        "kind": "pair",
        "projections": (),
        "spike_sources": (),
        "norms": (),
        "ops": (),
        "source_projection": torch.zeros_like(channels),
        "source_channel": channels,
        "factor": 1.0,
        "window": 1.0,
        "lo": 0.0,
        "hi": 0.0,
        "synapse": through.pop(),
    }


def _read_bare(
    calls: list[NeuronCall], projections: tuple[str, ...], spec: NeuronSpec, w: Walk, streams: dict[str, int]
) -> dict[str, Any]:
    facts = [c.fact for c in calls if isinstance(c.fact, Count)]
    factor = min(f.factor for f in facts)
    if any(f.factor / factor != round(f.factor / factor) for f in facts):
        raise UnsupportedOperation(
            f"the neuron '{calls[0].name}' is called on spike counts of unrelated quanta; use one each"
        )
    lo = min(f.lo * f.factor / factor for f in facts)
    hi = max(f.hi * f.factor / factor for f in facts)
    # any input but zero fires at once, and the reset is to zero: the state never leaves it
    zero = spec.reset == "hard" and lo >= 0 and bool((factor * spec.gain >= spec.theta).all())
    if spec.comparator == ">":
        zero = zero and bool((factor * spec.gain > spec.theta).all())
    none = torch.zeros(calls[0].layout.channels, dtype=torch.int64)
    return {
        "kind": "bare",
        "projections": (),
        "spike_sources": _unique(n for f in facts for n in sorted(f.sources)),
        "norms": (),
        "ops": (),
        "source_projection": none,
        "source_channel": none,
        "factor": factor,
        "window": 1.0,
        "lo": lo,
        "hi": hi,
        "zero_state": zero,
    }


def read_projections(w: Walk, neurons: dict[str, NeuronInfo], streams: dict[str, int],
                     ties: dict[str, tuple[str, ...]], modules: dict[str, nn.Module],
                     batch: int) -> dict[str, ProjectionInfo]:  # fmt: skip
    sinks: dict[str, list[Sheet]] = {}
    for fact in [c.fact for c in w.neurons] + [c.fact for c in w.projections] + w.leaving:
        for s in _sheets(fact):
            for n in s.projections:
                sinks.setdefault(n, []).append(s)
    calls: dict[str, list[ProjectionCall]] = {}
    for p in w.projections:
        calls.setdefault(p.name, []).append(p)
    out = {}
    for name, cs in calls.items():
        weight: Tensor = modules[name].weight  # type: ignore[assignment]
        macs = sum(prod(c.out_shape) for c in cs) // batch * (weight.numel() // weight.shape[0])
        norms = _norms(w, name, sinks.get(name, []))
        check_borders(w, name, norms, modules)
        info = _read_projection(cs, norms, w, neurons, streams, macs)
        constant = even_constant(w, cs, modules[name])
        rectified = all(RELU in s.ops for s in sinks.get(name, ())) and bool(sinks.get(name))
        out[name] = replace(info, constant=constant, tied=ties.get(name, ()), rectified=rectified)
    return out


def _norms(w: Walk, name: str, sinks: list[Sheet]) -> tuple[Norm, ...]:
    """The BatchNorms behind a projection, in order; all readers of an output channel are behind the same."""
    start, count = w.base[name], w.channels[name]
    chains: list[tuple[Any, ...] | None] = [None] * count
    found: dict[tuple[Any, ...], list[int]] = {}
    for s in {(id(s.norms), s.ids.data_ptr()): s for s in sinks}.values():
        seen = torch.unique(s.ids % TIME) - start
        mine = [int(c) for c in seen.tolist() if 0 <= c < count]
        maps = [(n, dict(n.channels)) for n in s.norms]
        for c in mine:
            chain = tuple((*_kind(n), m[start + c]) for n, m in maps if start + c in m)
            if chains[c] is not None and chains[c] != chain:
                names = sorted({step[0] for step in (*chain, *chains[c])})  # type: ignore[misc]
                raise UnsupportedOperation(
                    f"the output of '{name}' is read behind different BatchNorms ({', '.join(names)}); "
                    f"give each reader a projection of its own"
                )
            chains[c] = chain
            for place, step in enumerate(chain):
                found.setdefault((place, *step[:-1]), [-1] * count)[c] = step[-1]
    ordered = sorted(found.items(), key=lambda item: int(item[0][0]))
    return tuple(Norm(bn, one, after_max, tuple(c), border) for (_, bn, one, after_max, border), c in ordered)


def _kind(n: NormCall) -> tuple[str, float, bool, int]:
    return n.name, n.constant, n.after_max, n.border


def _role(name: str, feeds: tuple[str, ...], w: Walk, streams: dict[str, int]) -> tuple[Role, bool]:
    """The projection's role, and whether its output leaves integers where it is made."""
    chained = [p.name for p in w.projections if name in _projections(p.fact)]
    role: Role = "stream" if name in streams else "chain" if chained else "pair" if feeds else "output"
    leaving = [f for f in w.outputs if leaves(w, f, streams)] + w.exits
    decode = any(name in f.projections for f in leaving if isinstance(f, (Current, Opaque)))
    if decode and role != "output":
        raise UnsupportedOperation(
            f"the output of '{name}' goes on inside the network and also leaves it by another operation; "
            f"give each its own projection"
        )
    return role, decode


def _input_channels(w: Walk, calls: list[ProjectionCall]) -> tuple[int, ...]:
    """The stream's channel of every input channel of a projection that reads it."""
    rows = set()
    for call in calls:
        assert isinstance(call.fact, Current)
        ids = w.locate(call.fact.sheets[0].ids % TIME)[1]
        lines = ids.movedim(call.in_axis, 0).reshape(ids.shape[call.in_axis], -1)
        if not torch.equal(lines.amin(1), lines.amax(1)):
            raise UnsupportedOperation(
                f"'{call.name}' reads several channels of a sum of currents as one; give each its own"
            )
        rows.add(tuple(int(n) for n in lines[:, 0].tolist()))
    if len(rows) > 1:
        raise UnsupportedOperation(
            f"'{calls[0].name}' reads different channels from call to call; use one projection each"
        )
    return rows.pop()


def _is_rest(fact: Fact) -> bool:
    """Whether it stands for the spikes before the first step."""
    return isinstance(fact, Count) and not fact.sources and fact.lo == fact.hi == 0


def _read_projection(
    calls: list[ProjectionCall], norms: tuple[Norm, ...], w: Walk, neurons: dict[str, NeuronInfo],
    streams: dict[str, int], macs: int,
) -> ProjectionInfo:  # fmt: skip
    """One projection from all its calls."""
    name = calls[0].name
    feeds = tuple(n.name for n in neurons.values() if name in n.projections)
    role, decode = _role(name, feeds, w, streams)
    summed = summed_with(w, name, streams) if role == "output" else ()
    facts = [c.fact for c in calls]
    if len({type(f) for f in facts}) > 1:
        raise UnsupportedOperation(
            f"'{name}' is called on spikes and on other inputs; give each its own projection"
        )
    scaled = [f for f in facts if isinstance(f, (Count, Current)) and not _is_rest(f)]
    counts = [f for f in scaled if isinstance(f, Count)]
    factor = min((f.factor for f in scaled), default=1.0)
    reads: Any = {Data: "data", Count: "count", Current: "chain"}[type(facts[0])]
    chained = _unique(n for f in facts for n in sorted(_projections(f)))
    found = {streams.get(n) for n in chained}
    if found - {None} and len(found) > 1:
        raise UnsupportedOperation(f"'{name}' reads several sums of currents; give each its own projection")
    reads = "stream" if found - {None} else reads
    return ProjectionInfo(
        name=name,
        role=role,
        norms=norms,
        reads=reads,
        spike_sources=_unique(n for c in counts for n in sorted(c.sources)),
        chained_from=chained,
        factor=factor,
        lo=min((c.lo * c.factor / factor for c in counts), default=0.0),
        hi=max((c.hi * c.factor / factor for c in counts), default=0.0),
        over_time=any(f.over_time for f in scaled),
        macs=macs,
        feeds=feeds,
        span=max((f.span for f in facts if isinstance(f, Current)), default=1.0),
        stream=streams.get(name),
        summed=summed,
        source_stream=found.pop() if reads == "stream" else None,
        source_channels=_input_channels(w, calls) if reads == "stream" else (),
        reads_rectified=reads == "chain" and all(RELU in s.ops for f in facts for s in _sheets(f)),
        decode=decode,
    )
