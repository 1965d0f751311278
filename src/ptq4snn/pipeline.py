"""PTQ4SNN as the paper's algorithm: prepare, observe, allocate, bridge, freeze.

`prepare` does once what every recipe needs (trace, fold, one float pass); `run` carries out one recipe on it.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from ptq4snn.allocation.budget import Channels, allocate, average_bits
from ptq4snn.allocation.scores import scores
from ptq4snn.allocation.search import Trial, divergence, grid_search
from ptq4snn.assemble import Assembly
from ptq4snn.bridge.joint import joint_scales
from ptq4snn.bridge.lattice import Lattice, build_lattice
from ptq4snn.calibration import Calibration
from ptq4snn.discovery.discover import discover, reset_neurons
from ptq4snn.discovery.folding import Folded, fold, verify
from ptq4snn.errors import CheckpointError, SilentNetworkWarning
from ptq4snn.evaluation.readout import Readout, find_readout
from ptq4snn.modules.quantized import Integers, QuantizedModel
from ptq4snn.observation.observe import Observation, observe
from ptq4snn.observation.sensitivity import sensitivity
from ptq4snn.progress import Progress, Silent
from ptq4snn.recipe import Recipe

__all__ = ["Prepared", "prepare", "run"]

REFERENCE_BITS = 4


@dataclass
class Prepared:
    """A model folded and observed, and the samples that were kept."""

    model: nn.Module
    folded: Folded
    seen: Observation
    readout: Readout
    batch_axis: int
    held_out: list[Tensor]
    kept: list[Tensor]
    samples: int
    progress: Progress
    _sensitivities: dict[str, dict[str, Tensor]] = field(default_factory=dict)
    _logits: list[Tensor] | None = None

    def float_logits(self) -> list[Tensor]:
        """Logits of the float model on the held-out micro-batches."""
        if self._logits is None:
            self._logits = list(logits(self.folded.model, self.held_out, self.readout))
        return self._logits


def logits(model: nn.Module, batches: list[Tensor], readout: Readout) -> Iterator[Tensor]:
    for x in batches:
        reset_neurons(model)
        with torch.no_grad():
            yield readout(model(x))
    reset_neurons(model)


def join(batches: list[Tensor], batch_axis: int, count: int = 4) -> list[Tensor]:
    """Batches of `count` micro-batches each: no integer depends on the batch, and large ones run faster."""
    return [torch.cat(batches[i : i + count], batch_axis) for i in range(0, len(batches), count)]


def check_weights(model: nn.Module) -> None:
    for name, p in [*model.named_parameters(), *model.named_buffers()]:
        if p.is_floating_point() and not bool(torch.isfinite(p).all()):
            raise CheckpointError(
                f"the weight '{name}' holds NaN or infinite values; load a sound checkpoint"
            )


def prepare(
    model: nn.Module, samples: Any, recipe: Recipe, batch_axis: int = 0, device: Any = None,
    progress: Progress | None = None,
) -> Prepared:  # fmt: skip
    """Trace, fold and verify the model, and observe it in one float pass over the samples."""
    progress = progress or Silent()
    check_weights(model)
    model = model.to(device) if device is not None else model
    where = next((p.device for p in model.parameters()), None)
    calibration = Calibration(
        samples, batch_axis, recipe.calibration, recipe.micro_batch, recipe.holdout,
        recipe.sensitivity_batches * recipe.micro_batch, where,
    )  # fmt: skip
    first = calibration.open()
    few = first.narrow(batch_axis, 0, min(2, first.shape[batch_axis]))
    discovery = discover(model, few, batch_axis)
    verify(model, discovery, few)
    folded = fold(model, discovery)
    readout = find_readout(folded.model, few, batch_axis)
    batches = progress.track(calibration.stream(), calibration.expected(), "observing the float model")
    seen = observe(folded, batches, batch_axis)
    if seen.samples == 0:  # all samples are held out: observe those
        seen = observe(folded, calibration.held_out, batch_axis)
    _warn_if_silent(seen, folded)
    kept = calibration.kept or calibration.held_out
    return Prepared(
        model, folded, seen, readout, batch_axis, calibration.held_out, kept, calibration.total, progress
    )


def _warn_if_silent(seen: Observation, folded: Folded) -> None:
    for name, statistics in seen.neurons.items():
        readout = folded.discovery.neurons[name].readout  # its membrane is the output: it need not fire
        if int(statistics.spikes.sum()) == 0 and not readout:
            warnings.warn(
                f"the float network is silent: '{name}' never fires on the calibration samples; check the "
                f"checkpoint and the input's normalisation",
                SilentNetworkWarning,
                stacklevel=4,
            )
            return


def run(prepared: Prepared, recipe: Recipe) -> QuantizedModel:
    """Quantize a prepared model by one recipe."""
    lattice = settle_lattice(prepared, recipe)
    assembly = Assembly(prepared.folded, prepared.seen, lattice, recipe)
    model = QuantizedModel(
        prepared.model, assembly.plan(uniform_bits(assembly, recipe.membrane)), integers(assembly)
    )
    trials: list[Trial] = []
    if (
        recipe.allocation == "mpba"
        and recipe.coupling != "none"
        and any(map(assembly.in_budget, lattice.neurons))
    ):
        bits, best, trials = allocate_bits(prepared, recipe, assembly, model)
        model.use(assembly.plan(bits, best.beta, best.percentile))
    from ptq4snn.evaluation.report import make_report

    model.report = make_report(prepared, assembly, model, trials)
    return model


def settle_lattice(prepared: Prepared, recipe: Recipe) -> Lattice:
    """Weight scales: least squared error, or jointly with the state's for transformers."""
    lattice = build_lattice(prepared.folded, prepared.seen, recipe)
    joint = prepared.folded.discovery.transformer if recipe.joint is None else recipe.joint
    if not joint or recipe.coupling not in ("bridge", "layerwise") or recipe.weights is None:
        return lattice
    assembly = Assembly(prepared.folded, prepared.seen, lattice, recipe)
    return build_lattice(prepared.folded, prepared.seen, recipe, joint_scales(assembly, recipe))


