"""The lattice of one projection: its weight's scales and integers, and the largest accumulator they allow."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from ptq4snn.bridge.basis import Basis
from ptq4snn.bridge.weights import may_be_odd, shifted_scales, weight_bits, weight_floor
from ptq4snn.discovery.info import ProjectionInfo
from ptq4snn.errors import UnsupportedOperation
from ptq4snn.network.plan import InputPlan
from ptq4snn.numerics.grid import signed_range
from ptq4snn.numerics.limits import ZERO_FRACTION_BITS
from ptq4snn.numerics.nearest import QuantWeight, input_scales, round_nearest

__all__ = ["ProjectionLattice", "one_scale", "projection_lattice", "tied_scales", "tied_to_stream"]


@dataclass(frozen=True)
class ProjectionLattice:
    info: ProjectionInfo
    weight: QuantWeight
    bias: Tensor  # [C] real
    lattice: Tensor  # [C]
    reach: tuple[float, float]  # least and largest integer of its input
    input: InputPlan | None
    target: Tensor | None  # [C] scale it is brought to (stream, chain)
    target_bits: int
    mirrored: Tensor  # [C] largest |number| that a mirrored BatchNorm or a bias of a position adds to it
    peak: Tensor  # [C] largest |accumulator|, before the shift
    shift: int = 0
    input_steps: Tensor | None = None  # [inputs or 1] scales of its input that are in its weight
    places: Tensor | None = None  # [P, C] real: biases of its output positions
    octaves: int = 0  # of its lattice above that of the finest projection that it is tied to

    @property
    def unit(self) -> Tensor:
        return self.lattice * 2.0**-self.shift

    def bound(self) -> int:
        """Largest |emitted integer|."""
        rounding = 1 + (self.mirrored > 0).double()
        worst = self.peak * 2.0**self.shift + (self.bias.abs() + self.mirrored) / self.unit + rounding
        return math.ceil(float(worst.max()))

    def with_integers(self, integers: Tensor) -> ProjectionLattice:
        """With other integers [C, ...] for the same scales."""
        weight = self.weight.with_integers(integers)
        return replace(self, weight=weight, peak=_peak(integers, self.reach, self.input))

    def with_bias(self, bias: Tensor) -> ProjectionLattice:
        """With another bias [C]."""
        return replace(self, bias=bias)


def projection_lattice(
    basis: Basis, name: str, made: Mapping[str, ProjectionLattice], scales: Tensor | None = None
) -> ProjectionLattice:
    """Nearest integers for the weight's own scales, or for `scales` [C]. `made` holds what is chained before
    it."""
    folded, recipe = basis.folded, basis.recipe
    info = folded.discovery.projections[name]
    bias = folded.bias(name).double().cpu()
    plan = basis.seen.inputs[name].plan(info.gains, info.offsets) if info.reads == "data" else None
    steps = _input_steps(basis, info, plan)
    quantum = _quantum(info, made)
    target, bits = _target(basis, info)
    weight = _counted_weight(basis, name, steps)
    q = own_levels(basis, info, weight, weight_floor(folded, info, quantum, target), scales)
    if info.stream is not None and recipe.stream == "shift" and target is not None:
        q = shifted_scales(weight, q, target / quantum, _is_per_tensor(basis, info))
    reach = _reach(info, recipe.chain_bits)
    mirror = next((m for m in folded.mirrors.values() if m.projection == name), None)
    mirrored = mirror.shift.abs().cpu() if mirror is not None else torch.zeros_like(bias)
    places = folded.places[name].double().cpu().flatten(0, -2) if name in folded.places else None
    mirrored = mirrored if places is None else mirrored + places.abs().amax(0)
    peak = _peak(q.kept, reach, plan)
    return ProjectionLattice(
        info, q, bias, q.scales * quantum, reach, plan, target, bits, mirrored, peak, input_steps=steps,
        places=places,
    )  # fmt: skip


def tied_to_stream(basis: Basis, p: ProjectionLattice, u: Tensor) -> tuple[Tensor, QuantWeight]:
    """The weight of a writer, and its integers with scales that are u_c 2^j; u [C] is the stream's scale."""
    weight = _counted_weight(basis, p.info.name, p.input_steps)
    quantum = float(p.lattice[0] / p.weight.scales[0])
    alike = _is_per_tensor(basis, p.info)
    own = own_levels(basis, p.info, weight, weight_floor(basis.folded, p.info, quantum, u))
    return weight, shifted_scales(weight, own, u / quantum, alike)


