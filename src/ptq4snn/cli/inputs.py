"""From options to objects: the model, its device, the data."""

from __future__ import annotations

import argparse
import difflib
import warnings
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import nn

from ptq4snn.checkpoint import load_checkpoint
from ptq4snn.data.source import Split, open_data
from ptq4snn.errors import DataError, PTQ4SNNError
from ptq4snn.factory import find_factory, run_factory
from ptq4snn.models import zoo

__all__ = ["load_data", "load_device", "load_model", "on_device"]

DEFAULT = "default"


def load_model(args: argparse.Namespace, weights_matter: bool = True) -> nn.Module:
    """The model that --model and --checkpoint name, in evaluation mode; the embedded default without them."""
    name: str = args.model or DEFAULT
    if name == DEFAULT and args.checkpoint is None:
        embedded: nn.Module = zoo.load_default()
        return embedded.eval()
    if ":" in name:
        model = run_factory(name, find_factory(name))
        if not isinstance(model, nn.Module):
            raise PTQ4SNNError(f"{name} returned a {type(model).__name__}: return a torch.nn.Module")
    else:
        model = built_in(name)()
        if args.checkpoint is None and weights_matter:
            warnings.warn(f"{name} has random weights: give --checkpoint", stacklevel=2)
    if args.checkpoint is not None:
        load_checkpoint(model, args.checkpoint)
    return model.eval()


def built_in(name: str) -> Callable[[], nn.Module]:
    """The constructor of a built-in model; of a misspelt name the nearest is suggested."""
    models: dict[str, Callable[[], nn.Module]] = {DEFAULT: zoo.default_model, **getattr(zoo, "MODELS", {})}
    if name in models:
        return models[name]
    near = difflib.get_close_matches(name, models, 1)
    hint = f"did you mean {near[0]!r}?" if near else f"built in are {', '.join(sorted(models))}"
    raise PTQ4SNNError(f"there is no model {name!r} ({hint}); name your own as package.module:factory")


def load_data(args: argparse.Namespace, split: Split, batch_size: int = 64) -> Iterable[Any]:
    """What --data names. Only the embedded model has data of its own."""
    if args.data is None and args.model not in (None, DEFAULT):
        raise DataError(f"{args.model} needs samples: give --data")
    return open_data(args.data or DEFAULT, split, batch_size=batch_size, batch_axis=args.batch_axis)


def load_device(args: argparse.Namespace) -> torch.device | None:
    """The device that --device names, if it is there."""
    if args.device is None:
        return None
    try:
        device = torch.device(args.device)
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as e:  # torch asserts that it was built for the device
        message = f"--device {args.device} cannot be used here: choose cpu or a device that torch sees"
        raise PTQ4SNNError(message) from e
    return device


def on_device(batches: Iterable[Any], device: torch.device | None) -> Iterable[Any]:
    """The batches with their tensors moved to the device."""
    for batch in batches:
        if device is None:
            yield batch
        elif isinstance(batch, tuple | list):
            yield tuple(item.to(device) for item in batch)
        else:
            yield batch.to(device)
