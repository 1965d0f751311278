"""The integer lattice of the network before any state is quantized: weight integers, streams, shifts, bounds.

lattice[c] of a projection   s_w,c * (quantum of its input)         real value of one accumulator step
s_c of a neuron              gain * quantum * lattice (pair) | u_c (stream) | 1 (bare)
F                            largest <= 8 for which the worst-case input stays exact

It is settled in stages, each a new value that is whole in itself:

    Lattice.of(folded, seen, recipe)   the weights' own scales, nearest integers, folded biases
    .with_scales(scales, streams)      other scales (joint search); nearest integers again
    .with_integers(integers)           other integers for these scales (rounding/)
    .with_biases(biases)               other biases (tuning/correction.py)
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from torch import Tensor

from ptq4snn.bridge.basis import Basis
from ptq4snn.bridge.couplings import ExponentTable
from ptq4snn.bridge.neuron_lattice import SYNAPTIC, NeuronLattice, membrane_lattice, neuron_lattice
from ptq4snn.bridge.projection_lattice import ProjectionLattice, one_scale, projection_lattice, tied_scales
from ptq4snn.bridge.shifts import group_shifts
from ptq4snn.discovery.folding import Folded
from ptq4snn.observation.observe import Observation
from ptq4snn.recipe import Recipe

__all__ = ["SYNAPTIC", "Lattice", "NeuronLattice", "ProjectionLattice"]


@dataclass(frozen=True)
class Lattice:
    basis: Basis
    projections: Mapping[str, ProjectionLattice]
    neurons: Mapping[str, NeuronLattice]
    given: Mapping[str, Tensor] = field(default_factory=dict)  # weight scales that are not the weights' own
    # costs by squared error, which all assemblies on this lattice share; nothing in it changes a result
    tables: dict[str, ExponentTable] = field(init=False, default_factory=dict, repr=False, compare=False)

    @classmethod
    def of(cls, folded: Folded, seen: Observation, recipe: Recipe) -> Lattice:
        """Every weight at its own scales, rounded to the nearest."""
        return cls._nearest(Basis.of(folded, seen, recipe), {})

    def with_scales(
        self, scales: Mapping[str, Tensor], streams: Mapping[int, Tensor] | None = None
    ) -> Lattice:
        """Scales [C] of weights and streams instead of their own, where given. Integers and biases begin
        again."""
        basis = replace(self.basis, streams={**self.basis.streams, **(streams or {})})
        return self._nearest(basis, {**self.given, **scales})

    def with_integers(self, integers: Mapping[str, Tensor]) -> Lattice:
        """Integers [C, ...] for the scales as they are, where given."""
        changed = {n: self.projections[n].with_integers(i) for n, i in integers.items()}
        return self._settled(self.basis, {**self.projections, **changed}, self.given)

    def with_biases(self, biases: Mapping[str, Tensor]) -> Lattice:
        """Biases [C], real, where given."""
        changed = {n: self.projections[n].with_bias(b) for n, b in biases.items()}
        return self._settled(self.basis, {**self.projections, **changed}, self.given)

    @classmethod
    def _nearest(cls, basis: Basis, scales: Mapping[str, Tensor]) -> Lattice:
        infos = basis.folded.discovery.projections
        made: dict[str, ProjectionLattice] = {}
        for name in infos:  # in execution order, so a chain's first projection comes first
            made[name] = projection_lattice(basis, name, made, scales.get(name))
        for group in {p.summed for p in infos.values() if p.summed}:
            made |= one_scale(basis, [made[n] for n in group])
        for group in {p.tied for p in infos.values() if p.tied}:
            made |= tied_scales(basis, [made[n] for n in group])
        return cls._settled(basis, made, scales)

    @classmethod
    def _settled(
        cls, basis: Basis, made: Mapping[str, ProjectionLattice], given: Mapping[str, Tensor]
    ) -> Lattice:
        """Shifts and neurons follow from the projections."""
        shifts = group_shifts(basis.folded, made)
        projections = {n: replace(p, shift=shifts[n]) for n, p in made.items()}
        neurons: dict[str, NeuronLattice] = {}
        for name, info in basis.folded.discovery.neurons.items():  # a synapse before its membrane
            if info.synapse is None:
                neurons[name] = neuron_lattice(basis, name, projections)
            else:
                neurons[name] = membrane_lattice(basis, name, neurons[info.synapse])
        return cls(basis, projections, neurons, given)
