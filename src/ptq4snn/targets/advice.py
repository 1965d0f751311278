"""From broken constraints to the recipe that meets them, or to what no recipe can mend."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ptq4snn.errors import PTQ4SNNError
from ptq4snn.export.c99.figures import Figures
from ptq4snn.recipe import Recipe
from ptq4snn.report.recipe_text import as_toml
from ptq4snn.targets.constraints import Finding
from ptq4snn.targets.network_facts import Network
from ptq4snn.targets.target import Target

__all__ = ["Advice", "Case", "advise", "recipe_of"]

WIDTHS = (16, 8, 4, 3, 2)  # of states
NETWORK = {  # what only another network mends
    "dense": "build the network of fully connected layers",
    "resets": "train with a reset that {name} has",
    "without": "build the network without it",
    "layers": "build the network of fewer layers",
    "inputs": "build the network with fewer inputs",
    "kernel": "build the layer with a smaller kernel",
    "strides": "build the layer with a stride that {name} has",
    "hidden_neurons": "build a smaller network",
    "output_neurons": "build the network with fewer outputs",
    "cores": "build a smaller layer",
    "nir": "build the network of what NIR has words for",
    "spiking_output": "end the network in a neuron, and count its spikes",
}


@dataclass
class Advice:
    """`changes` of the recipe, and sentences about what no recipe mends."""

    changes: dict[str, Any] = field(default_factory=dict)
    beyond: list[str] = field(default_factory=list)

    def toml(self, recipe: Recipe) -> str | None:
        """The bundle's recipe with the changes, for `quantize --recipe FILE`; None where nothing changes."""
        if not self.changes:
            return None
        usual, wanted = Recipe().to_dict(), recipe.replace(**self.changes).to_dict()
        return as_toml({k: v for k, v in wanted.items() if v != usual[k] or k in self.changes})


@dataclass(frozen=True)
class Case:
    """What advice is made from."""

    target: Target
    network: Network
    figures: Figures | None
    recipe: Recipe
    broken: Sequence[Finding]

    def places(self, constraint: str) -> list[str]:
        return [f.place for f in self.broken if f.constraint == constraint]


def recipe_of(stored: Mapping[str, Any]) -> Recipe:
    """The recipe that a bundle was made by; the default where this version does not know it."""
    try:
        return Recipe.from_dict(stored)
    except (PTQ4SNNError, TypeError, ValueError):
        return Recipe()


def advise(case: Case) -> Advice:
    out, rules = Advice(), _Rules(case.recipe)
    _weights(case, out, rules)
    _scales(case, out, rules)
    _states(case, out, rules)
    _leaks(case, out)
    _memory(case, out, rules)
    for constraint, what in NETWORK.items():
        if places := case.places(constraint):
            out.beyond.append(_listed(places) + what.format(name=case.target.name))
    if rules.added:
        out.changes["overrides"] = {k: v.to_dict() for k, v in case.recipe.overrides.items()} | rules.added
    return out


class _Rules:
    """Overrides that are put behind those of the recipe, by exact names."""

    def __init__(self, recipe: Recipe) -> None:
        self.recipe = recipe
        self.added: dict[str, dict[str, Any]] = {}

    def set(self, name: str, **settings: Any) -> None:
        pattern = re.sub(r"([\[*?])", r"[\1]", name)
        before = self.recipe.overrides.get(pattern)
        known = self.added.setdefault(pattern, {} if before is None else before.to_dict())
        known.update(settings)


def _listed(places: Sequence[str]) -> str:
    named = [f"'{p}'" for p in places if p]
    text = ", ".join(named[:3]) + (f" and {len(named) - 3} more" if len(named) > 3 else "")
    return f"{text}: " if text else ""


def _narrow_weights(case: Case, most: int, out: Advice, rules: _Rules) -> None:
    """Every layer at `most` bits or fewer."""
    for name in ("weights", "first_bits", "last_bits"):
        bits = getattr(case.recipe, name)
        if bits is None or bits > most:
            out.changes[name] = most
    if most == 2:  # a target holds odd levels of two bits in three
        out.changes["weight_levels"] = "whole"
    for layer in case.network.layers:
        own = case.recipe.override(layer.name).weights is not None or layer.name.endswith(".shortcut")
        if layer.bits > most and own:
            rules.set(layer.name, weights=most)


