"""From options to objects: the model, its device, the data."""

from __future__ import annotations

import argparse
import os
import sys
import warnings
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import torch
from torch import nn

from ptq4snn.checkpoint import load_checkpoint
from ptq4snn.data.source import DATA, EMBEDDED, Batching, Split, embedded_for, has_splits, open_data
from ptq4snn.discovery.looping import Loop, looped, repeated
from ptq4snn.errors import DataError, PTQ4SNNError
from ptq4snn.experiments.cluster import Cluster
from ptq4snn.experiments.paper import RunSetting
from ptq4snn.extras import require
from ptq4snn.factory import find_factory, run_factory
from ptq4snn.interchange.nir_reading import from_nir
from ptq4snn.models import zoo
from ptq4snn.numerics.device import check_device, find_device
from ptq4snn.team import number_here

__all__ = [
    "find_entry",
    "load_cluster",
    "load_data",
    "load_device",
    "load_loop",
    "load_model",
    "load_whole_model",
    "on_device",
    "run_setting",
]

DEFAULT = "default"
NIR = ".nir"


def is_own(name: str) -> bool:
    """Whether --model names a user's model: a factory, or a NIR file."""
    return ":" in name or name.endswith(NIR)


def find_entry(name: str) -> zoo.Entry:
    """The built-in model of that name; of a misspelt one the nearest is suggested."""
    return zoo.find(name)[1]


def load_model(args: argparse.Namespace, weights_matter: bool = True) -> nn.Module:
    """The model that --model and --checkpoint name, in evaluation mode; the embedded default without them."""
    name: str = args.model or DEFAULT
    changes = model_changes(args)
    if name.endswith(NIR):
        model = from_nir(name, dt=args.dt, reset=args.reset, readout=args.readout, rule=args.rule)
    elif ":" in name:
        model = own_model(name, changes)
    else:
        entry = find_entry(name)
        if args.checkpoint is None and (entry.weights() or (entry.checkpoint and weights_matter)):
            return entry.load(**changes)
        model = entry.make(**changes)
        if args.checkpoint is None and weights_matter:
            warnings.warn(f"{name} has random weights: give --checkpoint", stacklevel=2)
    if args.checkpoint is not None:
        account = load_checkpoint(model, args.checkpoint).account()
        if account:
            print(f"ptq4snn: note: {account}", file=sys.stderr)
    return model.eval()


def load_loop(args: argparse.Namespace) -> Loop | None:
    """The loop over time that --steps or --loop names, for a model that takes one step a call."""
    if args.steps is not None and args.loop is not None:
        raise PTQ4SNNError(
            "--steps and --loop were both given: the loop runs its own number of steps, give one"
        )
    if args.steps is not None:
        return repeated(args.steps, args.batch_axis)
    return None if args.loop is None else find_factory(args.loop)


def load_whole_model(args: argparse.Namespace) -> nn.Module:
    """The model as it runs whole sequences: inside the loop that --steps or --loop names, if one does."""
    model, loop = load_model(args), load_loop(args)
    return model if loop is None else looped(model, loop)


def load_cluster(args: argparse.Namespace) -> Cluster | None:
    """The Ray cluster that --ray names, which must be installed before anything is run for it."""
    if args.ray is None:
        return None
    require("ray", "--ray")
    if number_here() or "WORLD_SIZE" in os.environ:
        raise PTQ4SNNError(
            "--ray and torchrun were both used: runs are shared by one of them, leave one away"
        )
    on_gpu = args.device is not None and args.device.startswith("cuda")
    return Cluster(args.ray, args.ray_cpus, gpus=1.0 if on_gpu else 0.0)


def model_changes(args: argparse.Namespace) -> dict[str, int]:
    """What --classes and --T change in a built-in model."""
    options = {"num_classes": args.classes, "T": args.T}
    return {name: value for name, value in options.items() if value is not None}


def own_model(name: str, changes: dict[str, int]) -> nn.Module:
    """The user's model; how it is built is the factory's business."""
    if changes:
        raise PTQ4SNNError(f"--classes and --T are for built-in models: set them in {name}")
    model = run_factory(name, find_factory(name))
    if not isinstance(model, nn.Module):
        raise PTQ4SNNError(f"{name} returned a {type(model).__name__}: return a torch.nn.Module")
    return model


def load_data(
    args: argparse.Namespace, split: Split, batch_size: int = 64, workers: int = 0, count: int | None = None
) -> Iterable[Any]:
    """What --data names, prepared for the model; without it the embedded sample of the model's data set."""
    name: str = args.model or DEFAULT
    entry = None if is_own(name) else find_entry(name)
    options: dict[str, Any] = {"batching": Batching(batch_size, args.batch_axis, workers, count)}
    data: str | None = args.data
    if entry is not None:
        steps = entry.preprocessing.steps
        if steps is not None and args.T is not None:
            steps = args.T
        preprocessing = replace(entry.preprocessing, steps=steps)
        options |= {"name": entry.data, "preprocessing": preprocessing}
        data = data or embedded_for(entry.data, preprocessing)
    if data is None:
        wanted = "samples" if entry is None else f"samples of {entry.data}"
        raise DataError(f"{name} needs {wanted}: give --data")
    return open_data(data, split, **options)


def run_setting(args: argparse.Namespace) -> RunSetting:
    """Model, data set and T that the options name, as far as they are known ones."""
    name: str = args.model or DEFAULT
    known, entry = (None, None) if is_own(name) else zoo.find(name)
    steps = None if entry is None else args.T or entry.steps
    return RunSetting(known, data_set(args.data, None if entry is None else entry.data), steps, args.limit)


def data_set(spec: str | None, expected: str | None) -> str | None:
    """The name of the data set that --data opens; embedded samples and files of arrays are none."""
    if spec is None or spec in EMBEDDED:
        return None
    name, colon, _ = spec.partition(":")
    if colon:
        return name if name in DATA else None
    return expected if has_splits(spec) else None


def load_device(args: argparse.Namespace, exact: bool = True) -> torch.device | None:
    """The device that --device names, if it is there; `exact`: and if it carries integers in floats."""
    if args.device is None:
        return None
    device = find_device(args.device, f"--device {args.device}")
    if exact:
        check_device(device)
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
