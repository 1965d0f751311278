"""Mixed widths of weights: 2, 3, 4 or 8 bits a layer, as many on average as the budget allows.

    min  sum_l error_l(b_l)     s.t.     sum_l b_l N_l <= budget sum_l N_l

error_l(b) is what GPTQ at b bits leaves of the layer's outputs, |dW x| / |W x|, root mean square, averaged
over its channels; x are the inputs of the float network. Layers whose outputs one neuron sums have one width.
First and last layers, shortcuts and overrides keep their own.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from ptq4snn.allocation.benefit import cheapest
from ptq4snn.allocation.budget import Channels
from ptq4snn.bridge.lattice import Lattice
from ptq4snn.bridge.weights import weight_bits
from ptq4snn.recipe import Override, Overrides, Recipe
from ptq4snn.rounding.filtered import find_filters
from ptq4snn.rounding.gptq import Inverse, collect, searched, solve
from ptq4snn.rounding.moments import Hessian
from ptq4snn.rounding.network import Network
from ptq4snn.stages import CHOOSING_WIDTHS
from ptq4snn.words import WIDTHS

if TYPE_CHECKING:
    from ptq4snn.prepared import Prepared

__all__ = ["with_weight_widths"]

ROOM = 2**28  # bytes of Hessians that are held at once


def with_weight_widths(prepared: Prepared, recipe: Recipe) -> Recipe:
    """The recipe with an override for every layer that shares the budget; itself where all have one width."""
    if not recipe.mixes_weights:
        return recipe
    assert recipe.weights is not None
    layers = _layers(prepared, recipe)
    if not layers:
        return recipe
    measured = errors(prepared, recipe, [name for group in layers for name in group])
    costs = torch.stack([torch.stack([measured[n] for n in group]).sum(0) for group in layers])
    sizes = torch.tensor([sum(prepared.folded.weight(n).numel() for n in group) for group in layers])
    bits = cheapest(costs, WIDTHS, Channels(sizes, torch.zeros_like(sizes, dtype=torch.bool)), recipe.weights)
    chosen = {
        _exactly(name): Override(weights=b)
        for group, b in zip(layers, bits.tolist(), strict=True)
        for name in group
    }
    return recipe.replace(overrides=Overrides({**recipe.overrides, **chosen}))


def _layers(prepared: Prepared, recipe: Recipe) -> list[tuple[str, ...]]:
    """Projections that have the recipe's width, in groups that share one."""
    groups: dict[tuple[str, ...], None] = {}
    for name, info in prepared.folded.discovery.projections.items():
        widths = [weight_bits(info, prepared.folded, recipe.replace(weights=b)) for b in (2, 3)]
        if widths == [2, 3]:
            groups[tuple(info.tied or info.summed or (name,))] = None
    return list(groups)


def errors(prepared: Prepared, recipe: Recipe, names: list[str]) -> dict[str, Tensor]:
    """Relative error of every projection's outputs at each of WIDTHS, [widths]."""
    found = {n: torch.zeros(len(WIDTHS), dtype=torch.float64) for n in names}
    networks = [
        Network(prepared, Lattice.of(prepared.folded, prepared.seen, recipe.replace(weights=b)))
        for b in WIDTHS
    ]
    parts = list(_parts(prepared, names))
    for part in prepared.progress.track(parts, len(parts), CHOOSING_WIDTHS):
        filters = find_filters(networks[0], part) if recipe.rounding == "sbc" else {}
        for name, hessian in collect(networks[0], part, filters).items():
            for i, network in enumerate(networks):
                found[name][i] = _error(network, name, hessian)
    return found


def _error(network: Network, name: str, hessian: Hessian) -> float:
    h = hessian.value().cpu()
    inverse, weight, q = Inverse.of(h), network.float.weight(name).cpu(), network.weight(name)
    q = searched(weight, q, inverse, network.floor(name))
    loss = solve(weight, q, inverse).loss.double()
    rows = weight.double().reshape(len(h), -1, h.shape[1])  # [groups, rows, K]
    power = ((rows @ h) * rows).sum(2).reshape(-1) / 2
    share = (loss / power.clamp_min(torch.finfo(torch.float64).tiny)).nan_to_num(1.0)
    return float(share.clamp(0, 1).sqrt().mean())


def _parts(prepared: Prepared, names: list[str]) -> Iterator[tuple[str, ...]]:
    """The names, in order, in parts whose Hessians fit the room; at least one each."""
    part: list[str] = []
    used = 0
    for name in names:
        module = prepared.folded.projection(name)
        groups, size = int(getattr(module, "groups", 1)), prepared.folded.weight(name)[0].numel()
        need = 8 * groups * size * size
        if part and used + need > ROOM:
            yield tuple(part)
            part, used = [], 0
        part.append(name)
        used += need
    if part:
        yield tuple(part)


def _exactly(name: str) -> str:
    """A pattern that matches this name alone."""
    return "".join(f"[{c}]" if c in "[?*" else c for c in name)
