"""`ptq4snn inspect`: every neuron as pair, stream or bare, and what feeds it; or what a bundle asks for."""

from __future__ import annotations

import argparse
import json

import ptq4snn
from ptq4snn.cli.inputs import load_data, load_device, load_model, on_device
from ptq4snn.cli.limits import limits_of
from ptq4snn.errors import BundleError, DataError
from ptq4snn.runtime import estimate

__all__ = ["run"]

SAMPLES = 2  # enough to tell the batch axis from the others


def run(args: argparse.Namespace) -> None:
    if args.bundle is not None:
        inspect_bundle(args)
        return
    device = load_device(args, exact=False)
    model = load_model(args, weights_matter=False)
    batches = on_device(load_data(args, "calibration", batch_size=SAMPLES), device)
    batch = next(iter(batches), None)
    if batch is None:
        raise DataError(f"{args.data} holds no samples: give at least one")
    sample = batch[0] if isinstance(batch, tuple | list) else batch
    if device is not None:
        model = model.to(device)
    found = ptq4snn.inspect(model, sample, batch_axis=args.batch_axis)
    print(json.dumps(found.to_dict(), indent=2) if args.json else found.summary())


def inspect_bundle(args: argparse.Namespace) -> None:
    """Its demand, and then a refusal if it is above the limits."""
    limits = limits_of(args)
    found = estimate(args.bundle, limits)
    print(json.dumps(found.to_dict(), indent=2) if args.json else found.summary(), flush=True)
    try:
        found.check(limits)
    except BundleError as why:
        raise BundleError(f"{args.bundle}: {why}") from why
