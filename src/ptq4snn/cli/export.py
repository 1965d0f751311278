"""`ptq4snn export`: a bundle as sources for another machine, as ONNX, or as NIR; without torch."""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ptq4snn import export
from ptq4snn.cli.bundle_data import read_array
from ptq4snn.cli.limits import limits_of
from ptq4snn.errors import PTQ4SNNError

if TYPE_CHECKING:
    from ptq4snn.export.c99.export import CSource

__all__ = ["run"]

# options that belong to one way out, and their defaults
OF_C = {"name": None, "section": None, "weights": "c", "path": "event", "samples": None}
OF_ONNX = {"form": "step", "opset": 21, "qonnx": False}
OF_NIR = {"dt": 1e-4}


def run(args: argparse.Namespace) -> None:
    _refuse_others(args)
    if args.to == "c":
        _c(args)
        return
    if args.to == "onnx":
        export.onnx(
            args.bundle, args.out, form=args.form, steps=args.steps, opset=args.opset, qonnx=args.qonnx,
            limits=limits_of(args),
        )  # fmt: skip
    elif args.to == "nir":
        export.nir(args.bundle, args.out, dt=args.dt, limits=limits_of(args))
    else:
        export.bundle_of(args.bundle, args.out, limits=limits_of(args))
    size = Path(args.out).stat().st_size
    print(json.dumps({"file": args.out, "bytes": size}) if args.json else f"wrote {args.out}, {size:,} bytes")


def _refuse_others(args: argparse.Namespace) -> None:
    """An option that would be without effect is a mistake."""
    own: dict[str, dict[str, Any]] = {"c": OF_C, "onnx": OF_ONNX, "nir": OF_NIR}
    for way, options in own.items():
        for name, usual in options.items():
            if args.to != way and getattr(args, name) != usual:
                raise PTQ4SNNError(f"--{name} is for --to {way}, not for --to {args.to}: leave it out")
    if args.steps is not None and args.to not in ("c", "onnx"):
        raise PTQ4SNNError(f"--steps is not for --to {args.to}: leave it out")


def _c(args: argparse.Namespace) -> None:
    samples = None if args.samples is None else read_array(args.samples)
    source = export.c(
        args.bundle, args.out, args.name, section=args.section, weights=args.weights, steps=args.steps,
        path=args.path, samples=samples, limits=limits_of(args),
    )  # fmt: skip
    files = [str(Path(args.out) / file) for file in source.files]
    if args.json:
        print(json.dumps(facts(source, files), indent=2))
        return
    print(f"wrote {', '.join(files)}")
    for line in source.facts:
        print(line)


def facts(source: CSource, files: list[str]) -> dict[str, object]:
    figures = {**asdict(source.figures), "flash": source.figures.flash, "ram": source.figures.ram}
    return {"name": source.name, "files": files, "figures": figures, "paths": source.paths}
