"""GPTQ (Frantar et al., 2023): weights are rounded column by column, the rest makes up for the error.

    H = 2/n sum x x^T          one for every group of a convolution; x are the columns a weight row meets
    U = upper Cholesky factor of (H + damp I)^-1
    e_j = (w_j - q_j) / U_jj,   w_k <- w_k - e_j U_jk for k > j,   loss = 1/2 sum e_j^2 = |dW x|^2 / n

Columns are taken in the order of H_jj, the largest first: what matters most is rounded while all the others
can still make up for it. Sparse spikes leave columns that are always 0: they keep the nearest integer and are
counted.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from math import ceil

import torch
from torch import Tensor

from ptq4snn.discovery.blocks import calls
from ptq4snn.numerics.grid import quantize
from ptq4snn.numerics.nearest import QuantWeight
from ptq4snn.numerics.scales import full_scales
from ptq4snn.rounding.filtered import Filter, find_filters
from ptq4snn.rounding.inputs import Inputs
from ptq4snn.rounding.moments import Hessian, enough
from ptq4snn.rounding.network import Network
from ptq4snn.rounding.store import Rounded
from ptq4snn.team import Team

__all__ = ["Inverse", "Solution", "collect", "round_unit", "searched", "solve"]

PERCDAMP = 0.01  # of the mean diagonal
BLOCKSIZE = 128
RAISES = 3  # times that the damping is raised tenfold before a layer is given up
CHUNK = 2**24  # values of rows that are rounded at once
PLENTY, FEWEST = 4, 64  # times more columns than are taken, and samples, that they are chosen from
NO_FILTERS: dict[str, Filter] = {}
SHRUNK = tuple(i / 20 for i in range(6, 21))  # of the scale that clips nothing


@dataclass(frozen=True)
class Solution:
    """Integers like the weight, the loss of each output channel, columns that no input reached. `solved` is
    False where the Hessian could not be inverted and the integers are the nearest."""

    integers: Tensor
    loss: Tensor  # [C]
    dead: int
    solved: bool = True


@dataclass(frozen=True)
class Inverse:
    """What of a Hessian H [groups, K, K] is needed to round, its columns in the order they are rounded in;
    `factor` is None where it cannot be inverted."""

    factor: Tensor | None  # U [groups, K, K]
    dead: Tensor  # [groups, K] columns that no input reached
    order: Tensor  # [groups, K] which column comes when

    @classmethod
    def of(cls, hessian: Tensor, percdamp: float = PERCDAMP) -> Inverse:
        h = hessian.double()
        order = h.diagonal(dim1=1, dim2=2).sort(dim=1, descending=True, stable=True).indices
        h = h.gather(1, order[:, :, None].expand_as(h)).gather(2, order[:, None].expand_as(h))
        diagonal = h.diagonal(dim1=1, dim2=2)
        dead = diagonal == 0
        live = (~dead).sum(1).clamp_min(1)
        level = (diagonal.sum(1) / live).clamp_min(torch.finfo(torch.float64).tiny)
        h = h + torch.diag_embed(dead * level[:, None])
        return cls(_inverse_factor(h, level, percdamp), dead, order)

    def rows(self, weight: Tensor) -> Tensor:
        """Weight [C, ...] as [groups, rows, K], its columns in their order."""
        groups, size = self.dead.shape
        rows = weight.double().reshape(groups, -1, size)
        return rows.gather(2, self.order[:, None].expand_as(rows))

    def like(self, rows: Tensor, weight: Tensor) -> Tensor:
        """The inverse of `rows`: columns [groups, rows, K] back in their places, in the weight's shape."""
        return torch.empty_like(rows).scatter_(2, self.order[:, None].expand_as(rows), rows).view_as(weight)


