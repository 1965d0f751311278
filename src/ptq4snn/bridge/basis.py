"""What a lattice is made from: the folded network, what was observed, the recipe, the streams' scales."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from ptq4snn.bridge.weights import FLOOR
from ptq4snn.discovery.folding import Folded
from ptq4snn.observation.observe import Observation
from ptq4snn.recipe import Recipe

__all__ = ["Basis", "stream_scales"]


@dataclass(frozen=True)
class Basis:
    """The same for all stages of a lattice."""

    folded: Folded
    seen: Observation
    recipe: Recipe
    streams: Mapping[int, Tensor]  # u_c [C] by number

    @classmethod
    def of(cls, folded: Folded, seen: Observation, recipe: Recipe) -> Basis:
        streams = stream_scales(folded, seen)
        if recipe.coupling == "flowq":  # one scale a layer, a stream's too
            streams = {s: u.max().expand_as(u) for s, u in streams.items()}
        return cls(folded, seen, recipe, streams)


def stream_scales(folded: Folded, seen: Observation) -> dict[int, Tensor]:
    """u_c = 2 max|stream_c| / 32767, over everything written to or read from the stream."""
    top: dict[int, Tensor] = {}
    for name, p in folded.discovery.projections.items():
        if p.stream is not None:
            old = top.get(p.stream, torch.zeros_like(seen.writers[name]))
            top[p.stream] = torch.maximum(old, seen.writers[name])
    for name, p in folded.discovery.projections.items():
        if p.source_stream is not None:
            channels = torch.tensor(p.source_channels)
            top[p.source_stream] = top[p.source_stream].scatter_reduce(
                0, channels, seen.readers[name], "amax"
            )
    floor: dict[int, float] = {}
    for name, n in folded.discovery.neurons.items():
        if n.stream is not None:
            current = top[n.stream].scatter_reduce(0, n.source_channel, seen.neurons[name].current, "amax")
            top[n.stream] = current
            theta = float(folded.specs[name].theta.min()) * FLOOR
            floor[n.stream] = min(floor.get(n.stream, math.inf), theta)
    return {s: (2 * t / 32767).clamp_min(floor.get(s, FLOOR) * 2.0**-8) for s, t in top.items()}