def own_levels(
    basis: Basis, info: ProjectionInfo, weight: Tensor, floor: Tensor | float, scales: Tensor | None = None
) -> QuantWeight:
    """Nearest integers for the weight's own scales, or for `scales` [C], on whole levels or, where the recipe
    allows them and its own scales come nearer with them, on odd ones."""
    bits, alike = weight_bits(info, basis.folded, basis.recipe), _is_per_tensor(basis, info)
    if basis.recipe.weight_levels == "whole" or not may_be_odd(info, weight, bits):
        return round_nearest(weight, bits, floor, alike, scales)
    energy = weight.square().flatten(1).sum(1)
    options = [round_nearest(weight, bits, floor, alike, odd=odd) for odd in (False, True)]
    nearest = min(options, key=lambda q: float((q.error(weight) / energy).sum()))
    return nearest if scales is None else nearest.with_scales(weight, scales)


def _input_steps(basis: Basis, info: ProjectionInfo, plan: InputPlan | None) -> Tensor | None:
    """What one step of each input channel is worth, where these differ: of data, and of a stream."""
    if info.source_stream is not None:
        return basis.streams[info.source_stream][list(info.source_channels)]
    return None if plan is None else torch.tensor(plan.scales, dtype=torch.float64)


def _counted_weight(basis: Basis, name: str, steps: Tensor | None) -> Tensor:
    """The folded weight as it is rounded: of one that reads data or a stream in steps of its input."""
    weight = basis.folded.weight(name).cpu()
    return weight if steps is None else weight.double() * input_scales(weight, steps)


def tied_scales(basis: Basis, parts: list[ProjectionLattice]) -> dict[str, ProjectionLattice]:
    """Projections that one neuron sums count the same steps in every channel, apart from whole octaves
    between projections (an analog input's steps are far finer than a spike's)."""
    octaves, base = _common_steps(basis, parts)
    out = {}
    for p in parts:
        j = octaves[p.info.name]
        lattice = base * 2.0**j
        weight = _counted_weight(basis, p.info.name, p.input_steps)
        q = p.weight.with_scales(weight, lattice * p.weight.scales / p.lattice)
        peak = _peak(q.kept, p.reach, p.input)
        out[p.info.name] = replace(p, weight=q, lattice=lattice, peak=peak, octaves=j)
    return out


def _common_steps(basis: Basis, parts: list[ProjectionLattice]) -> tuple[dict[str, int], Tensor]:
    """Octaves of every projection over the finest, and the steps [C] of that.

    Those of the fewest bits say which, the coarsest of theirs; the others have bits to spare and take the
    finest octave in which no channel is clipped. Shortcuts, whose weights are one, take the steps of the
    others in the octave of the least error; a channel in which one would not fit has wider steps instead."""
    ones = basis.folded.discovery.shortcuts
    others = [p for p in parts if p.info.name not in ones] or parts
    fewest = min(p.weight.bits or 0 for p in others)  # 0: float weights
    narrow = [p for p in others if (p.weight.bits or 0) == fewest]
    size = {p.info.name: float(torch.log2(p.lattice).median()) for p in narrow}
    octaves = {name: round(s - min(size.values())) for name, s in size.items()}
    base = torch.stack([p.lattice * 2.0 ** -octaves[p.info.name] for p in narrow]).amax(0)
    for p in [p for p in parts if p.info.name not in octaves]:
        if p.info.name not in ones:
            octaves[p.info.name] = math.ceil(float(torch.log2(p.lattice / base).max()) - 1e-9)
        elif p.weight.bits is not None:
            octaves[p.info.name], base = _shortcut_steps(basis, p, narrow, base)
        else:
            octaves[p.info.name] = 0
    least = min(octaves.values())
    return {name: octave - least for name, octave in octaves.items()}, base * 2.0**least