def integers(assembly: Assembly) -> dict[str, Integers]:
    """Weight and bias integers of every projection."""
    out = {}
    for name, p in assembly.lattice.projections.items():
        bias = p.bias / p.unit
        exact = assembly.recipe.arithmetic == "float"
        out[name] = Integers(p.weight.integers, bias if exact else bias.round())
    return out


def uniform_bits(assembly: Assembly, membrane: float) -> dict[str, Tensor]:
    """The same width for every channel in the budget; the others keep their own."""
    out = {}
    for name, n in assembly.lattice.neurons.items():
        fixed = assembly.fixed_bits(name)
        width = fixed if fixed is not None else round(membrane)
        out[name] = torch.full((len(n.scale),), width, dtype=torch.int64)
    return out


def reference_sensitivity(prepared: Prepared, recipe: Recipe) -> dict[str, Tensor]:
    """g_c of the common 4-bit reference (W4 nearest, 4-bit states, bridge), fixed before any allocation."""
    reference = recipe.replace(
        weights=REFERENCE_BITS, coupling="bridge", allocation="uniform", membrane=4.0, arithmetic="integer",
        state_rounding="even", beta=None, percentile=None,
    )  # fmt: skip
    key = repr(sorted(reference.to_dict().items(), key=str))
    if key not in prepared._sensitivities:
        assembly = Assembly(
            prepared.folded,
            prepared.seen,
            build_lattice(prepared.folded, prepared.seen, reference),
            reference,
        )
        model = QuantizedModel(prepared.model, assembly.plan(uniform_bits(assembly, 4)), integers(assembly))
        batches = prepared.kept[: recipe.sensitivity_batches]
        tracked = prepared.progress.track(batches, len(batches), "measuring sensitivity")
        prepared._sensitivities[key] = sensitivity(prepared.folded, model, tracked, prepared.readout)
    return prepared._sensitivities[key]


def allocate_bits(
    prepared: Prepared, recipe: Recipe, assembly: Assembly, model: QuantizedModel
) -> tuple[dict[str, Tensor], Trial, list[Trial]]:
    """Mixed-precision bit allocation: scores, budget, and the grid of (beta, P)."""
    g = reference_sensitivity(prepared, recipe)
    names = [n for n in assembly.lattice.neurons if assembly.in_budget(n)]
    infos = prepared.folded.discovery.neurons
    sizes = [infos[n].layout.channels for n in names]
    channels = Channels(
        torch.cat([torch.full((infos[n].layout.channels,), infos[n].layout.elements) for n in names]),
        torch.cat([torch.full((infos[n].layout.channels,), infos[n].last) for n in names]),
    )
    rate = torch.cat([prepared.seen.neurons[n].firing_rate() for n in names])
    g_all = torch.cat([g[n] for n in names])

    def spread(flat: Tensor) -> dict[str, Tensor]:
        return uniform_bits(assembly, recipe.membrane) | dict(zip(names, flat.split(sizes), strict=True))

    def allocation(beta: float, percentile: float) -> tuple[Tensor, float]:
        bits = allocate(scores(rate, g_all, beta), channels, recipe.membrane, percentile)
        return bits, average_bits(bits, channels.elements)

    expected = torch.cat(prepared.float_logits())
    larger = join(prepared.held_out, prepared.batch_axis)

    def judge(flat: Tensor) -> tuple[float, float]:
        model.use(assembly.plan(spread(flat)))
        return divergence(expected, torch.cat(list(logits(model, larger, prepared.readout))))

    betas = (recipe.beta,) if recipe.beta is not None else recipe.beta_grid
    percentiles = (recipe.percentile,) if recipe.percentile is not None else recipe.percentile_grid
    points = [(b, p) for b in betas for p in percentiles]
    if len(points) == 1:
        bits, average = allocation(*points[0])
        best = Trial(*points[0], float("nan"), float("nan"), average)
        return spread(bits), best, []
    tracked = prepared.progress.track(points, len(points), "searching (beta, P)")
    flat, best, trials = grid_search(tracked, allocation, judge)
    return spread(flat), best, trials
