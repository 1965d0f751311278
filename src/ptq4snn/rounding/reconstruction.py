"""Reconstruction (AdaRound, BRECQ): round a unit's weights so that its outputs stay what they were in float.

What is compared (rounding/boundary.py) is one of

    potential   where the unit drives a neuron, the error of its current is filtered as the neuron does it,
                and forgotten where the float neuron resets hard:
                e[t] = leak e[t-1] (1 - S_float[t-1]) + gain (I~[t] - I_float[t])
    current     e = I~ - I_float, the outputs W x of its last projections (AdaRound's)
    output      e = S~ - S_float, what a block hands on behind its neurons and adds (BRECQ's); gradients come
                back through the spikes by the model's own surrogate

Writers of streams, chains and outputs are compared as they are; by `output` a stream is compared where it is
read next, so that the error of what was written before is made up for as well. Inputs are those of the
network quantized so far, targets those of the float network. The squares, weighted by a Fisher information if
that is wanted (rounding/fisher.py), are summed over channels and averaged over the rest.
AdaRound and BRECQ differ in their units alone: single projections, or blocks.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from ptq4snn.calibration.calibration_set import micro_batches
from ptq4snn.calibration.packed import PackedBatch, pack
from ptq4snn.frameworks.core import FloatCore
from ptq4snn.rounding.alone import Alone
from ptq4snn.rounding.boundary import find_boundary
from ptq4snn.rounding.error import Potential, potential_error
from ptq4snn.rounding.fisher import Weights, fisher_weights
from ptq4snn.rounding.network import Network
from ptq4snn.rounding.recording import Recording, record, trace
from ptq4snn.rounding.soft import SoftWeight, exponent
from ptq4snn.rounding.store import Rounded

__all__ = ["Aim", "Batches", "Reconstruction", "Unit"]

BATCH, PARTS = 32, 4  # a step takes a batch, in parts that processes share
LEARNING_RATE = 1e-3
LAMBDA = 0.01
TARGET_BYTES = 2**28  # of float targets that are kept; the rest is computed again


@dataclass(frozen=True)
class Aim:
    """What is to stay as it was."""

    compared: str = "potential"  # or "current", or "output"
    fisher: bool = False  # elements weigh as much as the outputs mind them


POTENTIAL = Aim()


@dataclass(frozen=True)
class Target:
    """Of one batch: potentials by neuron; outputs of projections, spikes and what is read, call by call."""

    potentials: dict[str, Potential]
    outputs: dict[str, list[Tensor]]

    @property
    def nbytes(self) -> int:
        return sum(p.nbytes for p in self.potentials.values()) + sum(
            y.nbytes for calls in self.outputs.values() for y in calls
        )


class Batches:
    """All samples in parts of one size (of recordings of different lengths those of the commonest): what is
    recorded for a part fits it every time. PARTS of them make a batch."""

    def __init__(self, network: Network) -> None:
        axis = network.prepared.batch_axis
        packed: dict[torch.Size, list[PackedBatch]] = {}
        for x in micro_batches(network.prepared.samples_again(), BATCH // PARTS, axis):
            packed.setdefault(x.shape, []).append(pack(x, axis))
        self.packed = max(packed.values(), key=len)  # of equally many the first
        self.traced = trace(network.float, self[0])

    def batch(self, number: int) -> range:
        """The parts of a batch; of fewer samples than a batch has there are fewer."""
        return range(len(self))[PARTS * number : PARTS * (number + 1)]

    @property
    def count(self) -> int:
        """Of whole batches, or one."""
        return max(1, len(self) // PARTS)

    def __len__(self) -> int:
        return len(self.packed)

    def __getitem__(self, i: int) -> Tensor:
        return self.packed[i].unpack()

    def __iter__(self) -> Iterator[Tensor]:
        return (packed.unpack() for packed in self.packed)


class Unit:
    """One unit with what surrounds it, recorded in both networks for every part that is this process's."""

    def __init__(
        self, network: Network, names: tuple[str, ...], batches: Batches, aim: Aim = POTENTIAL
    ) -> None:
        self.network, self.names, self.batches = network, names, batches
        self.boundary = find_boundary(network.folded.discovery, names, aim.compared)
        self.alone = Alone(network.folded, self.boundary, batches.traced)
        self.weights = {n: network.float.weight(n) for n in names}
        self.team = network.prepared.team
        self.quantized: dict[int, Recording] = {}
        self.float: dict[int, Recording] = {}
        self.lost: dict[int, dict[str, list[Tensor]]] = {}  # of streams, float minus quantized
        for i, x in self.team.deal(batches):
            self._record(i, x)
        # before the unit is cut out: they need the whole network
        self.minds: dict[int, Weights] = fisher_weights(network, self.boundary, batches) if aim.fisher else {}
        self._targets: dict[int, Target] = {}
        self._room = TARGET_BYTES

    def _record(self, i: int, x: Tensor) -> None:
        """A part in both networks."""
        pair = [
            record(f, x, self.boundary, self.batches.traced)
            for f in (self.network.folded, self.network.float)
        ]
        now, then = (r.streams for r in pair)
        self.lost[i] = {n: [(b - a).half() for a, b in zip(now[n], then[n], strict=True)] for n in now}
        for recording in pair:
            recording.streams.clear()
        self.quantized[i], self.float[i] = pair

    def target(self, i: int) -> Target:
        """What the float unit puts out behind float inputs."""
        if i in self._targets:
            return self._targets[i]
        with torch.no_grad():
            reached = self.alone.run(self.batches.packed[i], self.weights, self.float[i])
            potentials = {n: self._potential(n, steps, i) for n, steps in reached.neurons.items()}
            outputs = reached.outputs | self._streams(i)
        found = Target(potentials, outputs)
        if found.nbytes <= self._room:
            self._targets[i] = found
            self._room -= found.nbytes
        return found

    def _streams(self, i: int) -> dict[str, list[Tensor]]:
        """What the unit's share of a stream should be for the whole to be as in float.

        whole = share + rest in both networks, and the quantized one still has the unit's float weights:
        whole_float - rest = (whole_float - whole) + share
        """
        if not self.boundary.shared:
            return {}
        share = self.alone.run(self.batches.packed[i], self.weights, self.quantized[i]).outputs
        return {n: [d.to(u) + u for d, u in zip(ds, share[n], strict=True)] for n, ds in self.lost[i].items()}

    def _weights(self, i: int, name: str) -> tuple[Tensor, ...]:
        return tuple(w.to(self.alone.like) for w in self.minds[i][name]) if self.minds else ()

    def _potential(self, name: str, steps: list[tuple[Tensor, bool]], i: int) -> Potential:
        spec = self.network.folded.specs[name]
        core, v = FloatCore(spec), None
        resets: list[Tensor | None] = []
        for t, (x, begins) in enumerate(steps):
            s, v, _ = core.step(x, None if begins else v, t)
            resets.append(s.bool() if spec.reset == "hard" else None)
        leak, gain = (core._value(p, steps[0][0]) for p in (spec.leak, spec.gain))
        begins_at = tuple(begins for _, begins in steps)
        currents = tuple(x for x, _ in steps)
        return Potential(currents, tuple(resets), begins_at, leak, gain, self._weights(i, name))

    def _channels(self, place: str) -> int:
        """Of what is compared there; of what is read, those of a neuron in front."""
        place = self.boundary.readers.get(place, place)
        neurons = self.network.folded.discovery.neurons
        return neurons[place].layout.channels if place in neurons else self.weights[place].shape[0]

    def loss(self, i: int, weights: Mapping[str, Tensor]) -> Tensor:
        """Error of the unit with these weights on one part."""
        target = self.target(i)
        reached = self.alone.run(self.batches.packed[i], weights, self.quantized[i])
        losses = []
        for name, steps in reached.neurons.items():
            currents = [x for x, _ in steps]
            factor = self._channels(name) / sum(x.numel() for x in currents)
            losses.append(potential_error(target.potentials[name], currents, factor))
        for name, calls in reached.outputs.items():
            squares = [(y - x).square() for y, x in zip(calls, target.outputs[name], strict=True)]
            if minds := self._weights(i, name):
                squares = [s * w for s, w in zip(squares, minds, strict=True)]
            factor = self._channels(name) / sum(y.numel() for y in calls)
            losses.append(torch.stack([s.sum() for s in squares]).sum() * factor)
        return torch.stack(losses).sum()

    def total(self, integers: Mapping[str, Tensor]) -> float:
        """Error with hard weights, over all parts."""
        weights = {n: self.network.values(n, q).to(self.weights[n]) for n, q in integers.items()}
        with torch.no_grad():
            return sum(
                self.team.map(lambda i: float(self.loss(i, weights)), range(len(self.batches)), "errors")
            )

    def gradients(self, number: int, weights: Mapping[str, Tensor]) -> list[Tensor]:
        """Of the mean error over a batch, by the weights. Those of its parts are added in their order,
        whichever process had them."""
        leaves = {n: w.detach().requires_grad_() for n, w in weights.items()}
        parts = self.batches.batch(number)

        def of_part(i: int) -> list[Tensor]:
            return list(torch.autograd.grad(self.loss(i, leaves), list(leaves.values())))

        # the part's number decides whose it is, for that process has recorded it
        own = {i: of_part(i) for i in parts if self.team.mine(i)}
        found = {i: g for each in self.team.all(own, "gradients") for i, g in each.items()}
        return [sum(gs[1:], gs[0]) / len(parts) for gs in zip(*(found[i] for i in parts), strict=True)]


