"""The lattice of one neuron: the scale of what feeds it, its shift, the largest input.

s_c   gain * quantum * lattice (pair) | u_c (stream) | 1 (bare)
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from ptq4snn.bridge.basis import Basis
from ptq4snn.bridge.projection_lattice import ProjectionLattice
from ptq4snn.bridge.shifts import largest_shift
from ptq4snn.bridge.weights import per_channel
from ptq4snn.discovery.pairs import NeuronInfo

__all__ = ["NeuronLattice", "neuron_lattice"]


@dataclass(frozen=True)
class NeuronLattice:
    info: NeuronInfo
    theta: Tensor  # [C]
    rho: Tensor
    leak: Tensor
    gain: Tensor  # what is left after folding
    scale: Tensor  # [C] s_c
    own: Tensor  # [C] the BN-folded weight's own scale, without the gain; of a stream its last writer's
    shift: int
    input_bound: int  # largest |input| in units

    @property
    def unit(self) -> Tensor:
        return self.scale * 2.0**-self.shift


def neuron_lattice(basis: Basis, name: str, made: Mapping[str, ProjectionLattice]) -> NeuronLattice:
    """One neuron behind the projections `made`."""
    folded = basis.folded
    info, spec = folded.discovery.neurons[name], folded.specs[name]
    theta, leak, gain, rho = (
        per_channel(folded, name, v, what)
        for v, what in (
            (spec.theta, "threshold"),
            (spec.leak, "leak"),
            (spec.gain, "gain"),
            (spec.rho, "reset"),  # last: it is made of the others
        )
    )
    if info.stream is not None:
        base = basis.streams[info.stream][info.source_channel]
        peak = 32768.0 * info.span / info.factor
        shift = largest_shift(peak)
        bound = math.ceil(peak * 2**shift)
        last = [n for n in made if n in info.projections][-1]
        own = made[last].lattice[info.source_channel] * info.factor
    elif info.projections:
        parts = [made[p] for p in info.projections]
        columns = max(len(p.lattice) for p in parts)
        table = torch.stack(
            [torch.nn.functional.pad(p.lattice, (0, columns - len(p.lattice))) for p in parts]
        )
        base = table[info.source_projection, info.source_channel]
        shift = parts[0].shift
        bound = math.ceil(max(p.bound() for p in parts) * info.window)
    else:
        base = torch.ones(info.layout.channels, dtype=torch.float64)
        peak = max(abs(info.lo), abs(info.hi))
        shift = largest_shift(peak)
        bound = math.ceil(peak * 2**shift)
    scale = base * info.factor * gain
    if info.stream is None:
        own = scale / per_channel(folded, name, folded.discovery.specs[name].gain, "gain")
    return NeuronLattice(info, theta, rho, leak, gain, scale, own, shift, bound)
