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
from ptq4snn.discovery.info import NeuronInfo
from ptq4snn.errors import RecipeError, UnsupportedNeuron
from ptq4snn.numerics.fixed_point import leak_on_grid
from ptq4snn.numerics.limits import INT32

__all__ = ["SYNAPTIC", "NeuronLattice", "membrane_lattice", "neuron_lattice"]

SYNAPTIC = INT32 // 2  # a synaptic current stays below it: one bit for it, one for the membrane


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
    info = folded.discovery.neurons[name]
    theta, leak, gain, rho = _parameters(basis, name)
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
        shift = parts[int(info.source_projection[0])].shift
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


def membrane_lattice(basis: Basis, name: str, synapse: NeuronLattice) -> NeuronLattice:
    """A membrane counts what its synapse counts: s_V = s_w 2^k as well as s_I."""
    theta, leak, gain, rho = _parameters(basis, name)
    if bool((gain != 1).any()):
        raise UnsupportedNeuron(
            f"the membrane '{name}' scales its synaptic current; scale the weights in front of it instead"
        )
    info = basis.folded.discovery.neurons[name]
    return NeuronLattice(info, theta, rho, leak, gain, synapse.scale, synapse.own, synapse.shift, SYNAPTIC)


def _parameters(basis: Basis, name: str) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Threshold, leak, gain and reset [C]."""
    spec = basis.folded.specs[name]
    vectors = {"threshold": spec.theta, "leak": spec.leak, "gain": spec.gain}
    theta, leak, gain = (per_channel(basis.folded, name, v, what) for what, v in vectors.items())
    leak = _on_grid(leak, basis.recipe.leak, name)
    rho = per_channel(basis.folded, name, spec.rho, "reset")  # last: it is made of the others
    return theta, leak, gain, rho


def _on_grid(leak: Tensor, grid: str, name: str) -> Tensor:
    """Leaks [C] as the recipe wants them."""
    if grid == "power" and bool(((leak < 0) | (leak > 1)).any()):
        odd = next(v for v in leak.tolist() if not 0 <= v <= 1)
        raise RecipeError(f"the leak of '{name}' is {odd:g}, and no 1 - 2^-n is: choose leak \"exact\"")
    return leak.new_tensor([leak_on_grid(v, grid) for v in leak.tolist()])
