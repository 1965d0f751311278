"""What reaches a BatchNorm, and whether it can be folded into the projection in front of it."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor, nn

from ptq4snn.discovery.batchnorm import border
from ptq4snn.discovery.editing import ChannelAffine
from ptq4snn.discovery.facts import TIME, Constant, Count, Current, Data, Fact, Membrane, NormCall, Opaque
from ptq4snn.discovery.graph import Node
from ptq4snn.discovery.rules.shaping import padded
from ptq4snn.discovery.thin import thin

__all__ = ["normalised"]


def normalised(node: Node, module: nn.Module, fact: Fact, rank: int) -> Fact:
    """What a BatchNorm makes of a fact: remembered, to be folded, or opaque where it cannot be."""
    if isinstance(fact, (Data, Constant)):
        return fact if isinstance(fact, Data) else Data()
    if isinstance(fact, Opaque):
        return fact
    if isinstance(fact, Current):
        if len(fact.sheets) > 1:
            why = "normalises a sum of projections"
        elif fact.sheets[0].uneven:
            why = f"comes behind '{fact.sheets[0].uneven}', which makes constants differ from place to place,"
        else:
            (s,) = fact.sheets
            axis = _norm_axis(module, rank)
            channels = _norm_channels(thin(s.ids, axis) % TIME, axis)
            pixels, after_max = border(module), "max_pool" in s.ops
            if channels is not None and (not pixels or _flat(s.ids)):
                call = NormCall(node.target, node.outputs[0], s.constant, after_max, channels, pixels)
                ids = padded(s.ids, [pixels] * 4)
                return replace(fact, sheets=(replace(s, ids=ids, norms=(*s.norms, call)),))
            why = "normalises one channel of its projection by several statistics"
    else:
        why = "normalises spikes" if isinstance(fact, Count) else "normalises membrane potentials"
    projections = fact.projections if isinstance(fact, Current) else frozenset()
    membranes = frozenset([fact.neuron]) if isinstance(fact, Membrane) else frozenset()
    return Opaque(f"the BatchNorm '{node.target}' {why} and cannot be folded", projections, membranes)


def _norm_axis(module: nn.Module, rank: int) -> int:
    """The channels' axis; a layer of whole sequences [T, B, C, ...] says so by its step mode."""
    if isinstance(module, ChannelAffine):
        return rank + module.axis
    return 2 if getattr(module, "step_mode", "s") == "m" and rank > 2 else 1


def _flat(ids: Tensor) -> bool:
    """Whether the last two axes are positions, of one channel each."""
    return torch.equal(ids, ids[..., :1, :1].expand_as(ids))


def _norm_channels(numbers: Tensor, axis: int) -> tuple[tuple[int, int], ...] | None:
    """(channel number, BatchNorm channel) of every projection channel, None where one has several."""
    rows = numbers.movedim(axis, 0).flatten(1)
    if torch.equal(rows.amin(1), rows.amax(1)):
        found = [(int(n), c) for c, n in enumerate(rows[:, 0].tolist())]
    else:
        found = [(int(n), c) for c, row in enumerate(rows) for n in row.unique().tolist()]
    return tuple(found) if len({n for n, _ in found}) == len(found) else None
