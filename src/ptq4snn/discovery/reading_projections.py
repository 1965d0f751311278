"""Read the walked graph: every projection with its role, its norms and what it reads."""

from __future__ import annotations

from dataclasses import replace
from math import prod
from typing import Any

import torch
from torch import Tensor, nn

from ptq4snn.discovery.chains import check_borders, even_constant
from ptq4snn.discovery.facts import (
    RELU,
    TIME,
    Count,
    Current,
    Data,
    Fact,
    NormCall,
    Opaque,
    Sheet,
    projections_of,
    sheets_of,
)
from ptq4snn.discovery.info import NeuronInfo, Norm, ProjectionInfo, Role, RowOrder
from ptq4snn.discovery.outputs import leaves, summed_with
from ptq4snn.discovery.pairs import unique
from ptq4snn.discovery.thin import thin
from ptq4snn.discovery.walk import ProjectionCall, Walk
from ptq4snn.errors import UnsupportedOperation

__all__ = ["read_projections"]


def read_projections(w: Walk, neurons: dict[str, NeuronInfo], streams: dict[str, int],
                     ties: dict[str, tuple[str, ...]], modules: dict[str, nn.Module],
                     batch: int) -> dict[str, ProjectionInfo]:  # fmt: skip
    sinks: dict[str, list[Sheet]] = {}
    for fact in [c.fact for c in w.neurons] + [c.fact for c in w.projections] + w.leaving:
        for s in sheets_of(fact):
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
        rows = _row_order(cs, batch) if info.reads == "count" else None
        out[name] = replace(info, constant=constant, tied=ties.get(name, ()), rectified=rectified, rows=rows)
    return out


def _norms(w: Walk, name: str, sinks: list[Sheet]) -> tuple[Norm, ...]:
    """The BatchNorms behind a projection, in order; all readers of an output channel are behind the same."""
    start, count = w.base[name], w.channels[name]
    chains: list[tuple[Any, ...] | None] = [None] * count
    found: dict[tuple[Any, ...], list[int]] = {}
    for s in {(id(s.norms), s.ids.data_ptr()): s for s in sinks}.values():
        seen = torch.unique(thin(s.ids) % TIME) - start
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
    chained = [p.name for p in w.projections if name in projections_of(p.fact)]
    role: Role = "stream" if name in streams else "chain" if chained else "pair" if feeds else "output"
    mine = [f for f in w.leaving if isinstance(f, (Current, Opaque)) and name in f.projections]
    decode = any(any(f is e for e in w.exits) or leaves(w, f, streams) for f in mine)
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


def _row_order(calls: list[ProjectionCall], batch: int) -> RowOrder | None:
    """Of a single call whose rows have the steps 0..T-1, each `apart` times, over and over."""
    steps = calls[0].steps
    count = max(steps, default=0) + 1
    if len(calls) > 1 or count == 1 or steps[0] or batch == 1 or len(steps) % (batch * count):
        return None
    apart = next(i for i, t in enumerate(steps) if t)
    once = [t for t in range(count) for _ in range(apart)]
    if list(steps) != once * (len(steps) // len(once)):
        return None
    return RowOrder(len(steps) // (batch * count), 0 if len(steps) == len(once) else apart)


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
    chained = unique(n for f in facts for n in sorted(projections_of(f)))
    found = {streams.get(n) for n in chained}
    if found - {None} and len(found) > 1:
        raise UnsupportedOperation(f"'{name}' reads several sums of currents; give each its own projection")
    reads = "stream" if found - {None} else reads
    return ProjectionInfo(
        name=name,
        role=role,
        norms=norms,
        reads=reads,
        spike_sources=unique(n for c in counts for n in sorted(c.sources)),
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
        reads_rectified=reads == "chain" and all(RELU in s.ops for f in facts for s in sheets_of(f)),
        decode=decode,
    )
