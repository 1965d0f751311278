"""What reaches a unit from outside, recorded for every batch: spikes as bits, chained currents in full."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from ptq4snn.discovery.folding import Folded
from ptq4snn.frameworks.core import Probe
from ptq4snn.rounding.boundary import Boundary
from ptq4snn.rounding.network import Enough, collected, forward

__all__ = ["Bits", "Countdown", "Recording", "Trace", "record", "trace"]


@dataclass(frozen=True)
class Bits:
    """Spikes [B, ...] of one step, eight to a byte; where some are more than one, a byte each."""

    packed: NDArray[np.uint8]
    shape: torch.Size
    counted: bool = False

    @classmethod
    def of(cls, spikes: Tensor) -> Bits:
        flat = spikes.to(torch.uint8).cpu().numpy().reshape(-1)
        counted = bool(flat.size) and int(flat.max()) > 1
        return cls(flat if counted else np.packbits(flat), spikes.shape, counted)

    def unpack(self, like: Tensor) -> Tensor:
        """As numbers of the type and on the device of `like`."""
        flat = self.packed if self.counted else np.unpackbits(self.packed, count=self.shape.numel())
        return torch.from_numpy(flat).to(like).view(self.shape)


@dataclass(frozen=True)
class Recording:
    """One batch: steps of neurons and outputs of projections, in the order of their calls."""

    spikes: dict[str, list[Bits]]
    currents: dict[str, list[Tensor]]
    streams: dict[str, list[Tensor]]  # what the boundary's shared neurons read


@dataclass
class Trace:
    """One forward pass: how many steps each neuron runs, and the shape of every projection's outputs."""

    steps: dict[str, int] = field(default_factory=dict)
    shapes: dict[str, list[torch.Size]] = field(default_factory=dict)


def trace(folded: Folded, x: Tensor) -> Trace:
    found = Trace(dict.fromkeys(folded.discovery.neurons, 0), {n: [] for n in folded.discovery.projections})

    def step(name: str, _x: Tensor, _s: Tensor) -> None:
        found.steps[name] += 1

    def call(name: str, out: Tensor) -> None:
        found.shapes[name].append(out.shape)

    _watch(folded, x, step, call, found.steps, found.shapes)
    return found


def record(folded: Folded, x: Tensor, boundary: Boundary, traced: Trace) -> Recording:
    """Run a batch as far as the unit's outputs."""
    parts = (boundary.spikes, boundary.currents, boundary.shared)
    made = Recording({n: [] for n in parts[0]}, {n: [] for n in parts[1]}, {n: [] for n in parts[2]})
    left = Countdown(boundary, traced)

    def step(name: str, x: Tensor, s: Tensor) -> None:
        if name in made.spikes:
            made.spikes[name].append(Bits.of(s))
        if name in made.streams:
            made.streams[name].append(x)
        left.tick(name)

    def call(name: str, out: Tensor) -> None:
        if name in made.currents:
            made.currents[name].append(out)
        left.tick(name)

    watched = dict.fromkeys((*boundary.spikes, *boundary.currents, *boundary.places))
    neurons = [n for n in watched if n in folded.discovery.neurons]
    _watch(folded, x, step, call, neurons, [n for n in watched if n not in neurons])
    return made


class Countdown:
    """Calls that are still to come at the places where a unit's error shows; `Enough` behind the last."""

    def __init__(self, boundary: Boundary, traced: Trace) -> None:
        steps, shapes = traced.steps, traced.shapes
        self.left = {n: steps[n] if n in steps else len(shapes[n]) for n in boundary.places}

    def tick(self, name: str) -> None:
        if name in self.left:
            self.left[name] -= 1
            if not any(self.left.values()):
                raise Enough


def _watch(
    folded: Folded, x: Tensor, step: Callable[[str, Tensor, Tensor], None],
    call: Callable[[str, Tensor], None], neurons: Iterable[str], projections: Iterable[str],
) -> None:  # fmt: skip
    """One forward pass that tells `step` of neurons' inputs and spikes, `call` of projections' outputs."""

    def probe(name: str) -> Probe:
        return lambda x, _h, s, _v, _t: step(name, x, s)

    def hook(name: str) -> Any:
        def after(_m: nn.Module, _args: Any, out: Tensor) -> None:
            call(name, out)

        return after

    handles = [folded.projection(n).register_forward_hook(hook(n)) for n in projections]
    watched = [folded.core(n) for n in neurons]
    with collected(handles, folded.model):
        try:
            for core, name in zip(watched, neurons, strict=True):
                core.probe = probe(name)
            forward(folded.model, x)
        finally:
            for core in watched:
                core.probe = None