def _shortcut_steps(
    basis: Basis, shortcut: ProjectionLattice, narrow: list[ProjectionLattice], base: Tensor
) -> tuple[int, Tensor]:
    """The octave of a shortcut, and the steps [C] with it: those of least squared error of all weights.

    A channel without weights to speak of (a BatchNorm with a gain near 0) has steps far finer than the
    others; if all channels took the octave that it needs, the shortcut would be lost in the others."""
    one = shortcut.lattice / shortcut.weight.scales  # [C] what a weight of one is worth
    fits = one / signed_range(shortcut.weight.bits or 0)[1]  # the least step that holds it
    wanted = torch.log2(fits / base)
    options = range(math.floor(float(wanted.min())), math.ceil(float(wanted.max())) + 1)

    def error(octave: int) -> float:
        steps = torch.maximum(base, fits * 2.0**-octave)
        total = (one - (one / (steps * 2.0**octave)).round() * steps * 2.0**octave).square().sum()
        for p in narrow:
            weight = _counted_weight(basis, p.info.name, p.input_steps)
            q = p.weight.with_scales(weight, steps * p.weight.scales / p.lattice)
            worth = p.lattice / p.weight.scales
            total = total + (q.error(weight) * worth.square()).sum()
        return float(total)

    octave = min(options, key=error)
    return octave, torch.maximum(base, fits * 2.0**-octave)


def one_scale(basis: Basis, heads: list[ProjectionLattice]) -> dict[str, ProjectionLattice]:
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
        weight = basis.folded.weight(p.info.name).double().cpu()
        q = p.weight.with_scales(weight, lattice * p.weight.scales / p.lattice)
        peak = _peak(q.kept, p.reach, p.input)
        out[p.info.name] = replace(p, weight=q, lattice=lattice, peak=peak)
    return out


def _is_per_tensor(basis: Basis, info: ProjectionInfo) -> bool:
    """Whether the weight has one scale for all channels."""
    coupling = basis.recipe.override(info.name).coupling or basis.recipe.coupling
    return info.role == "output" or coupling == "flowq"


def _quantum(info: ProjectionInfo, made: Mapping[str, ProjectionLattice]) -> float:
    """What one step of the input is worth."""
    if info.reads == "data":
        return 1.0
    return info.factor * _chain_scale(info, made) if info.reads == "chain" else info.factor


def _chain_scale(info: ProjectionInfo, made: Mapping[str, ProjectionLattice]) -> float:
    """What one step of a chained input is worth."""
    sources = {float(made[c].target[0]) for c in info.chained_from}  # type: ignore[index]
    if len(sources) > 1:
        raise UnsupportedOperation(
            f"'{info.name}' reads several projections joined without a neuron; give it one"
        )
    return sources.pop()


def _target(basis: Basis, info: ProjectionInfo) -> tuple[Tensor | None, int]:
    """Scale [C] and width that a stream's or chain's writer is brought to; in front of a ReLU the sign is one
    bit more, of which nothing is left behind it."""
    if info.stream is not None:
        return basis.streams[info.stream], 16
    if info.role != "chain":
        return None, 0
    bits, top = _chain_width(basis.recipe.chain_bits, info.rectified), basis.seen.writers[info.name]
    largest = float(top.max()) or 1.0
    return torch.full_like(top, largest / signed_range(bits)[1]), bits


def _chain_width(bits: int, rectified: bool) -> int:
    return min(16, bits + rectified)


def _reach(info: ProjectionInfo, chain_bits: int) -> tuple[float, float]:
    if info.reads == "data":
        return 0.0, 255.0
    if info.reads == "stream":
        low, high = signed_range(16)
        return low * info.span / info.factor, high * info.span / info.factor
    if info.reads == "chain":
        low, high = signed_range(_chain_width(chain_bits, info.reads_rectified))
        low = 0 if info.reads_rectified else low
        return low * info.span / info.factor, high * info.span / info.factor
    return info.lo, info.hi


def _peak(integers: Tensor, reach: tuple[float, float], plan: InputPlan | None) -> Tensor:
    """Largest |accumulator| [C] over all inputs; one that reads data subtracts its zeros, too."""
    peak = _largest_sum(integers, *reach)
    if plan is None:
        return peak
    one = 2**ZERO_FRACTION_BITS
    return peak + _largest_sum(integers, min(0, *plan.zeros) / one, max(0, *plan.zeros) / one)


def _largest_sum(weight: Tensor, lo: float, hi: float) -> Tensor:
    """Largest |sum w x| [C] for x in [lo, hi], positive and negative weights apart."""
    w = weight.flatten(1)  # in float64 where it is not whole, else in bytes
    whole = None if w.is_floating_point() else torch.int64
    positive = w.clamp_min(0).sum(1, dtype=whole).double()
    negative = -w.clamp_max(0).sum(1, dtype=whole).double()  # -128 has no opposite in a byte
    high = positive * hi - negative * lo
    low = positive * lo - negative * hi
    return torch.maximum(high.abs(), low.abs())
