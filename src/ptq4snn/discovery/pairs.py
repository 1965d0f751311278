"""Read the walked graph: every neuron as pair, stream or bare.

pair    fed by one projection, through BatchNorm, reshapes, pooling, upsampling
stream  fed by a sum of projections; all writers of the sum share one scale per channel
bare    fed by spikes only
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import replace
from typing import Any

import torch

from ptq4snn.discovery.facts import Count, Current, Data, Fact, Membrane, Opaque, projections_of, sheets_of
from ptq4snn.discovery.info import NeuronInfo
from ptq4snn.discovery.walk import NeuronCall, Walk
from ptq4snn.errors import UnsupportedOperation
from ptq4snn.frameworks import NeuronSpec

__all__ = ["Groups", "find_streams", "find_ties", "read_neurons", "unique"]


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


def unique(names: Iterable[str]) -> tuple[str, ...]:
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
        feeds[name] = {p for c in cs for p in projections_of(c.fact)}
    for name, cs in calls.items():
        feeds[name] |= {p for c in cs for p in feeds.get(_through(c.fact) or "", ())}
    reads: dict[str, set[str]] = {}  # projection -> neurons that it reads
    for p in w.projections:
        reads.setdefault(p.name, set()).update(p.fact.sources if isinstance(p.fact, Count) else ())
    ties: dict[str, tuple[str, ...]] = {}
    read_on = frozenset().union(*(projections_of(p.fact) for p in w.projections))
    for name, cs in calls.items():
        summed = sorted(
            frozenset().union(*(projections_of(c.fact) for c in cs if len(sheets_of(c.fact)) > 1))
        )
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
        if len(sheets_of(call.fact)) > 1 and not projections_of(call.fact) <= set(ties):
            groups.join(sorted(projections_of(call.fact)))
    for name, calls in _calls_of(w).items():
        found = {projections_of(c.fact) for c in calls}
        if len(found) > 1 and not frozenset().union(*found) <= set(ties):  # reads them all on one scale
            _check_reuse(w, name, calls)
            groups.join(sorted(frozenset().union(*(projections_of(c.fact) for c in calls))))
    fed = frozenset().union(*(projections_of(c.fact) for c in w.neurons))
    for p in w.projections:
        if (
            len(sheets_of(p.fact)) > 1 or projections_of(p.fact) & fed
        ):  # its integers are the projection's input
            groups.join(sorted(projections_of(p.fact)))
    roots = {n: groups.find(n) for n in groups.parent}
    order = {r: i for i, r in enumerate(dict.fromkeys(roots[n] for n in w.base if n in roots))}
    return {n: order[r] for n, r in roots.items()}


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
        projections = sorted(
            frozenset().union(*(projections_of(c.fact) for c in calls)), key=lambda n: ran[n]
        )
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
            made_output |= projections_of(call.fact)
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
        "norms": unique(n.name for s in sheets for n in s.norms),
        "ops": unique(o for s in sheets for o in s.ops),
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
        "spike_sources": unique(n for f in facts for n in sorted(f.sources)),
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