def _weights(case: Case, out: Advice, rules: _Rules) -> None:
    if case.places("weight_bits") and case.target.weight_bits is not None:
        _narrow_weights(case, case.target.weight_bits[1], out, rules)


def _scales(case: Case, out: Advice, rules: _Rules) -> None:
    """Coupling flowq has one scale for the weights of a layer that feeds neurons."""
    places = case.places("one_scale")
    roles = {layer.name: layer.role for layer in case.network.layers}
    if mended := [p for p in places if roles[p] in ("pair", "output")]:
        out.changes["coupling"] = "flowq"
        for name in mended:
            if case.recipe.override(name).coupling is not None:
                rules.set(name, coupling="flowq")
    if rest := [p for p in places if roles[p] not in ("pair", "output")]:
        out.beyond.append(f"{_listed(rest)}build the network without currents that go past neurons")


def _narrow_states(case: Case, width: int, places: Sequence[str], out: Advice, rules: _Rules) -> None:
    """Those states at `width` bits."""
    if case.recipe.coupling == "none":
        out.changes.setdefault("coupling", "bridge")
    for name in places:
        rules.set(name, membrane=width)
        if case.recipe.override(name).coupling == "none":
            rules.set(name, coupling="bridge")


def _states(case: Case, out: Advice, rules: _Rules) -> None:
    places = case.places("state_bits")
    if not places or case.target.state_bits is None:
        return
    most = case.target.state_bits[1]
    cells = {c.name: c for c in case.network.cells}
    if any(cells[p].bits <= most for p in places):  # it is the zero point that makes it wider
        out.changes["zero_point"] = "none"
    wide = [p for p in places if cells[p].bits > most]
    width = next((w for w in WIDTHS if w <= most), None)
    if width is None:
        out.beyond.append(f"{_listed(places)}a state takes 2 bits at least")
    elif wide:
        _narrow_states(case, width, wide, out, rules)
        if case.recipe.zero_point != "none" and width == most:
            out.changes["zero_point"] = "none"


def _leaks(case: Case, out: Advice) -> None:
    places, kind = case.places("leak"), case.target.leak
    cells = {c.name: c for c in case.network.cells}
    if kind == "power":  # no leak at all stays none, and a negative one is none of them
        hopeless = [p for p in places if any(not 0 <= v < 1 for v in cells[p].leaks)]
    else:
        hopeless = places if kind == "none" else []
    if hopeless:
        how = "neurons that do not leak" if kind == "none" else "a leak"
        out.beyond.append(f"{_listed(hopeless)}train with {how}")
    if set(places) - set(hopeless):
        out.changes["leak"] = kind


def _memory(case: Case, out: Advice, rules: _Rules) -> None:
    if case.figures is None:
        return
    if case.places("flash"):
        _flash(case, case.figures, out, rules)
    if case.places("ram"):
        _ram(case, case.figures, out, rules)


def _flash(case: Case, figures: Figures, out: Advice, rules: _Rules) -> None:
    """The widest weights that fit, if packed bytes go with the bits."""
    layers, most = case.network.layers, case.target.flash or 0
    total = sum(x.weights * x.bits for x in layers)
    for width in range(max(x.bits for x in layers) - 1, 1, -1):
        share = sum(x.weights * min(x.bits, width) for x in layers) / total
        if figures.flash - figures.weights * (1 - share) <= most:
            _narrow_weights(case, width, out, rules)
            return
    out.beyond.append("build a smaller network: weights of 2 bits do not fit the flash either")


def _ram(case: Case, figures: Figures, out: Advice, rules: _Rules) -> None:
    """The widest states that fit, if packed bytes go with the bits."""
    kept, most = [c for c in case.network.cells if c.carries], case.target.ram or 0
    total = sum(c.neurons * c.bits for c in kept)
    for width in WIDTHS:
        share = sum(c.neurons * min(c.bits, width) for c in kept) / total if total else 1.0
        if figures.ram - figures.state * (1 - share) <= most:
            _narrow_states(case, width, [c.name for c in kept if c.bits > width], out, rules)
            return
    out.beyond.append("build a smaller network: states of 2 bits do not fit the RAM either")
