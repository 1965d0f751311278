"""What a unit is cut out along: the neurons inside it, what reaches it, where its error shows."""

from __future__ import annotations

from dataclasses import dataclass

from ptq4snn.discovery.blocks import INPUT, readers
from ptq4snn.discovery.discover import Discovery

__all__ = ["Boundary", "find_boundary"]


@dataclass(frozen=True)
class Boundary:
    """Of a unit of projections.

    inner: neurons between its projections, driven by nothing but them and by spikes.
    spikes: neurons outside whose spikes reach it.
    currents: projections outside that it reads without a neuron between (chains).
    neurons: neurons outside that its pairs drive; their membrane potentials are compared.
    outputs: its other projections that are read outside (streams, chains, outputs), compared as they are.
    data: whether the model's input reaches it too.
    """

    unit: tuple[str, ...]
    inner: frozenset[str]
    spikes: tuple[str, ...]
    currents: tuple[str, ...]
    neurons: tuple[str, ...]
    outputs: tuple[str, ...]
    data: bool


def find_boundary(discovery: Discovery, unit: tuple[str, ...]) -> Boundary:
    after = readers(discovery.graph)
    inner = _inner(discovery, unit, after)
    inside = {*unit, *inner}
    entering = [name for name, read in after.items() if name not in inside and read & inside]
    leaving = [p for p in unit if after[p] - inside]
    driven = {
        n
        for p in leaving
        if discovery.projections[p].role == "pair"
        for n in after[p] - inside
        if n in discovery.neurons
    }
    plain = [p for p in leaving if not after[p] & driven]
    return Boundary(
        unit,
        inner,
        tuple(n for n in entering if n in discovery.neurons),
        tuple(n for n in entering if n in discovery.projections),
        tuple(n for n in discovery.neurons if n in driven),
        tuple(plain),
        INPUT in entering,
    )


def _inner(discovery: Discovery, unit: tuple[str, ...], after: dict[str, set[str]]) -> frozenset[str]:
    """Neurons behind the unit that no other projection drives, and of these the ones in front of it."""
    behind: set[str] = set()
    foreign = {n for p in discovery.projections if p not in unit for n in after[p]}
    grown = True
    while grown:
        reached = {n for name in (*unit, *behind) for n in after[name]}
        new = {n for n in reached if n in discovery.neurons and n not in foreign} - behind
        behind |= new
        grown = bool(new)
    kept: set[str] = set()
    grown = True
    while grown:
        new = {n for n in behind - kept if after[n] & {*unit, *kept}}
        kept |= new
        grown = bool(new)
    return frozenset(kept)
