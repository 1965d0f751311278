"""Which models are tried, and how many bytes each has, known before it is quantized.

Widths of weights times average widths of states times widths of the first layer's state; around the best of
them, its largest layers with narrower weights. Bytes are those of the cost model (cost/traffic.py): weights,
scales, biases, and for one sample states, their metadata and streams. What only quantizing shows is counted
in full before: a zero point for every channel that may have one, and an average that is met exactly.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from ptq4snn.allocation.mixed import is_mixed
from ptq4snn.assemble import Assembly
from ptq4snn.bridge.lattice import Lattice
from ptq4snn.cost.accounting import stream_bytes
from ptq4snn.cost.traffic import plan_cost
from ptq4snn.errors import RecipeError
from ptq4snn.freezing import build_model
from ptq4snn.network.plan import NeuronPlan, Plan, ProjectionPlan
from ptq4snn.network.program import Program
from ptq4snn.overrides import Override
from ptq4snn.prepared import Prepared
from ptq4snn.recipe import Recipe

__all__ = ["Candidate", "Catalog"]

WEIGHTS = (2, 3, 4, 8)
STATES = (2.0, 2.5, 3.0, 4.0, 8.0)
FIRST = (4, 8, 16)


@dataclass(frozen=True)
class Candidate:
    """A recipe without a goal; `narrower` of its largest layers have weights of the next smaller width."""

    recipe: Recipe
    bytes: int  # expected
    first: bool = False  # the first layer's state has a width of its own
    narrower: int = 0

    @property
    def widths(self) -> tuple[float, ...]:
        r = self.recipe
        return float(r.weights or 0), r.membrane, float(r.first_membrane), -float(self.narrower)

    @property
    def name(self) -> str:
        """W4 M2.5 first 8, with what was narrowed."""
        r = self.recipe
        first = f" first {r.first_membrane}" if self.first else ""
        layers = "1 layer" if self.narrower == 1 else f"{self.narrower} layers"
        less = f", {layers} W{_below(r.weights)}" if self.narrower else ""
        return f"W{r.weights} M{r.membrane:g}{first}{less}"


def _below(weights: float | None) -> int:
    return max(w for w in WEIGHTS if w < (weights or 0))


@dataclass
class Catalog:
    """Makes the candidates of one prepared network."""

    prepared: Prepared
    recipe: Recipe
    _lattices: dict[float, Lattice] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.recipe = self.recipe.replace(max_drop=None, agreement=None)
        lattice = self._lattice(WEIGHTS[-1])
        assembly = Assembly(lattice)
        model = build_model(self.prepared, assembly)
        self._plan: Plan = model.plan
        self._program: Program | None = model.program
        self.sizes = {n: p.weight.kept.numel() for n, p in lattice.projections.items()}
        neurons = self.prepared.folded.discovery.neurons.values()
        self.has_first = assembly.has_middle and any(
            n.stem and n.carries_state and self.recipe.override(n.name).membrane is None for n in neurons
        )

    def _lattice(self, weights: float) -> Lattice:
        """Nearest weights of this width, which tell how each layer is packed."""
        if weights not in self._lattices:
            recipe = self.recipe.replace(weights=weights)
            self._lattices[weights] = Lattice.of(self.prepared.folded, self.prepared.seen, recipe)
        return self._lattices[weights]

    def grid(self) -> list[Candidate]:
        """All combinations of widths that the recipe's allocation can give."""
        firsts = [f for f in FIRST if f <= self.recipe.first_membrane] if self.has_first else []
        found = []
        base = self.recipe.replace(weight_allocation="uniform")  # `narrowed` mixes widths
        for weights in WEIGHTS:
            for membrane in STATES:
                for first in firsts or [self.recipe.first_membrane]:
                    changes = {"weights": weights, "membrane": membrane, "first_membrane": first}
                    try:
                        recipe = base.replace(**changes)
                    except RecipeError:  # uniform widths of 2.5 bits, or an average beyond `widths`
                        continue
                    found.append(Candidate(recipe, self._bytes(recipe), self.has_first))
        return found

    def narrowed(self, chosen: Candidate) -> list[Candidate]:
        """The chosen one with its 1, 2, ... largest layers one width narrower; not with all of them."""
        weights = chosen.recipe.weights
        if weights is None or weights <= WEIGHTS[0]:
            return []
        below, own = _below(weights), self._widths(weights)
        free = [n for n in own if own[n] != self._widths(below)[n]]
        order = sorted(free, key=lambda n: -self.sizes[n])
        found = []
        for count in range(1, len(order)):
            rules = {n: Override(weights=below) for n in order[:count]}
            recipe = chosen.recipe.replace(overrides={**self.recipe.overrides, **rules})
            found.append(replace(chosen, recipe=recipe, bytes=self._bytes(recipe), narrower=count))
        return found

    def _widths(self, weights: float) -> dict[str, int | None]:
        return {n: p.weight.bits for n, p in self._lattice(weights).projections.items()}

    def _bytes(self, recipe: Recipe) -> int:
        assert recipe.weights is not None
        lattice = self._lattice(recipe.weights)
        here = replace(lattice, basis=replace(lattice.basis, recipe=recipe))
        assembly = Assembly(here)
        mixed = is_mixed(assembly)
        neurons = {n: self._neuron(p, assembly, mixed) for n, p in self._plan.neurons.items()}
        projections = {n: self._projection(p, recipe) for n, p in self._plan.projections.items()}
        plan = replace(self._plan, neurons=neurons, projections=projections, mixed=mixed)
        return self.cost_of(plan, self._program)

    def cost_of(self, plan: Plan, program: Program | None) -> int:
        """Bytes of weights and of the states of one sample."""
        streams = stream_bytes(self.prepared.folded.discovery)
        return plan_cost(plan, self.sizes, streams, program).resident.packed.at(1)

    def _projection(self, p: ProjectionPlan, recipe: Recipe) -> ProjectionPlan:
        assert recipe.weights is not None
        found = self._lattice(recipe.weights).projections[p.name].weight
        rule = recipe.overrides.get(p.name)
        bits = found.bits if rule is None or rule.weights is None else rule.weights
        return replace(p, bits=bits, scales=tuple(found.scales.tolist()))

    def _neuron(self, p: NeuronPlan, assembly: Assembly, mixed: bool) -> NeuronPlan:
        recipe, inside = assembly.recipe, assembly.in_budget(p.name)
        width = assembly.fixed_bits(p.name) or round(recipe.membrane)
        bits = (width,) * p.channels
        if inside and mixed:
            bits = _averaging(recipe.membrane, recipe.widths, p.channels)
        judged = assembly.bridged(p.name) and recipe.objective != "squared_error"
        zeros = inside and judged and recipe.zero_point == "channel"
        return replace(p, bits=bits, in_budget=inside, zero=(int(zeros),) * p.channels)


def _averaging(average: float, widths: tuple[int, ...], channels: int) -> tuple[int, ...]:
    """Two neighbours among the widths, with this average over the channels."""
    low = max(w for w in widths if w <= average)
    high = min((w for w in widths if w >= average), default=low)
    wide = 0 if high == low else round(channels * (average - low) / (high - low))
    return (high,) * wide + (low,) * (channels - wide)