class Reconstruction:
    """Rounds one unit after the other."""

    def __init__(self, network: Network, iterations: int, seed: int, aim: Aim = POTENTIAL) -> None:
        self.network, self.iterations, self.seed, self.aim = network, iterations, seed, aim

    @cached_property
    def batches(self) -> Batches:
        return Batches(self.network)

    def round_unit(self, names: tuple[str, ...]) -> Rounded:
        """Integers of a unit; the nearest ones if they turn out to be better after all."""
        unit = Unit(self.network, names, self.batches, self.aim)
        soft = {n: SoftWeight(w, self.network.weight(n)) for n, w in unit.weights.items()}
        with unit.alone.cut_out():
            self._descend(unit, soft)
            found = {n: s.integers().cpu() for n, s in soft.items()}
            nearest = {n: self.network.weight(n).integers for n in names}
            better = unit.total(found) <= unit.total(nearest)
        return Rounded(found if better else nearest)

    def _descend(self, unit: Unit, soft: dict[str, SoftWeight]) -> None:
        generator = torch.Generator().manual_seed(self.seed)
        optimizer = torch.optim.Adam([s.v for s in soft.values()], LEARNING_RATE)
        track = self.network.prepared.progress.track
        for iteration in track(range(self.iterations), self.iterations, unit.names[0]):
            i = int(torch.randint(unit.batches.count, (), generator=generator))
            shares = {n: s.h() for n, s in soft.items()}
            weights = {n: s.value(shares[n]) for n, s in soft.items()}
            optimizer.zero_grad()
            b = exponent(iteration, self.iterations)
            penalties = [] if b is None else [LAMBDA * SoftWeight.penalty(h, b) for h in shares.values()]
            grads: list[Tensor | None] = [*unit.gradients(i, weights), *(None for _ in penalties)]
            torch.autograd.backward([*weights.values(), *penalties], grads)
            optimizer.step()
