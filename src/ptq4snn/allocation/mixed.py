"""Mixed-precision bit allocation: 2, 4 or 8 bits a channel by firing rate and sensitivity, under a budget."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from ptq4snn.allocation.budget import Channels, allocate, average_bits
from ptq4snn.allocation.scores import scores
from ptq4snn.allocation.search import Trial, grid_search, mean_divergence
from ptq4snn.assemble import Assembly
from ptq4snn.bridge.lattice import build_lattice
from ptq4snn.modules.quantized import QuantizedModel
from ptq4snn.observation.sensitivity import sensitivity
from ptq4snn.prepare import Prepared, join, logits
from ptq4snn.recipe import Recipe

__all__ = ["Candidates", "allocate_bits", "reference_sensitivity"]

REFERENCE_BITS = 4


def reference_sensitivity(prepared: Prepared, recipe: Recipe) -> dict[str, Tensor]:
    """g_c of the common 4-bit reference (W4 nearest, 4-bit states, bridge), fixed before any allocation."""
    reference = recipe.replace(
        weights=REFERENCE_BITS, membrane=REFERENCE_BITS, coupling="bridge", allocation="uniform",
        arithmetic="integer", state_rounding="even", beta=None, percentile=None,
    )  # fmt: skip
    key = repr(sorted(reference.to_dict().items(), key=str))
    if key not in prepared.sensitivities:
        lattice = build_lattice(prepared.folded, prepared.seen, reference)
        assembly = Assembly(prepared.folded, prepared.seen, lattice, reference)
        model = QuantizedModel(prepared.model, assembly.plan(assembly.uniform_bits()), assembly.integers())
        batches = prepared.kept[: recipe.sensitivity_batches]
        tracked = prepared.progress.track(batches, len(batches), "measuring sensitivity")
        prepared.sensitivities[key] = sensitivity(prepared.folded, model, tracked, prepared.readout)
    return prepared.sensitivities[key]


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
        names = [n for n in assembly.lattice.neurons if assembly.in_budget(n)]
        infos = [prepared.folded.discovery.neurons[n] for n in names]
        sizes = [i.layout.channels for i in infos]
        g = reference_sensitivity(prepared, assembly.recipe)
        return cls(
            names,
            sizes,
            Channels(
                torch.cat([torch.full((n,), i.layout.elements) for n, i in zip(sizes, infos, strict=True)]),
                torch.cat([torch.full((n,), i.last) for n, i in zip(sizes, infos, strict=True)]),
            ),
            torch.cat([prepared.seen.neurons[n].firing_rate() for n in names]),
            torch.cat([g[n] for n in names]),
        )

    def allocate(self, beta: float, percentile: float, budget: float) -> tuple[Tensor, float]:
        """Bits [n] and their element-weighted average."""
        bits = allocate(scores(self.rate, self.sensitivity, beta), self.channels, budget, percentile)
        return bits, average_bits(bits, self.channels.elements)

    def spread(self, bits: Tensor) -> dict[str, Tensor]:
        """Bits [n] by neuron."""
        return dict(zip(self.names, bits.split(self.sizes), strict=True))


def allocate_bits(
    prepared: Prepared, assembly: Assembly, model: QuantizedModel
) -> tuple[dict[str, Tensor], Trial, list[Trial]]:
    """Widths [C] of every neuron, the (beta, P) they belong to, and all trials on held-out samples."""
    recipe, fixed = assembly.recipe, assembly.uniform_bits()
    candidates = Candidates.of(prepared, assembly)
    betas = recipe.beta_grid if recipe.beta is None else (recipe.beta,)
    percentiles = recipe.percentile_grid if recipe.percentile is None else (recipe.percentile,)
    points = [(b, p) for b in betas for p in percentiles]
    if len(points) == 1:
        bits, average = candidates.allocate(*points[0], recipe.membrane)
        return fixed | candidates.spread(bits), Trial(*points[0], None, None, average), []
    expected = prepared.float_logits()
    batches = join(prepared.held_out, prepared.batch_axis)

    def judge(bits: Tensor) -> tuple[float, float]:
        model.use(assembly.plan(fixed | candidates.spread(bits)))
        found = logits(model, batches, prepared.readout)
        return mean_divergence(zip(expected, found, strict=True))

    tracked = prepared.progress.track(points, len(points), "searching (beta, P)")
    bits, best, trials = grid_search(tracked, lambda b, p: candidates.allocate(b, p, recipe.membrane), judge)
    return fixed | candidates.spread(bits), best, trials
