"""F, the fractional bits of an accumulator: the largest number up to 8 for which all stays exact."""

from __future__ import annotations

from collections.abc import Mapping

from ptq4snn.bridge.projection_lattice import ProjectionLattice
from ptq4snn.discovery.folding import Folded
from ptq4snn.discovery.pairs import Groups
from ptq4snn.errors import UnsupportedOperation
from ptq4snn.numerics.limits import EXACT_FLOAT32, INT32

__all__ = ["group_shifts", "largest_shift"]

MAX_UNIT_SHIFT = 8
# of a neuron's input; the other half is the state's
EXACT_INPUT, INT32_INPUT = EXACT_FLOAT32 // 2, INT32 // 2


def largest_shift(bound: float) -> int:
    """Largest F <= 8 with bound * 2^F exact in float32, else in int32."""
    for limit in (EXACT_INPUT, INT32_INPUT):
        for shift in range(MAX_UNIT_SHIFT, -1, -1):
            if bound * 2.0**shift < limit:
                return shift
    raise UnsupportedOperation(
        f"a worst-case accumulator of {bound:g} does not fit 32 bits; use fewer weight bits"
    )


def group_shifts(folded: Folded, made: Mapping[str, ProjectionLattice]) -> dict[str, int]:
    """One F for all projections and neurons that hang together as pairs."""
    groups = Groups()
    for n in folded.discovery.neurons.values():
        if n.stream is None and n.projections:
            groups.join(n.projections)
    for head in made.values():
        groups.join(head.info.summed)
    shifts: dict[str, int] = {}
    for name, p in made.items():
        windows = [folded.discovery.neurons[n].window for n in p.info.feeds] if p.info.stream is None else []
        window = max(windows, default=1.0)
        largest = float((p.peak + (p.bias.abs() + p.mirrored) / p.lattice).max()) * window
        shift = largest_shift(largest * 2.0**p.octaves)
        root = groups.find(name)
        shifts[root] = min(shifts.get(root, MAX_UNIT_SHIFT), shift)
    return {name: shifts[groups.find(name)] + p.octaves for name, p in made.items()}
