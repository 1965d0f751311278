"""What every recipe needs once: trace the model, fold it, prove the folding, observe it in one float pass."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import reduce
from math import prod
from typing import Any

import torch
from torch import Tensor, nn

from ptq4snn.calibration.calibration_set import Calibration, refuse_unbatched
from ptq4snn.discovery.batch_axis import check_batch_axis
from ptq4snn.discovery.counting import limit_counts
from ptq4snn.discovery.discover import Discovery, discover
from ptq4snn.discovery.editing import leave_out
from ptq4snn.discovery.exclusion import excluded_modules
from ptq4snn.discovery.folding import Folded, fold
from ptq4snn.discovery.input_types import input_type, refuse_several_inputs, widened
from ptq4snn.discovery.looping import Looped, refuse_forgetful
from ptq4snn.discovery.opening import bake, readable
from ptq4snn.discovery.proof import verify
from ptq4snn.discovery.surgery import copy_model, unwrapped
from ptq4snn.discovery.twin import SAMPLES, exact_twin
from ptq4snn.errors import CheckpointError, RecipeError, SilentNetworkWarning, UnsupportedModel
from ptq4snn.heap import at_hand, give_back, sparing
from ptq4snn.hints import hint
from ptq4snn.memory import Room
from ptq4snn.modules.readout import find_readout
from ptq4snn.numerics.device import check_device, find_device
from ptq4snn.numerics.finishing import FINISHES
from ptq4snn.observation.float_traces import FloatTracers
from ptq4snn.observation.observe import Observation, observe
from ptq4snn.observation.traces import SAMPLES as SAMPLED
from ptq4snn.prepared import Cache, Prepared
from ptq4snn.progress import Progress, Silent, stepping
from ptq4snn.recipe import Recipe
from ptq4snn.stages import OBSERVING, READING
from ptq4snn.team import SOLO, Team

__all__ = ["Where", "check_overrides", "enough_samples", "first_samples", "prepare"]

LARGE = 2**16  # numbers of a sample
KEPT = 10  # micro-batches that are kept as they are


def check_weights(model: nn.Module) -> None:
    for name, p in [*model.named_parameters(), *model.named_buffers()]:
        if p.is_meta:
            raise CheckpointError(
                f"the weight '{name}' is on the device meta and holds no numbers; load a checkpoint"
            )
        if p.is_floating_point() and not bool(torch.isfinite(p).all()):
            raise CheckpointError(
                f"the weight '{name}' holds NaN or infinite values; load a sound checkpoint"
            )
        if name.rpartition(".")[2] == "running_var" and bool((p < 0).any()):
            raise CheckpointError(f"'{name}' holds negative variances; load a sound checkpoint")


def refuse_single_step(model: nn.Module, discovery: Discovery) -> None:
    """One step from rest says nothing about the states of a sequence."""
    if discovery.single_step and not isinstance(model, Looped):
        raise UnsupportedModel(
            "the model ran a single time step: each of its neurons was called once and keeps its state for "
            "the next call. If the loop over time is outside of the model, give steps=T or "
            "loop=your_function(net, x) (on the command line --steps or --loop); if one step is all there "
            "is, give steps=1"
        )
    if isinstance(model, Looped) and not discovery.step_outputs:  # a step could not be told from the whole
        raise UnsupportedModel(
            "loop calls parts of the net and never the net itself, so that what a step is remains unknown: "
            "let it call net(x) once a step, or put the loop into a module around the net and give that"
        )


@dataclass(frozen=True)
class Where:
    """Where the work is done: the device (None: the model's own), and the processes that share it."""

    device: Any = None
    team: Team = SOLO


def prepare(
    model: nn.Module, samples: Any, recipe: Recipe, batch_axis: int = 0, progress: Progress | None = None,
    where: Where | None = None,
) -> Prepared:  # fmt: skip
    """Trace, fold and verify the model, and observe it in one float pass over the samples."""
    device, team = (None, SOLO) if where is None else (where.device, where.team)
    progress = progress or Silent()
    given = unwrapped(model)
    original = widened(copy_model(given, given.parameters()).requires_grad_(False))  # of the user's numbers
    refuse_several_inputs(original)
    check_weights(original)
    original = original if device is None else _on(device, original)
    excluded = excluded_modules(original, recipe)
    model = readable(original, excluded, sharing=True)
    home = next((p.device for p in model.parameters()), None)
    calibration = Calibration(
        samples, batch_axis, recipe.calibration, recipe.micro_batch, recipe.holdout,
        KEPT * recipe.micro_batch, home, remember=_needs_all(recipe),
    )  # fmt: skip
    first = calibration.open()
    first = calibration.cast(input_type(original, first.narrow(batch_axis, 0, 1)))
    few = first.narrow(batch_axis, 0, min(2, first.shape[batch_axis]))
    with stepping(progress, 4, READING) as advance:
        refuse_unbatched(model, few, batch_axis)
        refuse_forgetful(model, few, batch_axis)
        batches = [few, first.narrow(batch_axis, first.shape[batch_axis] - 1, 1), first]
        bake(model, batches)
        limit_counts(model, first)
        discovery = discover(model, few, batch_axis, excluded)
        advance()
        at_hand(_numbers(model, discovery, first.shape[batch_axis]))
        give_back()
        if discovery.edits:  # what an edited call computes with must not hang on the sample
            bake(model, batches)
        check_batch_axis(model, discovery.neurons, few, batch_axis)
        refuse_single_step(model, discovery)
        calibration.of_steps(max(n.steps for n in discovery.neurons.values()))
        with sparing():
            verify(original, discovery, first_samples(few, batch_axis, 2, 1))
            advance()
            folded = fold(model, discovery)
            leave_out(folded.model, FINISHES)
            folded = exact_twin(folded, first_samples(first, batch_axis, SAMPLES, 2))
            advance()
            before = torch.get_rng_state()
            readout = find_readout(folded.model, few, batch_axis)
            drawn = not torch.equal(before, torch.get_rng_state())
        advance()
    stream = progress.track(calibration.stream(), calibration.expected(), OBSERVING)
    tracers = _tracers(calibration, folded, recipe) if team.size == 1 else None
    room = Room(batch_axis, _why_whole(excluded, drawn))
    with team.raised_in_all("statistics"):
        seen = observe(folded, (x for _, x in team.deal(stream)), batch_axis, tracers, room)
    seen = reduce(Observation.merge, team.all(seen, "statistics"))
    if seen.samples == 0:  # all samples are held out: observe those
        seen = observe(folded, calibration.held_out, batch_axis, room=room)
    give_back()
    _warn_if_silent(seen, folded)
    held_out = tuple(calibration.held_out)
    kept = tuple(calibration.kept) or held_out
    cache = Cache(traces={} if tracers is None else tracers.traces())
    return Prepared(
        model, folded, seen, readout, batch_axis, held_out, kept, calibration.total, progress,
        excluded, tuple(calibration.packed), tuple(calibration.reporting), team=team, room=room,
        cache=cache,
    )  # fmt: skip


def _numbers(model: nn.Module, discovery: Discovery, samples: int) -> int:
    """Weights, and spikes of the widest neuron on a micro-batch."""
    widest = max(n.steps * prod(n.layout.shape) for n in discovery.neurons.values())
    return sum(p.numel() for p in model.parameters()) + samples * widest


def _tracers(calibration: Calibration, folded: Folded, recipe: Recipe) -> FloatTracers | None:
    """Traces on the way, where they will be wanted and it is known how many samples they are of."""
    first = calibration.held_out[0]
    wanted = enough_samples(first, calibration.batch_axis, SAMPLED, recipe.micro_batch)
    few = calibration.ahead(max(1, wanted // recipe.micro_batch))
    judged = recipe.objective != "squared_error" or recipe.allocation not in ("uniform", "fit")
    return FloatTracers.of(folded, few, calibration.batch_axis) if few and judged else None


def enough_samples(x: Tensor, batch_axis: int, most: int, least: int) -> int:
    """How many samples like those of x tell enough where `most` do: of LARGE ones fewer, down to `least`, for
    they have more positions."""
    each = x.numel() // max(1, x.shape[batch_axis])
    return most if each <= LARGE else min(most, max(least, most * LARGE // each))


def first_samples(x: Tensor, batch_axis: int, most: int, least: int) -> Tensor:
    """As many of x as `enough_samples` says."""
    count = enough_samples(x, batch_axis, most, least)
    return x.narrow(batch_axis, 0, min(count, x.shape[batch_axis]))


def _why_whole(excluded: Sequence[str], drawn: bool) -> str:
    """Why a micro-batch must not be parted, or nothing: what is drawn or added up in floats hangs on how many
    samples there are."""
    if excluded:
        return f"'{excluded[0]}' stays float, and floats are added up otherwise"
    return "the model draws random numbers, others for each number of samples" if drawn else ""


def _needs_all(recipe: Recipe) -> bool:
    """Whether a stage will want more samples again than the first ones."""
    batches = recipe.sensitivity_batches
    some = batches <= KEPT if isinstance(batches, int) else batches == "auto" and recipe.allocation != "mpba"
    return recipe.rounding != "nearest" or recipe.distillation > 0 or not some


def _on(device: Any, model: nn.Module) -> nn.Module:
    where = find_device(device, f"device {device!r}")
    check_device(where)
    return model.to(where)


def _warn_if_silent(seen: Observation, folded: Folded) -> None:
    for name, statistics in seen.neurons.items():
        # what is read as a membrane or hands on a current need not fire
        readout = folded.discovery.neurons[name].readout or folded.specs[name].emits != "spikes"
        if int(statistics.spikes.sum()) == 0 and not readout:
            warnings.warn(
                f"the float network is silent: '{name}' never fires on the calibration samples; check the "
                f"checkpoint and the input's normalisation",
                SilentNetworkWarning,
                stacklevel=4,
            )
            return


def check_overrides(prepared: Prepared, recipe: Recipe) -> None:
    """An override that fits no module is a misspelling."""
    if excluded_modules(prepared.model, recipe) != prepared.excluded:
        raise RecipeError("other modules are excluded than when the model was prepared; prepare it again")
    names = [*prepared.folded.discovery.neurons, *prepared.folded.discovery.projections]
    modules = [name for name, _ in prepared.model.named_modules() if name]
    for pattern, rule in recipe.overrides.items():
        if not any(fnmatchcase(n, pattern) for n in (modules if rule.exclude else names)):
            about = hint(pattern, names, "`ptq4snn inspect` lists the names", alike=0.3)
            raise RecipeError(
                f"the override {pattern!r} fits no neuron and no projection of the model: {about}"
            )
