"""The integer lattice of the network before any state is quantized: weight integers, streams, shifts, bounds.

lattice[c] of a projection   s_w,c * (quantum of its input)         real value of one accumulator step
s_c of a neuron              gain * quantum * lattice (pair) | u_c (stream) | 1 (bare)
F                            largest <= 8 for which the worst-case input stays exact
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from ptq4snn.bridge.weights import FLOOR, input_scales, per_channel, shifted_scales, weight_bits, weight_floor
from ptq4snn.discovery.folding import Folded
from ptq4snn.discovery.pairs import Groups, NeuronInfo, ProjectionInfo
from ptq4snn.errors import UnsupportedNeuron, UnsupportedOperation
from ptq4snn.network.plan import InputPlan
from ptq4snn.numerics.grid import signed_range
from ptq4snn.numerics.nearest import QuantWeight, round_nearest
from ptq4snn.observation.observe import Observation
from ptq4snn.recipe import Recipe

__all__ = ["Lattice", "NeuronLattice", "ProjectionLattice", "SYNAPTIC", "build_lattice"]

MAX_SHIFT = 8
EXACT = 2**23  # half of float32's exact integers: the other half is the state's
INT32 = 2**30
ZERO = 2.0**16
SYNAPTIC = 2**30  # a synaptic current stays below it: one bit for it, one for the membrane


@dataclass(frozen=True)
class ProjectionLattice:
    info: ProjectionInfo
    weight: QuantWeight
    bias: Tensor  # [C] real
    lattice: Tensor  # [C]
    peak: Tensor  # [C] largest |accumulator|, before the shift
    input: InputPlan | None
    target: Tensor | None  # [C] scale it is brought to (stream, chain)
    target_bits: int
    mirrored: Tensor  # [C] |shift| that a mirrored BatchNorm adds behind it
    shift: int = 0
    octaves: int = 0  # of its lattice above that of the finest projection that it is tied to

    @property
    def unit(self) -> Tensor:
        return self.lattice * 2.0**-self.shift

    def bound(self) -> int:
        """Largest |emitted integer|."""
        rounding = 1 + (self.mirrored > 0).double()
        worst = self.peak * 2.0**self.shift + (self.bias.abs() + self.mirrored) / self.unit + rounding
        return math.ceil(float(worst.max()))


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


@dataclass(frozen=True)
class Lattice:
    projections: dict[str, ProjectionLattice]
    neurons: dict[str, NeuronLattice]


def stream_scales(folded: Folded, seen: Observation) -> dict[int, Tensor]:
    """u_c = 2 max|stream_c| / 32767, over everything written to or read from the stream."""
    top: dict[int, Tensor] = {}
    for name, p in folded.discovery.projections.items():
        if p.stream is not None:
            old = top.get(p.stream, torch.zeros_like(seen.writers[name]))
            top[p.stream] = torch.maximum(old, seen.writers[name])
    floor: dict[int, float] = {}
    for name, n in folded.discovery.neurons.items():
        if n.stream is not None:
            current = top[n.stream].scatter_reduce(0, n.source_channel, seen.neurons[name].current, "amax")
            top[n.stream] = current
            theta = float(folded.specs[name].theta.min()) * FLOOR
            floor[n.stream] = min(floor.get(n.stream, math.inf), theta)
    return {s: (2 * t / 32767).clamp_min(floor.get(s, FLOOR) * 2.0**-8) for s, t in top.items()}


def _input_range(info: ProjectionInfo, chain_bits: int) -> tuple[float, float]:
    if info.reads == "data":
        return 0.0, 255.0
    if info.reads == "chain":
        low, high = signed_range(chain_bits)
        return low * info.span / info.factor, high * info.span / info.factor
    return info.lo, info.hi


def _peak(weight: Tensor, lo: float, hi: float) -> Tensor:
    """Largest |sum w x| [C] for x in [lo, hi], positive and negative weights apart."""
    w = weight.flatten(1)
    positive, negative = w.clamp_min(0).sum(1), (-w).clamp_min(0).sum(1)
    high = positive * hi - negative * lo
    low = positive * lo - negative * hi
    return torch.maximum(high.abs(), low.abs())


def _chain_scale(info: ProjectionInfo, made: dict[str, ProjectionLattice]) -> float:
    """What one step of a chained input is worth."""
    sources = {float(made[c].target[0]) for c in info.chained_from}  # type: ignore[index]
    if len(sources) > 1:
        raise UnsupportedOperation(
            f"'{info.name}' reads several projections joined without a neuron; give it one"
        )
    return sources.pop()


def _target(
    info: ProjectionInfo, seen: Observation, recipe: Recipe, streams: dict[int, Tensor]
) -> tuple[Tensor | None, int]:
    """Scale [C] and width that a stream's or chain's writer is brought to."""
    if info.stream is not None:
        return streams[info.stream], 16
    if info.role != "chain":
        return None, 0
    top = seen.writers[info.name]
    largest = float(top.max()) or 1.0
    return torch.full_like(top, largest / signed_range(recipe.chain_bits)[1]), recipe.chain_bits


def _lattice_weight(folded: Folded, seen: Observation, name: str) -> tuple[Tensor, InputPlan | None]:
    """The folded weight as it is rounded: of the first projection in steps of its input."""
    weight = folded.weight(name).double().cpu()
    if folded.discovery.projections[name].reads != "data":
        return weight, None
    plan = seen.inputs[name].plan()
    return weight * input_scales(weight, plan), plan


def _projection(
    folded: Folded, seen: Observation, recipe: Recipe, name: str, made: dict[str, ProjectionLattice],
    streams: dict[int, Tensor], scales: dict[str, Tensor], integers: Mapping[str, Tensor],
    biases: Mapping[str, Tensor],
) -> ProjectionLattice:  # fmt: skip
    info = folded.discovery.projections[name]
    weight, input_plan = _lattice_weight(folded, seen, name)
    bias = biases.get(name, folded.bias(name).double().cpu())
    quantum = 1.0 if info.reads == "data" else info.factor
    if info.reads == "chain":
        quantum *= _chain_scale(info, made)
    target, bits = _target(info, seen, recipe, streams)
    coupling = recipe.override(name).coupling or recipe.coupling
    per_tensor = info.role == "output" or (coupling == "flowq" and info.role == "pair")
    width = weight_bits(info, folded, recipe)
    q = round_nearest(
        weight, width, weight_floor(folded, info, quantum, target), per_tensor, scales.get(name)
    )
    if info.stream is not None and recipe.stream == "shift" and target is not None:
        q = shifted_scales(weight, q, target / quantum)
    if name in integers:
        q = replace(q, integers=integers[name])
    peak = _peak_of(info, q.integers, input_plan, recipe.chain_bits)
    mirror = next((m for m in folded.mirrors.values() if m.projection == name), None)
    mirrored = mirror.shift.abs().cpu() if mirror is not None else torch.zeros_like(bias)
    return ProjectionLattice(info, q, bias, q.scales * quantum, peak, input_plan, target, bits, mirrored)


def _peak_of(info: ProjectionInfo, integers: Tensor, plan: InputPlan | None, chain_bits: int) -> Tensor:
    """Largest |accumulator| [C] before the shift, with the zero points of the input."""
    peak = _peak(integers, *_input_range(info, chain_bits))
    if plan is None:
        return peak
    return peak + _peak(integers, min(0, *plan.zeros) / ZERO, max(0, *plan.zeros) / ZERO)


def _tie(
    folded: Folded, seen: Observation, recipe: Recipe, parts: list[ProjectionLattice],
    integers: Mapping[str, Tensor],
) -> dict[str, ProjectionLattice]:  # fmt: skip
    """Projections that a recurrent neuron sums count the same steps: the coarsest of theirs in every channel,
    apart from whole octaves between projections (an analog input's steps are far finer than a spike's)."""
    if recipe.weights is None:
        return {p.info.name: p for p in parts}
    size = [float(torch.log2(p.lattice).median()) for p in parts]
    octaves = [round(s - min(size)) for s in size]
    base = torch.stack([p.lattice * 2.0**-j for p, j in zip(parts, octaves, strict=True)]).amax(0)
    out = {}
    for p, j in zip(parts, octaves, strict=True):
        name, lattice = p.info.name, base * 2.0**j
        weight, plan = _lattice_weight(folded, seen, name)
        q = round_nearest(weight, p.weight.bits, scales=lattice * p.weight.scales / p.lattice)
        q = replace(q, integers=integers.get(name, q.integers))
        peak = _peak_of(p.info, q.integers, plan, recipe.chain_bits)
        out[name] = replace(p, weight=q, lattice=lattice, peak=peak, octaves=j)
    return out


def _largest_shift(bound: float) -> int:
    """Largest F <= 8 with bound * 2^F exact in float32, else in int32."""
    for limit in (EXACT, INT32):
        for shift in range(MAX_SHIFT, -1, -1):
            if bound * 2.0**shift < limit:
                return shift
    raise UnsupportedOperation(
        f"a worst-case accumulator of {bound:g} does not fit 32 bits; use fewer weight bits"
    )


def build_lattice(
    folded: Folded, seen: Observation, recipe: Recipe, scales: dict[str, Tensor] | None = None,
    integers: Mapping[str, Tensor] | None = None, biases: Mapping[str, Tensor] | None = None,
) -> Lattice:  # fmt: skip
    """Quantize the weights and settle every unit. `scales` overrides weight scales (joint search), `integers`
    the nearest integers (rounding/), `biases` the folded biases (tuning/correction.py)."""
    d = folded.discovery
    streams = stream_scales(folded, seen)
    made: dict[str, ProjectionLattice] = {}
    for name in d.projections:  # in execution order, so a chain's first projection comes first
        made[name] = _projection(
            folded, seen, recipe, name, made, streams, scales or {}, integers or {}, biases or {}
        )
    for group in {p.summed for p in d.projections.values() if p.summed}:
        made |= _one_scale(folded, [made[n] for n in group], integers or {})
    for group in {p.tied for p in d.projections.values() if p.tied}:
        made |= _tie(folded, seen, recipe, [made[n] for n in group], integers or {})
    shifts = _group_shifts(folded, made)
    made = {n: replace(p, shift=shifts[n]) for n, p in made.items()}
    neurons: dict[str, NeuronLattice] = {}
    for name, info in d.neurons.items():  # in execution order: a synapse before its membrane
        synapse = None if info.synapse is None else neurons[info.synapse]
        neurons[name] = _neuron(folded, name, made, streams) if synapse is None else _behind(folded, name, synapse)
    return Lattice(made, neurons)


def _one_scale(
    folded: Folded, heads: list[ProjectionLattice], integers: Mapping[str, Tensor]
) -> dict[str, ProjectionLattice]:
    """Output projections that are summed count the same step, the largest of theirs."""
    if any(p.info.reads != "count" for p in heads):
        names = ", ".join(f"'{p.info.name}'" for p in heads)
        raise UnsupportedOperation(
            f"the output is a sum of {names}, which do not all read spikes; return them apart"
        )
    step = max(float(p.lattice.max()) for p in heads)
    out = {}
    for p in heads:
        lattice = torch.full_like(p.lattice, step)
        q = round_nearest(
            folded.weight(p.info.name).double().cpu(),
            p.weight.bits,
            scales=lattice * p.weight.scales / p.lattice,
        )
        q = replace(q, integers=integers.get(p.info.name, q.integers))
        peak = _peak(q.integers, p.info.lo, p.info.hi)
        out[p.info.name] = replace(p, weight=q, lattice=lattice, peak=peak)
    return out


def _group_shifts(folded: Folded, made: dict[str, ProjectionLattice]) -> dict[str, int]:
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
        shift = _largest_shift(largest * 2.0**p.octaves)
        root = groups.find(name)
        shifts[root] = min(shifts.get(root, MAX_SHIFT), shift)
    return {name: shifts[groups.find(name)] + p.octaves for name, p in made.items()}


def _neuron(
    folded: Folded, name: str, made: dict[str, ProjectionLattice], streams: dict[int, Tensor]
) -> NeuronLattice:
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
        base = streams[info.stream][info.source_channel]
        peak = 32768.0 * info.span / info.factor
        shift = _largest_shift(peak)
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
        shift = _largest_shift(peak)
        bound = math.ceil(peak * 2**shift)
    scale = base * info.factor * gain
    if info.stream is None:
        own = scale / per_channel(folded, name, folded.discovery.specs[name].gain, "gain")
    return NeuronLattice(info, theta, rho, leak, gain, scale, own, shift, bound)


def _behind(folded: Folded, name: str, synapse: NeuronLattice) -> NeuronLattice:
    """A membrane counts what its synapse counts: s_V = s_w 2^k as well as s_I."""
    info, spec = folded.discovery.neurons[name], folded.specs[name]
    theta, leak, gain, rho = (
        per_channel(folded, name, v, what)
        for v, what in (
            (spec.theta, "threshold"), (spec.leak, "leak"), (spec.gain, "gain"), (spec.rho, "reset")
        )
    )  # fmt: skip
    if bool((gain != 1).any()):
        raise UnsupportedNeuron(f"the membrane '{name}' scales its synaptic current; scale the weights instead")
    return NeuronLattice(
        info, theta, rho, leak, gain, synapse.scale, synapse.own, synapse.shift, SYNAPTIC
    )  # fmt: skip
