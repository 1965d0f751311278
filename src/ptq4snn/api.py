"""The whole public surface: quantize, load, inspect, evaluate."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from ptq4snn.calibration.calibration_set import micro_batches
from ptq4snn.discovery.counting import limit_counts
from ptq4snn.discovery.discover import Discovery, discover
from ptq4snn.discovery.input_types import input_type, refuse_several_inputs, widened
from ptq4snn.discovery.looping import Loop, looped, repeated
from ptq4snn.discovery.model_digest import weights_digest
from ptq4snn.discovery.opening import bake, readable
from ptq4snn.errors import RecipeError, UnsupportedModel
from ptq4snn.evaluation.metrics import evaluate
from ptq4snn.files import short
from ptq4snn.frontier.reach import Conditions, reach
from ptq4snn.locks import alone
from ptq4snn.memory import in_words
from ptq4snn.modules.quantized import QuantizedModel
from ptq4snn.modules.saving import load_model
from ptq4snn.numerics.device import no_autocast
from ptq4snn.pipeline import prepare, run
from ptq4snn.prepare import Where
from ptq4snn.progress import Progress, chosen, stages
from ptq4snn.recipe import Recipe
from ptq4snn.runtime.demand import Limits
from ptq4snn.stages import expected_stages
from ptq4snn.team import SOLO, Team

__all__ = ["evaluate", "inspect", "load", "quantize"]

HIDDEN = {  # wrappers that cannot be taken off
    "ScriptModule": "hides its Python code; give the torch.nn.Module that it was made from",
    "FullyShardedDataParallel": "holds a share of the weights; load the whole state_dict into the model "
    "inside of it and give that",
}


def check_module(model: Any) -> None:
    """Refuse what is not a model, in words."""
    if isinstance(model, Mapping):
        raise UnsupportedModel("this is a state_dict, weights without code: build the model and give that")
    if not isinstance(model, nn.Module):
        raise UnsupportedModel(
            f"a model must be a torch.nn.Module, not {type(model).__name__}; give the module itself, not "
            "what was exported from it"
        )
    for name, module in model.named_modules():
        kind = next((k for k in HIDDEN if k in [c.__name__ for c in type(module).__mro__]), None)
        if kind is not None:
            raise UnsupportedModel(f"{name or 'the model'} is a {kind}, which {HIDDEN[kind]}")


def quantize(
    model: nn.Module,
    samples: Any,
    recipe: str | Path | Mapping[str, Any] | Recipe = "w4m4",
    *,
    batch_axis: int = 0,
    device: str | torch.device | None = None,
    progress: Progress | bool | None = None,
    work: str | Path | None = None,
    steps: int | None = None,
    loop: Loop | None = None,
    team: Team = SOLO,
    **changes: Any,
) -> QuantizedModel:
    """Quantize the weights and membrane states of a trained spiking network.

    samples: a tensor, a DataLoader or any iterable of input batches, without labels; of (x, y) batches x.
        With max_drop the labels y count, and with either goal half of the samples judge, half calibrate.
    recipe: a preset ("w4m4"), a TOML file, a mapping or a Recipe; `changes` replace single fields of it.
    batch_axis: axis of the samples in a batch, 1 for time-first tensors [T, B, ...].
    steps, loop: for a net whose forward is one time step. loop(net, x) runs the whole sequence, as your own
        code does, and calls the net once a step; steps=T stands for T calls on the same input, or with
        batch_axis=1 on the frames of x[T, B, ...]. What comes back takes one step a call, like the net.
    progress: None shows a bar if stderr is a terminal, False nothing; or an object of your own.
    work: a folder that keeps finished blocks of the weights' rounding, and finished candidates of a search
        for a goal (recipe max_drop or agreement), from which a killed run goes on; one run at a time.
    team: processes that share the work (ptq4snn.team), each of which gets the whole model, bit for bit the
        same for any number of them; give all the same model, samples and recipe.
    The model given is not changed.
    """
    if isinstance(model, QuantizedModel):
        raise UnsupportedModel("the model is quantized already; give the float model")
    check_module(model)
    if steps is not None and loop is not None:
        raise RecipeError(
            "steps and loop were both given: loop runs its own number of steps, give one of them"
        )
    if steps is not None:
        loop = repeated(steps, batch_axis)
    settings = Recipe.parse(recipe)
    settings = settings.replace(**changes) if changes else settings
    own = nullcontext() if work is None else alone(work, f"the folder {short(work)} of work", folder=True)
    with (
        team.led(own, "locks"),
        torch.inference_mode(False),
        torch.random.fork_rng(devices=[]),
        no_autocast(),
        _memory(),
    ):
        model = model if loop is None else looped(model, loop)
        if settings.has_goal:
            folder = None if work is None else Path(work)
            q = reach(
                model, samples, settings, Conditions(batch_axis, device, chosen(progress), folder, team)
            )
        else:
            shown = chosen(progress)
            with stages(shown, "quantizing", expected_stages(settings)):
                prepared = prepare(model, samples, settings, batch_axis, shown, Where(device, team))
                q = run(prepared.with_work(work), settings)
        q.one_step = loop is not None
    q.source = weights_digest(model)
    return q


def _memory() -> AbstractContextManager[None]:
    """What cannot be done on fewer samples at once (gradients, a single trace of the network) says so."""
    return in_words("to quantize")


def load(
    path: str | Path, model: nn.Module, loop: Loop | None = None, limits: Limits | None = None
) -> QuantizedModel:
    """A quantized model from its bundle. `model` gives the structure; its own weights do not matter.

    loop: as given to `quantize`; only `evaluate` and `q.sequence` need it.
    limits: what the bundle may ask for, as in `ptq4snn.runtime.load`; those of `Limits()`.
    """
    check_module(model)
    q = load_model(Path(path), model if loop is None else looped(model, loop), limits)
    q.one_step = bool(q.plan.step_outputs)
    return q


def inspect(model: nn.Module, sample: Any, batch_axis: int = 0) -> Discovery:
    """Every neuron as pair, stream or bare, found by following one batch through a real forward pass."""
    check_module(model)
    first: Tensor = next(micro_batches(sample, 2, batch_axis))
    with torch.random.fork_rng(devices=[]), no_autocast():
        found = widened(readable(model))
        refuse_several_inputs(found)
        first = first.to(input_type(found, first))
        bake(found, [first])
        limit_counts(found, first)
        return discover(found, first, batch_axis)
