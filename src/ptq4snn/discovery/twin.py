"""The float network brought to numbers that every CPU adds up alike: its exact twin.

Floats are added in the order of a CPU's vectors, so the last bits of a projection's output differ between
CPUs; a spike at its threshold flips, and all that is calibrated behind it is another number. A sum is the
same in any order where no partial sum is rounded:

    x = unit * integer, w = step * integer, and  sum |x w| <= 2^24 unit step  over each sign of w:
    float32 holds every partial sum                                            (projections that read spikes)

    x and w as integers of 25 and 28 bits: float64 holds every partial sum      (those that read real numbers)

    w = hi + lo, x whole numbers: float32 holds the partial sums of each        (those that read event counts)

The steps are powers of two, one for each output channel, found on a few samples with room for sums twice as
large. What is left between projections is elementwise, and rounded alike everywhere.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from math import frexp, inf, isfinite
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ptq4snn.discovery.discover import reset_neurons
from ptq4snn.discovery.folding import Folded, store_snapped
from ptq4snn.discovery.info import ProjectionInfo
from ptq4snn.discovery.projection_modules import channel_axis
from ptq4snn.numerics.powers import next_power
from ptq4snn.numerics.scales import row_blocks

__all__ = ["SAMPLES", "exact_twin"]

SAMPLES = 16  # that the steps are found on
SINGLE = 24  # bits of the integers that float32 holds
INPUT_BITS, WEIGHT_BITS = 25, 28  # their sum is what float64 holds
ROOM = 2.0  # for sums that are larger than those seen
LEAST = 128.0  # a part of K m max|w| that is expected at least: random signs and sparse spikes give less
PIECE = 10  # bits of half a weight at least
PART = 2**20  # values of an output that are made at a time
BEYOND = 8.0  # times larger real inputs than those seen may come


def exact_twin(folded: Folded, x: Tensor) -> Folded:
    """`folded` with weights on dyadic steps, found while it runs on `x`; its model is changed in place.

    Each projection has its step before its output is used, so that the steps themselves are the same on
    every CPU.
    """
    found = {n: _reader(folded.projection(n), i) for n, i in folded.discovery.projections.items()}
    handles = [folded.projection(n).register_forward_pre_hook(r.see) for n, r in found.items()]
    for name, reader in found.items():
        if isinstance(reader, RealReader):
            module = folded.projection(name)
            module.forward = ExactForward(module, reader)
    try:
        reset_neurons(folded.model)
        with torch.no_grad(), torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            folded.model(x)
    finally:
        reset_neurons(folded.model)
        for h in handles:
            h.remove()
    steps = {n: (r.step, r.unit) for n, r in found.items() if isinstance(r, CountReader)}
    return replace(folded, steps=steps)


def _reader(module: nn.Module, info: ProjectionInfo) -> CountReader | RealReader:
    most = max(abs(info.lo), abs(info.hi))
    weight: Tensor = module.weight  # type: ignore[assignment]
    reach = most * weight[0].numel()
    dyadic = isfinite(info.factor) and frexp(info.factor)[0] == 0.5
    if info.reads == "count" and dyadic and 0 < reach <= 2 ** (SINGLE - 3):
        return CountReader(module, info.factor, reach, info.lo < 0)
    return RealReader()


def _apply(module: Any, x: Tensor, weight: Tensor) -> Tensor:
    """The projection's output without a bias."""
    if isinstance(module, nn.Linear):
        return F.linear(x, weight)
    rank = weight.dim() - 2
    lead = x.shape[: -1 - rank]  # [T, B], where the module flattens them itself
    out: Tensor = module._conv_forward(x.reshape(-1, *x.shape[-1 - rank :]), weight, None)
    return out.reshape(*lead, *out.shape[1:])


