"""Width and scale of a projection's weights: its bits, how fine its steps may be, what constrains them."""

from __future__ import annotations

import torch
from torch import Tensor

from ptq4snn.discovery.folding import Folded
from ptq4snn.discovery.info import ProjectionInfo
from ptq4snn.errors import UnsupportedNeuron
from ptq4snn.numerics.nearest import QuantWeight
from ptq4snn.recipe import Recipe

__all__ = ["FLOOR", "may_be_odd", "per_channel", "shifted_scales", "weight_bits", "weight_floor"]

SHORTCUT_BITS = 8  # a weight of one for each channel: no bytes to save
FEW = (2,)  # bits of weights whose levels may be odd: packed as 4 bits they still fit
FLOOR = 2.0**-12  # least weight scale, in theta: BatchNorm gains near 0 give dead channels


def per_channel(folded: Folded, name: str, value: Tensor, what: str) -> Tensor:
    """A neuron parameter as a vector [C]; one that differs inside a channel is refused."""
    layout = folded.discovery.neurons[name].layout
    try:
        full = value.double().expand(layout.shape)
    except RuntimeError as why:
        raise UnsupportedNeuron(
            f"the {what} of '{name}' has shape {list(value.shape)}, which does not fit its state "
            f"{list(layout.shape)}"
        ) from why
    rows = layout.by_channel(full.unsqueeze(0))[0]
    if not bool((rows == rows[:, :1]).all()):
        raise UnsupportedNeuron(f"the {what} of '{name}' differs inside a channel; use one value per channel")
    return rows[:, 0].clone()


def weight_bits(info: ProjectionInfo, folded: Folded, recipe: Recipe) -> int | None:
    """First and last projections and shortcuts have widths of their own; overrides win."""
    rule = recipe.override(info.name)
    if rule.weights is not None:
        return rule.weights
    if recipe.weights is None:
        return None
    if info.reads == "data":
        return recipe.first_bits
    if info.name in folded.discovery.shortcuts:
        return SHORTCUT_BITS
    neurons = folded.discovery.neurons
    outward = info.feeds and all(neurons[n].last and not _is_hidden(folded, n) for n in info.feeds)
    return recipe.last_bits if info.role == "output" or outward else int(recipe.weights)


def may_be_odd(info: ProjectionInfo, weight: Tensor, bits: int | None) -> bool:
    """Whether odd levels come into question: few bits, scales that nothing else must share, no channel
    without weights, which has to stay at 0."""
    free = bits in FEW and not info.tied and not info.summed
    return free and bool(weight.flatten(1).any(1).all())


def _is_hidden(folded: Folded, neuron: str) -> bool:
    """Whether spikes of a neuron, or of the membrane behind a synapse, feed another projection than its own:
    then it is not the output itself."""
    neurons = folded.discovery.neurons.values()
    firing = {neuron} | {n.name for n in neurons if n.synapse == neuron}
    others = (p for p in folded.discovery.projections.values() if not p.tied or neuron not in p.feeds)
    return any(firing & set(p.spike_sources) for p in others)


def weight_floor(
    folded: Folded, info: ProjectionInfo, per_weight: float, target: Tensor | None
) -> Tensor | float:
    """Least weight scale [C] of a pair: theta 2^-12 for an input of 1, the 256th step of an 8-bit input.

    Writers of streams and chains need no step finer than 2^-8 of the target's, which also keeps channels
    without weights in range.
    """
    if target is not None:
        finest = 2.0**-15 if info.reads == "stream" else 2.0**-8
        return target * (finest / per_weight)
    if info.role != "pair":
        return 0.0
    largest = {"count": 1.0, "stream": 2.0**15}.get(info.reads, 2.0**8)
    floor = torch.zeros(folded.weight(info.name).shape[0], dtype=torch.float64)
    for n in info.feeds:
        neuron = folded.discovery.neurons[n]
        theta = per_channel(folded, n, folded.specs[n].theta, "threshold")
        gain = per_channel(folded, n, folded.specs[n].gain, "gain")
        mine = neuron.source_projection == neuron.projections.index(info.name)
        least = (theta * FLOOR / (gain * largest))[mine]
        floor = floor.scatter_reduce(0, neuron.source_channel[mine], least, "amax")
    return floor


def shifted_scales(weight: Tensor, q: QuantWeight, unit: Tensor, alike: bool = False) -> QuantWeight:
    """Weight scales as u_c 2^j: of the two neighbours the one with the lesser error, for each channel or
    alike for all."""
    exact = torch.log2(q.scales / unit)
    options = [q.with_scales(weight, unit * torch.exp2(f(exact))) for f in (torch.floor, torch.ceil)]
    shape = (-1, *[1] * (weight.dim() - 1))
    errors = [o.error(weight) for o in options]
    first = errors[0] <= errors[1]
    if alike:
        first = (errors[0].sum() <= errors[1].sum()).expand_as(first)
    return QuantWeight.of(
        q.bits,
        torch.where(first, options[0].scales, options[1].scales),
        torch.where(first.view(shape), options[0].integers, options[1].integers),
        q.odd,
    )
