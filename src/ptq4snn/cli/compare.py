"""`ptq4snn compare`: methods of quantization on one model, under one protocol, in one table."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from ptq4snn.errors import PTQ4SNNError
from ptq4snn.experiments.methods import Method, find_baseline, parse_methods
from ptq4snn.files import check_target, write_whole
from ptq4snn.schema.comparison_types import RunResult
from ptq4snn.team import from_environment, number_here

__all__ = ["changed_fields", "name_model", "print_run", "run"]

CHANGES = ("iterations", "calibration", "first_bits", "last_bits")  # options that are fields of a recipe


def run(args: argparse.Namespace) -> None:
    changes = changed_fields(args)
    methods = parse_methods(args.methods, changes)  # a misspelt one must not cost the others' time
    if args.baseline is not None:
        find_baseline(methods, args.baseline)
    name_model(args)
    for option in ("csv", "latex"):
        if getattr(args, option) is not None:
            check_target(getattr(args, option), f"--{option}")

    from ptq4snn.cli.inputs import load_cluster, load_data, load_device, load_whole_model
    from ptq4snn.experiments.compare import compare
    from ptq4snn.experiments.comparison_tables import latex, raw_csv, text_table
    from ptq4snn.progress import for_terminal

    with from_environment(args.device) as team:
        comparison = compare(
            load_whole_model(args),
            load_data(args, "calibration"),
            load_data(args, "test", args.batch_size, args.workers, args.limit),
            methods,
            args.seeds,
            folder=args.out,
            baseline=args.baseline,
            limit=args.limit,
            batch_axis=args.batch_axis,
            device=load_device(args),
            progress=for_terminal(),
            report=print_run,
            cluster=load_cluster(args),
            team=team,
        )
    if not team.leads:
        return
    if args.csv is not None:
        write_whole(Path(args.csv), raw_csv(comparison))
    if args.latex is not None:
        write_whole(Path(args.latex), latex(comparison))
    if args.json:
        print(json.dumps(comparison.to_dict(), indent=2))
    else:
        print("\n".join(text_table(comparison)))
        if team.size > 1:
            print(f"{team.size} processes shared the work")


def changed_fields(args: argparse.Namespace) -> dict[str, Any]:
    """What options change in every recipe."""
    options = {name: getattr(args, name) for name in CHANGES}
    return {name: value for name, value in options.items() if value is not None}


def name_model(args: argparse.Namespace) -> None:
    """The model may be named with or without --model."""
    if args.named is not None and args.model is not None:
        raise PTQ4SNNError(
            f"the model is named twice, {args.named!r} and --model {args.model!r}: name it once"
        )
    args.model = args.named or args.model


def print_run(method: Method, seed: int | None, result: RunResult, stored: bool) -> None:
    """One line on stderr for each run as it is known, by the first of the processes that share it."""
    if number_here():
        return
    seconds = result["seconds"]["quantize"] + result["seconds"]["evaluate"]
    end = "stored" if stored else f"{seconds:.0f} s"
    draw = "" if seed is None else f" seed {seed}"
    print(f"{method.label}{draw}: {result['score']:.2f} %, {end}", file=sys.stderr, flush=True)