class CountReader:
    """Finds the steps of a projection that reads spikes or their counts."""

    def __init__(self, module: nn.Module, unit: float, reach: float, signed: bool) -> None:
        self.unit, self.reach, self.signed = unit, reach, signed
        weight: Tensor = module.weight  # type: ignore[assignment]
        bias: Tensor | None = module.bias  # type: ignore[assignment]
        self.weight = weight.detach()  # in its own type: in float64 all layers' would lie beside each other
        self.bias = None if bias is None else bias.detach().double()
        self.largest = self.weight.flatten(1).abs().amax(1).double()  # [C]
        self.step = self._steps(self.largest * (reach / LEAST))
        self._snap(module)

    def see(self, module: nn.Module, args: Any) -> None:
        """A forward pre-hook: coarser steps where this input needs them."""
        needed = self._steps(self._sums(module, args[0]))
        if bool((needed > self.step).any()):
            self.step = torch.maximum(needed, self.step)
            self._snap(module)

    def _sums(self, module: nn.Module, x: Tensor) -> Tensor:
        """The largest partial sum [C] of an output in any order, a little too large, in units of the input.

        It is made of integers below 2^24, and hence exact itself.
        """
        fine = next_power(self.largest * self.reach) / 2 ** (SINGLE - 2)
        shape = [-1, *[1] * (self.weight.dim() - 1)]
        blocks = list(
            zip(row_blocks(self.weight, self.weight), row_blocks(fine.view(shape), self.weight), strict=True)
        )
        sums = []
        for sign in (1.0, -1.0):
            side = torch.cat([(w.double() / (sign * f)).clamp_min_(0).ceil_().to(x.dtype) for w, f in blocks])
            outputs = (_apply(module, (p / self.unit).abs_(), side) for p in _parts(module, x.detach()))
            tops = [y.movedim(channel_axis(module), 0).flatten(1).amax(1) for y in outputs]
            sums.append(torch.stack(tops).amax(0).double())
        largest: Tensor = sums[0] + sums[1] if self.signed else torch.maximum(sums[0], sums[1])
        found: Tensor = largest * fine
        return found

    def _steps(self, sums: Tensor) -> Tensor:
        """Steps [C] at which sums of this size, and twice, are at most 2^24 of them."""
        bias = torch.zeros_like(sums) if self.bias is None else self.bias.abs() / self.unit
        steps: Tensor = next_power(ROOM * sums + bias) / 2**SINGLE
        return steps

    def _snap(self, module: nn.Module) -> None:
        store_snapped(module, self.weight, self.bias, (self.step, self.unit))


class ExactForward:
    """Stands in for the forward of a projection that reads real numbers; hooks see what they saw."""

    def __init__(self, module: nn.Module, reader: RealReader) -> None:
        self.module, self.reader = module, reader

    def __call__(self, x: Tensor) -> Tensor:
        if torch.is_grad_enabled() or not 0 < self.reader.largest < inf:  # a rounded number has no gradient
            own: Tensor = type(self.module).forward(self.module, x)
            return own
        return self.reader.output(self.module, x)


