"""The whole public surface: quantize, load, inspect, evaluate."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from ptq4snn.bundle.model import load_model
from ptq4snn.bundle.source import weights_hash
from ptq4snn.calibration import micro_batches
from ptq4snn.discovery.discover import Discovery, discover
from ptq4snn.errors import UnsupportedModel
from ptq4snn.evaluation.metrics import evaluate
from ptq4snn.modules.quantized import QuantizedModel
from ptq4snn.modules.surgery import copy_model
from ptq4snn.pipeline import prepare, run
from ptq4snn.progress import Progress
from ptq4snn.recipe import Recipe

__all__ = ["evaluate", "inspect", "load", "quantize"]


def quantize(
    model: nn.Module,
    samples: Any,
    recipe: str | Path | Mapping[str, Any] | Recipe = "w4m4",
    *,
    batch_axis: int = 0,
    device: str | torch.device | None = None,
    progress: Progress | None = None,
    work: str | Path | None = None,
    **changes: Any,
) -> QuantizedModel:
    """Quantize the weights and membrane states of a trained spiking network.

    samples: a tensor, a DataLoader or any iterable of input batches, without labels; of (x, y) batches x.
    recipe: a preset ("w4m4"), a TOML file, a mapping or a Recipe; `changes` replace single fields of it.
    batch_axis: axis of the samples in a batch, 1 for time-first tensors [T, B, ...].
    work: a folder that keeps finished blocks of the weights' rounding, from which a killed run goes on.
    The model given is not changed.
    """
    if isinstance(model, QuantizedModel):
        raise UnsupportedModel("the model is quantized already; give the float model")
    if not isinstance(model, nn.Module):
        raise UnsupportedModel(f"a model must be a torch.nn.Module, not {type(model).__name__}")
    settings = Recipe.parse(recipe)
    settings = settings.replace(**changes) if changes else settings
    with torch.inference_mode(False), torch.random.fork_rng(devices=[]):
        prepared = prepare(copy_model(model), samples, settings, batch_axis, device, progress)
        prepared.work = None if work is None else Path(work)
        q = run(prepared, settings)
    q.source = weights_hash(model)
    return q


def load(path: str | Path, model: nn.Module) -> QuantizedModel:
    """A quantized model from its bundle. `model` gives the structure; its own weights do not matter."""
    return load_model(Path(path), model)


def inspect(model: nn.Module, sample: Any, batch_axis: int = 0) -> Discovery:
    """Every neuron as pair, stream or bare, found by following one batch through a real forward pass."""
    first: Tensor = next(micro_batches(sample, 2, batch_axis))
    with torch.random.fork_rng(devices=[]):
        return discover(copy_model(model), first, batch_axis)
