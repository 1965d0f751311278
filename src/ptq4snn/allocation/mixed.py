"""Mixed-precision bit allocation under a budget: by firing rate and sensitivity (MPBA), or by benefit."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from itertools import islice

import torch
from torch import Tensor

from ptq4snn.allocation.benefit import cheapest
from ptq4snn.allocation.budget import Channels, allocate, average_bits
from ptq4snn.allocation.scores import scores
from ptq4snn.allocation.search import Trial, Verdict, grid_search, preferred
from ptq4snn.assemble import Assembly
from ptq4snn.bridge.lattice import Lattice
from ptq4snn.modules.quantized import QuantizedModel
from ptq4snn.network.plan import Plan
from ptq4snn.observation.reliability import Reliability, Sensitivity
from ptq4snn.observation.sensitivity import at_once, sensitivity
from ptq4snn.prepared import Prepared
from ptq4snn.progress import stepping
from ptq4snn.recipe import Recipe
from ptq4snn.stages import SEARCHING, SENSITIVITY
from ptq4snn.words import WIDTHS

__all__ = [
    "Allocation", "Candidates", "allocate_bits", "is_mixed", "reference_sensitivity", "score_reliability",
]  # fmt: skip

REFERENCE_BITS = 4
FIRST_BATCHES = 10  # of "auto"
RELIABLE = 0.8  # split-half rank correlation of all channels, for the mean of both halves


def reference_sensitivity(prepared: Prepared, recipe: Recipe) -> Sensitivity:
    """g_c of the common 4-bit reference (W4 nearest, 4-bit states, bridge), fixed before any allocation."""
    reference = recipe.replace(
        weights=REFERENCE_BITS, membrane=REFERENCE_BITS, coupling="bridge", allocation="uniform",
        arithmetic="integer", state_rounding="even", beta=None, percentile=None, rounding="nearest",
        objective="squared_error", sequential=False, correction="none", zero_point="none", widths=(2, 4, 8),
        uniform_competes=False, iterations=1, distillation=0,
    )  # fmt: skip
    key = repr(sorted(reference.to_dict().items(), key=str))
    known = prepared.cache.sensitivities
    if key not in known:
        assembly = Assembly(Lattice.of(prepared.folded, prepared.seen, reference))
        model = QuantizedModel(prepared.model, assembly.plan(assembly.uniform_bits()), assembly.integers())
        known[key] = _measured(prepared, assembly, model)
    return known[key]


def _measured(prepared: Prepared, assembly: Assembly, reference: QuantizedModel) -> Sensitivity:
    """g_c over the recipe's micro-batches; by "auto" over twice as many again and again, until both halves
    of them rank the channels alike or there are no more."""
    wanted, names = assembly.recipe.sensitivity_batches, budgeted(assembly)
    count = wanted if isinstance(wanted, int) else None
    total = len((prepared.packed or prepared.kept)[:count])
    stop = min(FIRST_BATCHES, total) if wanted == "auto" else total
    found, samples = Sensitivity(), prepared.samples_again(count)
    with stepping(prepared.progress, total, SENSITIVITY) as advance:

        def measured(x: Tensor) -> dict[str, Tensor]:
            advance()
            whole = prepared.room.whole  # a network that draws random numbers draws others for fewer samples
            parts = [x] if whole else x.split(at_once(prepared.folded), prepared.batch_axis)
            return sensitivity(prepared.folded, reference, parts, prepared.readout)

        while found.batches < total:
            for g in prepared.team.map(measured, islice(samples, stop - found.batches), "sensitivities"):
                found.add(g)
            if (found.reliability(names).overall or 0.0) >= RELIABLE:
                break
            stop = min(2 * stop, total)
    return found


def budgeted(assembly: Assembly) -> list[str]:
    """Neurons whose states are inside the budget."""
    return [n for n in assembly.lattice.neurons if assembly.in_budget(n)]


def score_reliability(prepared: Prepared, assembly: Assembly) -> Reliability | None:
    """How far the g_c that bits were given by would come out again; None where none were."""
    if assembly.recipe.allocation != "mpba" or not is_mixed(assembly):
        return None
    return reference_sensitivity(prepared, assembly.recipe).reliability(budgeted(assembly))


def eligible(prepared: Prepared, assembly: Assembly) -> tuple[list[str], list[int], Channels]:
    """Neurons inside the budget, their numbers of channels, and all these channels in one row."""
    names = budgeted(assembly)
    layouts = [prepared.folded.discovery.neurons[n] for n in names]
    sizes = [i.layout.channels for i in layouts]
    elements, last = (
        torch.cat([torch.full((n,), value) for n, value in zip(sizes, values, strict=True)])
        for values in ([i.layout.elements for i in layouts], [i.last for i in layouts])
    )
    return names, sizes, Channels(elements, last)


def _rate(prepared: Prepared, name: str) -> Tensor:
    """r_c of a neuron; of a synaptic current that of the membrane behind it."""
    behind = (n.name for n in prepared.folded.discovery.neurons.values() if n.synapse == name)
    return prepared.seen.neurons[next(behind, name)].firing_rate()


@dataclass(frozen=True)
class Candidates:
    """The channels whose bits are to be chosen, all neurons in one row [n]."""

    names: list[str]
    sizes: list[int]
    channels: Channels
    rate: Tensor
    sensitivity: Tensor

    @classmethod
    def of(cls, prepared: Prepared, assembly: Assembly) -> Candidates:
        names, sizes, channels = eligible(prepared, assembly)
        g = reference_sensitivity(prepared, assembly.recipe).mean()
        return cls(
            names,
            sizes,
            channels,
            torch.cat([_rate(prepared, n) for n in names]),
            torch.cat([g[n] for n in names]),
        )

    def allocate(self, beta: float, percentile: float, budget: float) -> tuple[Tensor, float]:
        """Bits [n] and their element-weighted average."""
        bits = allocate(scores(self.rate, self.sensitivity, beta), self.channels, budget, percentile)
        return bits, average_bits(bits, self.channels.elements)

    def spread(self, bits: Tensor) -> dict[str, Tensor]:
        """Bits [n] by neuron."""
        return dict(zip(self.names, bits.split(self.sizes), strict=True))


Bits = dict[str, Tensor]  # widths [C] of every neuron


@dataclass(frozen=True)
class Allocation:
    """b_c of every channel, the trial they belong to (None: nothing was tried), and all trials."""

    bits: Mapping[str, Tensor]
    best: Trial | None = None
    trials: list[Trial] = field(default_factory=list)

    @classmethod
    def uniform(cls, assembly: Assembly) -> Allocation:
        """b_c = b_m."""
        return cls(assembly.uniform_bits())

    def noted(self, plan: Plan) -> Plan:
        """The plan with the allocation it came from."""
        if self.best is None:
            return plan
        return replace(plan, beta=self.best.beta, percentile=self.best.percentile, mixed=True)


def is_mixed(assembly: Assembly) -> bool:
    """Whether channels may get different widths: the recipe wants it, and a state is inside the budget."""
    recipe = assembly.recipe
    fits = recipe.allocation == "fit" and recipe.membrane in WIDTHS
    if fits or recipe.allocation == "uniform" or recipe.coupling == "none":
        return False
    return any(map(assembly.in_budget, assembly.lattice.neurons))


def allocate_bits(
    prepared: Prepared, assembly: Assembly, judged: Callable[[Plan], Verdict]
) -> list[Allocation]:
    """The best allocation by score or benefit; and the uniform one, which is tried among the others wherever
    a search is made and the budget is a width, and competes with the best of them once both are tuned."""
    recipe = assembly.recipe
    uniform = Allocation.uniform(assembly)

    def judge(bits: Bits) -> Verdict:
        return judged(assembly.plan({**uniform.bits, **bits}))

    by_name = allocate_by_score if recipe.allocation == "mpba" else allocate_by_benefit
    bits, best, trials = by_name(prepared, assembly, judge)
    if not (recipe.uniform_competes and trials and recipe.membrane in WIDTHS):
        return [Allocation({**uniform.bits, **bits}, best, trials)]
    trials = [*trials, Trial(None, None, judge({}), recipe.membrane, "uniform")]
    return [Allocation({**uniform.bits, **bits}, best, trials), replace(uniform, trials=trials)]


Judge = Callable[[Bits], Verdict]


def allocate_by_score(
    prepared: Prepared, assembly: Assembly, judge: Judge
) -> tuple[Bits, Trial, list[Trial]]:
    """MPBA: the best (beta, P) of the grid on held-out samples."""
    recipe = assembly.recipe
    candidates = Candidates.of(prepared, assembly)
    betas = recipe.beta_grid if recipe.beta is None else (recipe.beta,)
    percentiles = recipe.percentile_grid if recipe.percentile is None else (recipe.percentile,)
    points = [(b, p) for b in betas for p in percentiles]
    if len(points) == 1:
        bits, average = candidates.allocate(*points[0], recipe.membrane)
        return candidates.spread(bits), Trial(*points[0], None, average), []
    tracked = prepared.progress.track(points, len(points), SEARCHING)
    bits, best, trials = grid_search(
        tracked,
        lambda b, p: candidates.allocate(b, p, recipe.membrane),
        lambda bits: judge(candidates.spread(bits)),
    )
    return candidates.spread(bits), best, trials


def allocate_by_benefit(
    prepared: Prepared, assembly: Assembly, judge: Judge
) -> tuple[Bits, Trial, list[Trial]]:
    """The least replay cost for the budget, counted by spikes, or by each layer's share of them."""
    recipe = assembly.recipe
    names, sizes, channels = eligible(prepared, assembly)
    costs = torch.cat(
        [torch.stack([assembly.tables[n].cost(b).amin(1) for b in recipe.widths], 1) for n in names]
    )
    layer = torch.cat([torch.full((n,), 1.0 / n, dtype=torch.float64) for n in sizes])
    found, verdicts = [], []
    for name, weight in (("benefit by spikes", channels.elements.double()), ("benefit by layers", layer)):
        chosen = cheapest(costs * weight[:, None], recipe.widths, channels, recipe.membrane)
        bits = dict(zip(names, chosen.split(sizes), strict=True))
        average = average_bits(chosen, channels.elements)
        verdicts.append(judge(bits))
        found.append((bits, Trial(None, None, verdicts[-1], average, name)))
    return *found[preferred(verdicts)], [trial for _, trial in found]