class RealReader:
    """Computes a projection that reads real numbers: in float64, and rounds once; of whole numbers in
    float32, exactly."""

    def __init__(self) -> None:
        self.largest = 0.0  # of the inputs that were seen
        self.whole = True  # whether all of them were whole numbers

    def see(self, _m: nn.Module, args: Any) -> None:
        x = args[0].detach()
        self.largest = max(self.largest, float(x.abs().amax()) if x.numel() else 0.0)
        self.whole = self.whole and x.dtype == torch.float32 and _whole(x)

    def output(self, module: nn.Module, x: Tensor) -> Tensor:
        """What the projection makes of x, bias included."""
        y = self._of_whole_numbers(module, x) if self.whole else None
        return self._in_doubles(module, x) if y is None else self._finished(module, y)

    def _finished(self, module: nn.Module, y: Tensor) -> Tensor:
        """With the bias, in the type of the weight; y is fresh, and changed."""
        bias: Tensor | None = module.bias  # type: ignore[assignment]
        if bias is not None:
            shape = [1] * y.dim()
            shape[channel_axis(module)] = -1
            y = y.add_(bias.to(y).view(shape))
        weight: Tensor = module.weight  # type: ignore[assignment]
        return y.to(weight.dtype)

    def _in_doubles(self, module: nn.Module, x: Tensor) -> Tensor:
        top = next_power(torch.tensor(BEYOND * self.largest, dtype=torch.float64)).to(x.device)
        weight: Tensor = module.weight  # type: ignore[assignment]
        rows = weight.double().flatten(1)
        step = next_power(rows.abs().amax(1) * rows.shape[1]) / 2**WEIGHT_BITS
        x_step = top / 2**INPUT_BITS
        rounded = (rows / step[:, None]).round_().mul_(step[:, None]).view_as(weight)
        made = (
            self._finished(module, _apply(module, (part.double() / x_step).round_().mul_(x_step), rounded))
            for part in _parts(module, x)
        )
        return _joined(module, x, made)

    def _of_whole_numbers(self, module: nn.Module, x: Tensor) -> Tensor | None:
        """Counts of events: the weight as two integers, each so short that float32 holds all sums; None where
        x are no counts, or too large for it."""
        weight: Tensor = module.weight  # type: ignore[assignment]
        rows = weight.double().flatten(1)
        most = 2.0 ** frexp(ROOM * self.largest)[1]
        bits = SINGLE - frexp(most * rows.shape[1])[1]
        if bits < PIECE or not _whole(x) or float(x.abs().amax()) > most:
            return None
        step = next_power(rows.abs().amax(1)) / 2**bits
        pieces, steps = [], []
        for _ in range(2):
            pieces.append((rows / step[:, None]).round())
            steps.append(step)
            rows, step = rows - pieces[-1] * step[:, None], step / 2 ** (bits + 1)
        return self._added(module, x, [p.view_as(weight).to(x) for p in pieces], [s.to(x) for s in steps])

    def _added(self, module: nn.Module, x: Tensor, pieces: list[Tensor], steps: list[Tensor]) -> Tensor:
        """sum_i steps_i (W_i x), some samples at a time: what is in between stays in the cache."""
        axis, weight = channel_axis(module), pieces[0]
        if getattr(module, "groups", 1) == 1:  # both at once: they read the same
            pieces = [torch.cat(pieces)]
        worth = [s.view(-1, *[1] * (-axis - 1)) for s in steps]

        def made(part: Tensor) -> Tensor:
            sums = [_apply(module, _channels_last(part, weight.dim()), piece) for piece in pieces]
            first, second = sums[0].chunk(2, axis) if len(sums) == 1 else sums
            return (first * worth[0]).add_(second * worth[1])

        return _joined(module, x, map(made, _parts(module, x)))


def _parts(module: nn.Module, x: Tensor) -> tuple[Tensor, ...]:
    """x in parts of some samples [n, ...]: what is made of one stays in the cache, and is not much."""
    weight: Tensor = module.weight  # type: ignore[assignment]
    flat = x.reshape(-1, *x.shape[-max(1, weight.dim() - 1) :])
    size = PART // (len(weight) * max(1, flat.shape[1:].numel() // flat.shape[channel_axis(module)]))
    found: tuple[Tensor, ...] = flat.split(max(1, size))
    return found


def _joined(module: nn.Module, x: Tensor, outputs: Iterable[Tensor]) -> Tensor:
    """What was made of the parts of x, one behind the other in the place of x's samples."""
    weight: Tensor = module.weight  # type: ignore[assignment]
    lead = x.shape[: -max(1, weight.dim() - 1)]
    made, at = x, 0
    for y in outputs:
        made = y.new_empty(lead.numel(), *y.shape[1:]) if at == 0 else made
        made[at : at + len(y)] = y
        at += len(y)
    return made.view(*lead, *made.shape[1:])


def _whole(x: Tensor) -> bool:
    """Whether all are whole numbers, and finite."""
    return not x.numel() or float((x - x.round()).abs_().amax()) == 0


def _channels_last(x: Tensor, rank: int) -> Tensor:
    """Images [n, C, H, W] as convolutions of few channels are fastest with; the values are the same."""
    return x.contiguous(memory_format=torch.channels_last) if rank == x.dim() == 4 else x
