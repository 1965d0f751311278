"""The commands and their options. Commands are imported when they run, so that --help stays light."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from importlib import import_module
from typing import NoReturn

from ptq4snn import __version__
from ptq4snn.cli.bundle_options import (
    bench_options,
    check_options,
    export_options,
    figure_options,
    report_options,
    run_options,
    summary_options,
)
from ptq4snn.cli.model_options import (
    evaluate_options,
    inspect_options,
    models_options,
    quantize_options,
    train_options,
)
from ptq4snn.cli.study_options import compare_options, demo_options, experiment_options
from ptq4snn.extras import needed_by

__all__ = ["build_parser"]

Run = Callable[[argparse.Namespace], int | None]  # the exit code, where it is not 0


class Parser(argparse.ArgumentParser):
    """Mistakes are one sentence, like all other errors."""

    def error(self, message: str) -> NoReturn:
        print(f"ptq4snn: error: {message}; see {self.prog} --help", file=sys.stderr)
        sys.exit(2)


def build_parser() -> argparse.ArgumentParser:
    parser = Parser(
        prog="ptq4snn",
        description="Quantize the weights and membrane states of a trained spiking neural network.",
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"ptq4snn {__version__}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True, parser_class=Parser)
    for name, fill, summary in (
        ("quantize", quantize_options, "quantize a model, write the bundle and its report"),
        ("inspect", inspect_options, "show every neuron and what feeds it, or what a bundle asks for"),
        ("evaluate", evaluate_options, "measure the accuracy of a bundle"),
        ("run", run_options, "run a bundle on an array of samples, as integers and without torch"),
        ("bench", bench_options, "measure speed and memory of a bundle, and how near they are to the peak"),
        ("export", export_options, "write a bundle as C for microcontrollers, ONNX or NIR"),
        ("check", check_options, "tell whether a bundle fits a chip, and which recipe would"),
        ("summary", summary_options, "show a finished run on one screen"),
        ("report", report_options, "make an HTML page of a finished run"),
        ("figure", figure_options, "draw a figure of the paper from a finished run"),
        ("compare", compare_options, "quantize by several methods under one protocol, in one table"),
        ("experiment", experiment_options, "run a table or figure of the paper on your model and data"),
        ("models", models_options, "list the built-in models, or tell all about one"),
        ("train", train_options, "train a built-in model, or your own, by a recipe"),
        ("demo", demo_options, "quantize two embedded networks in several ways: tables, speed, a page"),
    ):
        command = commands.add_parser(name, help=summary, description=summary, allow_abbrev=False)
        fill(command)
        command.add_argument("--json", action="store_true", help="print JSON, and nothing else, to stdout")
        command.set_defaults(run=later(name))
    return parser


def later(name: str) -> Run:
    """The command's `run`, imported when it is called."""

    def run(args: argparse.Namespace) -> int | None:
        with needed_by(f"ptq4snn {name}"):
            code: int | None = import_module(f"ptq4snn.cli.{name}").run(args)
        return code

    return run