def solve(
    weight: Tensor, q: QuantWeight, hessian: Tensor | Inverse, percdamp: float = PERCDAMP,
    blocksize: int = BLOCKSIZE,
) -> Solution:  # fmt: skip
    """Integers of `weight` [C, ...] for the scales of q and H [groups, K, K]."""
    assert q.bits is not None
    inverse = hessian if isinstance(hessian, Inverse) else Inverse.of(hessian, percdamp)
    count = int(inverse.dead.sum())
    if inverse.factor is None:
        return Solution(q.integers, torch.full_like(q.scales, torch.nan), count, False)
    w = inverse.rows(weight)
    scales = q.scales.to(w).reshape(len(w), -1)
    integers, errors = _descend(w, scales, q, inverse.factor, blocksize)
    keep = inverse.dead[:, None].expand_as(integers)
    integers = inverse.like(torch.where(keep, inverse.rows(q.integers), integers), weight)
    loss = errors.masked_fill(keep, 0).square().sum(2).reshape(-1) / 2
    return Solution(integers.to(q.integers), loss.to(q.scales), count)


def searched(weight: Tensor, q: QuantWeight, inverse: Inverse, floor: Tensor | float) -> QuantWeight:
    """With the scale of each channel that GPTQ leaves the least loss with, its own among them; nearest
    integers again. Rows are rounded independently of each other, so all candidates are rows of one run."""
    if inverse.factor is None or q.bits is None:
        return q
    full = full_scales(weight.flatten(1), q.bits, floor, q.odd)
    least = torch.as_tensor(floor, dtype=torch.float64).expand_as(full)
    candidates = torch.stack([q.scales, *(torch.maximum(full * f, least) for f in SHRUNK)])  # [n, C]
    w = inverse.rows(weight)
    keep = inverse.dead[:, None]
    losses = []
    for part in candidates.split(max(1, CHUNK // w.numel())):
        scales = part.to(w).reshape(len(part), len(w), -1).transpose(0, 1).flatten(1)  # [groups, n * rows]
        _, errors = _descend(w.repeat(1, len(part), 1), scales, q, inverse.factor, BLOCKSIZE)
        loss = errors.masked_fill_(keep, 0).square_().sum(2)  # [groups, n * rows]
        losses.append(loss.reshape(len(w), len(part), -1).transpose(0, 1).flatten(1))
    best = torch.cat(losses).argmin(0, keepdim=True).cpu()  # of equal losses its own, then the finest
    return q.with_scales(weight, candidates.gather(0, best)[0])


def _inverse_factor(h: Tensor, level: Tensor, percdamp: float) -> Tensor | None:
    """U [groups, K, K] with U^T U = (H + damp I)^-1, the damping raised until H can be inverted."""
    identity = torch.eye(h.shape[1], dtype=h.dtype, device=h.device)
    for attempt in range(RAISES + 1):
        damp = percdamp * 10.0**attempt
        lower, failed = torch.linalg.cholesky_ex(h + (damp * level)[:, None, None] * identity)
        if not bool(failed.any()):
            inverse = torch.cholesky_inverse(lower)
            upper: Tensor
            upper, failed = torch.linalg.cholesky_ex(inverse, upper=True)
            if not bool(failed.any()) and bool(torch.isfinite(upper).all()):
                return upper
        percdamp = percdamp or PERCDAMP / 10
    return None


def _descend(
    w: Tensor, scales: Tensor, q: QuantWeight, factor: Tensor, blocksize: int
) -> tuple[Tensor, Tensor]:
    """Integers on the levels of q, and scaled errors [groups, rows, K]."""
    assert q.bits is not None
    w = w.clone()
    integers, errors = torch.zeros_like(w), torch.zeros_like(w)
    size = w.shape[2]
    for start in range(0, size, blocksize):
        stop = min(start + blocksize, size)
        part = w[:, :, start:stop]
        for j in range(start, stop):
            column = w[:, :, j]
            integers[:, :, j] = quantize(column, scales, q.bits, q.odd)
            error = (column - scales * integers[:, :, j]) / factor[:, j, j, None]
            errors[:, :, j] = error
            part[:, :, j - start :] -= error[:, :, None] * factor[:, None, j, j:stop]
        w[:, :, stop:] -= errors[:, :, start:stop] @ factor[:, start:stop, stop:]
    return integers, errors


def round_unit(
    network: Network, unit: tuple[str, ...], by_moments: bool = False, filtered: bool = False
) -> Rounded:
    """GPTQ of a block's projections, their inputs collected behind everything that is rounded already.

    by_moments: their scales are searched under these inputs too, where they are free.
    filtered: inputs are added up over time as the membrane behind them does it (rounding/filtered.py).
    """
    integers, dead, scales = {}, {}, {}
    filters = find_filters(network, unit) if filtered else {}
    for name, hessian in collect(network, unit, filters).items():
        q, weight, inverse = (
            network.weight(name),
            network.float.weight(name).cpu(),
            Inverse.of(hessian.value().cpu()),
        )
        if by_moments and network.may_rescale(name):
            q = searched(weight, q, inverse, network.floor(name))
            scales[name] = q.scales
        found = solve(weight, q, inverse)
        if not found.solved:
            warnings.warn(
                f"GPTQ cannot invert the Hessian of '{name}', not even with more damping: its weights are "
                f"rounded to nearest; more calibration samples may help",
                stacklevel=2,
            )
        integers[name], dead[name] = found.integers, found.dead
    return Rounded(integers, dead, scales)


def collect(
    network: Network, unit: tuple[str, ...], filters: Mapping[str, Filter] = NO_FILTERS
) -> dict[str, Hessian]:
    """Hessians of the unit's projections in one pass over the samples, which stops at the last of them."""
    reads = network.folded.discovery.projections
    fine = {n: f.step for n, f in filters.items()}
    units = {n: reads[n].factor * fine.get(n, 1.0) if reads[n].reads == "count" else None for n in unit}
    once = {n: c for n, c in calls(network.folded.discovery.graph).items() if n in unit}
    batches = _batches(network, unit)
    found = {n: Hessian(network.folded.projection(n), once[n] * batches, units[n]) for n in unit}

    def update(name: str, x: Tensor) -> None:
        found[name].update(filters[name](x) if name in filters else x)

    prepared = network.prepared
    axis, full = prepared.batch_axis, 0
    inputs = Inputs(network.folded, once, update)
    with inputs.watched(), prepared.team.raised_in_all("second moments"):
        for i, x in enumerate(prepared.samples_again(batches)):
            full = full or x.shape[axis]  # the last may be smaller
            if not prepared.team.mine(i):
                continue
            for name, hessian in found.items():
                hessian.begin(i, x.shape[axis] / full, once[name])
            for each in filters.values():
                each.begin(x.shape[axis])
            parts = prepared.room.run(x, inputs.run, "second moments", lambda: inputs.forget)
            if len(parts) > 1:
                for hessian in found.values():
                    hessian.again()
                for each in filters.values():
                    each.begin(x.shape[axis])
                inputs.take(parts, x, axis)
            for hessian in found.values():
                hessian.end(keep=prepared.team.size > 1)
    return {n: _merged(h, prepared.team) for n, h in found.items()}


def _merged(hessian: Hessian, team: Team) -> Hessian:
    """The sums of all processes."""
    total = hessian.close()
    if team.size == 1:
        return hessian
    hessian.count = sum(team.all(hessian.count, "second moments"))
    if hessian.unit is not None:
        hessian.total = torch.stack(team.all(total, "second moments")).sum(0)  # integers: exact
        return hessian
    batches = {i: part for parts in team.all(hessian.parts, "second moments") for i, part in parts.items()}
    for i in sorted(batches):
        hessian.plus(batches[i])
    return hessian


def _batches(network: Network, unit: tuple[str, ...]) -> int:
    """Micro-batches that a unit's columns are chosen from: the first, with PLENTY for every projection."""
    prepared, projections = network.prepared, network.folded.discovery.projections
    samples = float(FEWEST)
    for name in unit:
        weight = network.folded.weight(name)
        each = projections[name].macs / max(1, weight.numel())  # columns of one sample
        samples = max(samples, PLENTY * enough(weight[0].numel()) / max(1.0, each))
    size = prepared.kept[0].shape[prepared.batch_axis]
    return min(len(prepared.packed) or len(prepared.kept), ceil(samples / max(1, size)))
