"""What a unit is cut out along: the neurons inside it, what reaches it, where its error shows."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from ptq4snn.discovery.blocks import INPUT, OUTPUT, readers
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
    fired: neurons inside whose spikes are compared.
    readers: modules outside whose inputs are compared, each with the neuron or projection in front of it.
    shared: those of them that read a stream: the unit's share of it is known, the rest is recorded.

    What is compared is the recipe's `reconstruction`. potential: `neurons` and `outputs`. current: `outputs`,
    of pairs too. output: neurons that the unit drives are inside. Where what they fire meets something else
    on its way (a residual add), and all of that is inside or reaches the unit anyway, it is compared where it
    is read; else `fired`. Streams are compared where they are read next, with what the others wrote.
    """

    unit: tuple[str, ...]
    inner: frozenset[str]
    spikes: tuple[str, ...]
    currents: tuple[str, ...]
    neurons: tuple[str, ...]
    outputs: tuple[str, ...]
    data: bool
    fired: tuple[str, ...] = ()
    readers: dict[str, str] = field(default_factory=dict)
    shared: frozenset[str] = frozenset()

    @property
    def places(self) -> tuple[str, ...]:
        """Where the error shows."""
        return (*self.neurons, *self.outputs, *self.fired, *self.readers)


def find_boundary(discovery: Discovery, unit: tuple[str, ...], compared: str = "potential") -> Boundary:
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
    found = Boundary(
        unit,
        inner,
        tuple(n for n in entering if n in discovery.neurons),
        tuple(n for n in entering if n in discovery.projections),
        tuple(n for n in discovery.neurons if n in driven),
        tuple(plain),
        INPUT in entering,
    )
    if compared == "current":
        return replace(found, neurons=(), outputs=tuple(leaving))
    return _behind_neurons(found, discovery, after) if compared == "output" else found


def _behind_neurons(found: Boundary, discovery: Discovery, after: dict[str, set[str]]) -> Boundary:
    """The same unit with the spiking neurons that it drives inside; what is read as a current or a membrane
    stays outside."""
    synapses = {n.synapse for n in discovery.neurons.values()}
    driven = [n for n in found.neurons if n not in synapses and not discovery.neurons[n].readout]
    known = {*found.unit, *found.inner, *driven, *found.spikes, *found.currents}
    before = {r: {n for n, read in after.items() if r in read} for r in after}
    fired: list[str] = []
    read: dict[str, str] = {}
    for name in driven:
        meets = [r for r in after if r in after[name] - known and r not in (INPUT, OUTPUT)]
        joined = next((r for r in meets if len(before[r]) > 1 and before[r] <= known), None)
        if joined is None:
            fired.append(name)
        elif not any(before[r] == before[joined] for r in read):  # of several that read the same the first
            read[joined] = name
    streams = {}
    for name in found.outputs:
        if discovery.projections[name].stream is not None:
            nearest = [r for r in after if r in after[name] - known and r in discovery.neurons]
            if nearest:  # the next one: behind it others have written too
                streams[name] = min(nearest, key=lambda r: len(before[r]))
    return replace(
        found,
        inner=found.inner | {*driven},
        neurons=tuple(n for n in found.neurons if n not in driven),
        outputs=tuple(n for n in found.outputs if n not in streams),
        fired=tuple(fired),
        readers=read | {r: n for n, r in streams.items()},
        shared=frozenset(streams.values()),
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
