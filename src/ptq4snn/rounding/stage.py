"""Weight rounding as a stage of its own: integers that change the network's outputs least.

Units (single projections or blocks) are rounded in execution order, each behind those that are done.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

from torch import Tensor

from ptq4snn.bridge.lattice import Lattice
from ptq4snn.discovery.blocks import WHOLE_ATTENTION, find_blocks
from ptq4snn.discovery.folding import Folded
from ptq4snn.discovery.model_digest import graph_digest
from ptq4snn.hashing import Hash, code_digest, digest
from ptq4snn.recipe import Recipe
from ptq4snn.rounding import gptq
from ptq4snn.rounding.network import Network
from ptq4snn.rounding.reconstruction import Aim, Reconstruction
from ptq4snn.rounding.store import Rounded, Store
from ptq4snn.stages import ROUNDING

if TYPE_CHECKING:
    from ptq4snn.prepared import Prepared

__all__ = ["dead_columns", "material_digest", "round_weights", "stretches"]

STRETCHES = 6  # of a network that GPTQ goes through
HELD = 2**29  # bytes of second moments
BY_COLUMNS = ("gptq", "sbc")  # one column after the other, by second moments


def round_weights(prepared: Prepared, lattice: Lattice, recipe: Recipe) -> Lattice:
    """The lattice with the integers [C, ...] of every projection that is rounded otherwise than to nearest.

    They are made once for each method, its settings and the scales, and kept in its cache.
    """
    wanted = _identity(lattice, recipe)
    made = prepared.cache.rounded
    if wanted not in made:
        made[wanted] = _round_units(prepared, lattice, recipe, wanted)
    found = made[wanted]
    scaled = lattice.with_scales(found.scales) if found.scales else lattice
    made[_identity(scaled, recipe)] = found
    return scaled.with_integers(found.integers)


def dead_columns(prepared: Prepared, lattice: Lattice, recipe: Recipe) -> Mapping[str, int]:
    """Columns of each projection that GPTQ left at the nearest value, for no spike reached them."""
    found = prepared.cache.rounded.get(_identity(lattice, recipe))
    return found.dead if found is not None else {}


def _identity(lattice: Lattice, recipe: Recipe) -> str:
    """The hash of what the integers depend on, for one prepared model."""
    by_steps = [recipe.iterations, recipe.seed, recipe.reconstruction, recipe.fisher]
    how = [recipe.by_moments] if recipe.rounding in BY_COLUMNS else by_steps
    settings = [recipe.rounding, *how]
    widths = {n: p.weight.bits for n, p in lattice.projections.items()}
    return digest(settings, widths, [p.weight.scales for p in lattice.projections.values()])


def _round_units(prepared: Prepared, lattice: Lattice, recipe: Recipe, wanted: str) -> Rounded:
    store = Store(prepared.work, "" if prepared.work is None else material_digest(prepared, wanted))
    network = Network(prepared, lattice)
    # GPTQ sees the inputs of a whole block at once: it must not be larger than it needs to be
    attention = WHOLE_ATTENTION if recipe.rounding == "brecq" else 0
    units = find_blocks(prepared.folded.discovery.graph, attention=attention)
    if recipe.rounding == "adaround":
        units = [(name,) for unit in units for name in unit]
    elif recipe.rounding in BY_COLUMNS:
        units = stretches(prepared.folded, units)
    round_unit = _rounder(network, recipe)
    done = Rounded()
    for unit in prepared.progress.track(units, len(units), f"{ROUNDING} ({recipe.rounding})"):
        free = tuple(n for n in unit if network.is_open(n))
        if free:
            found = prepared.team.told(partial(store.load, free), "finished units")
            if found is None:
                found = round_unit(free)
                if prepared.team.leads:
                    store.save(free, found, {n: network.weight(n).width for n in free})
            done |= found
        network.settle(unit, done.integers, done.scales)
    return done


def stretches(folded: Folded, units: Sequence[tuple[str, ...]]) -> list[tuple[str, ...]]:
    """Consecutive units put together until a network has STRETCHES of about equal work: each costs a pass
    over the samples that ends behind it, and so all of them cost as many passes at any depth. Second moments
    of one stretch are held at a time, in at most HELD bytes where single units allow it."""
    if len(units) <= STRETCHES:
        return list(units)
    projections = folded.discovery.projections
    work = [sum(projections[n].macs for n in unit) for unit in units]
    moments = [sum(8 * folded.weight(n)[0].numel() ** 2 for n in unit) for unit in units]
    found: list[tuple[str, ...]] = []
    done, held, quarter = 0, 0, -1
    for unit, own, size in zip(units, work, moments, strict=True):
        now = min(STRETCHES - 1, STRETCHES * (2 * done + own) // max(1, 2 * sum(work)))  # where its middle is
        if now == quarter and held + size <= HELD:
            found[-1] += unit
            held += size
        else:
            found.append(unit)
            held, quarter = size, now
        done += own
    return found


def _rounder(network: Network, recipe: Recipe) -> Callable[[tuple[str, ...]], Rounded]:
    if recipe.rounding in BY_COLUMNS:
        filtered = recipe.rounding == "sbc"
        return partial(gptq.round_unit, network, by_moments=recipe.by_moments, filtered=filtered)
    how = Aim(recipe.reconstruction, recipe.fisher)
    return Reconstruction(network, recipe.iterations, recipe.seed, how).round_unit


def material_digest(prepared: Prepared, wanted: str) -> str:
    """The hash of what a unit that was finished earlier must have been made from; `wanted` is its own."""
    sample = prepared.sample
    few = sample.narrow(prepared.batch_axis, 0, min(2, sample.shape[prepared.batch_axis]))
    found = Hash(code_digest(), wanted, graph_digest(prepared.model, few))
    for tensor in _material(prepared):
        found.add(tensor)
    return found.hexdigest()


def _material(prepared: Prepared) -> Iterator[Tensor]:
    """Weights and samples."""
    for name in prepared.folded.discovery.projections:
        yield prepared.folded.weight(name)
        yield prepared.folded.bias(name)
    for batch in prepared.packed:
        yield batch.content
        yield from batch.tables
    if not prepared.packed:
        yield from prepared.kept
