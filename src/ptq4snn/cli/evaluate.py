"""`ptq4snn evaluate`: the accuracy of a bundle, and of the float model with --float."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import ptq4snn
from ptq4snn.cli.inputs import load_data, load_device, load_model, on_device
from ptq4snn.errors import BundleError, PTQ4SNNError
from ptq4snn.progress import for_terminal

__all__ = ["run"]


def run(args: argparse.Namespace) -> None:
    if args.bundle is None and not args.float_too:
        raise PTQ4SNNError("there is nothing to evaluate: name a bundle, or give --float")
    if args.bundle is not None and not Path(args.bundle).is_file():
        raise BundleError(f"there is no bundle {args.bundle}")
    device = load_device(args)
    model = load_model(args, weights_matter=args.float_too)
    batches = load_data(args, "test")
    results: dict[str, Any] = {}

    def measure(name: str, candidate: Any) -> None:
        if device is not None:
            candidate = candidate.to(device)
        results[name] = ptq4snn.evaluate(
            candidate, on_device(batches, device), batch_axis=args.batch_axis, progress=for_terminal()
        )
        if not args.json:
            print(f"{name}: {sentence(results[name])}")

    if args.float_too:  # before the bundle is loaded into the model
        measure("float", model)
    if args.bundle is not None:
        measure(str(args.bundle), ptq4snn.load(args.bundle, model))
    if args.json:
        print(json.dumps(results, indent=2))


def sentence(result: dict[str, Any]) -> str:
    if result["accuracy"] is None:
        return f"accuracy unknown, the {result['samples']:,} samples have no labels"
    return f"{result['accuracy']:.2f} % of {result['samples']:,} samples"
