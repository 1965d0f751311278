"""Weight rounding as a stage of its own: integers that change the network's outputs least.

Units (single projections or blocks) are rounded in execution order, each behind those that are done.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING

from torch import Tensor

from ptq4snn.bridge.lattice import Lattice
from ptq4snn.discovery.blocks import find_blocks
from ptq4snn.files import code_mark
from ptq4snn.recipe import Recipe
from ptq4snn.rounding import gptq
from ptq4snn.rounding.network import Network
from ptq4snn.rounding.reconstruction import Reconstruction
from ptq4snn.rounding.store import Rounded, Store, fingerprint

if TYPE_CHECKING:
    from ptq4snn.prepare import Prepared

__all__ = ["dead_columns", "round_weights"]


def round_weights(prepared: Prepared, lattice: Lattice, recipe: Recipe) -> dict[str, Tensor]:
    """Integers [C, ...] of every projection that is rounded otherwise than to nearest, for its scales.

    They are made once for each method, its settings and the scales, and kept with `prepared`.
    """
    mark = _mark(lattice, recipe)
    if mark not in prepared.rounded:
        prepared.rounded[mark] = _round_units(prepared, lattice, recipe, mark)
    return prepared.rounded[mark].integers


def dead_columns(prepared: Prepared, lattice: Lattice, recipe: Recipe) -> dict[str, int]:
    """Columns of each projection that GPTQ left at the nearest value, for no spike reached them."""
    found = prepared.rounded.get(_mark(lattice, recipe))
    return found.dead if found is not None else {}


def _mark(lattice: Lattice, recipe: Recipe) -> str:
    """What the integers depend on, for one prepared model."""
    settings = [recipe.rounding, *([] if recipe.rounding == "gptq" else [recipe.iterations, recipe.seed])]
    widths = {n: p.weight.bits for n, p in lattice.projections.items()}
    return fingerprint([settings, widths], (p.weight.scales for p in lattice.projections.values()))


def _round_units(prepared: Prepared, lattice: Lattice, recipe: Recipe, mark: str) -> Rounded:
    store = Store(
        prepared.work,
        fingerprint([code_mark(), mark], _material(prepared)) if prepared.work is not None else "",
    )
    network = Network(prepared, lattice)
    units = find_blocks(prepared.folded.discovery.graph)
    if recipe.rounding == "adaround":
        units = [(name,) for unit in units for name in unit]
    round_unit = _rounder(network, recipe)
    done = Rounded()
    for unit in prepared.progress.track(units, len(units), f"rounding weights ({recipe.rounding})"):
        free = tuple(n for n in unit if network.is_open(n))
        if free:
            found = store.load(free)
            if found is None:
                found = round_unit(free)
                store.save(free, found, {n: network.weight(n).bits or 0 for n in free})
            done.add(found)
        network.settle(unit, done.integers)
    return done


def _rounder(network: Network, recipe: Recipe) -> Callable[[tuple[str, ...]], Rounded]:
    if recipe.rounding == "gptq":
        return partial(gptq.round_unit, network)
    return Reconstruction(network, recipe.iterations, recipe.seed).round_unit


def _material(prepared: Prepared) -> Iterator[Tensor]:
    """Weights and samples: what a unit that was finished earlier must have been made from."""
    for name in prepared.folded.discovery.projections:
        yield prepared.folded.weight(name)
        yield prepared.folded.bias(name)
    for batch in prepared.packed:
        yield batch.content
        yield from batch.tables
    if not prepared.packed:
        yield from prepared.kept
