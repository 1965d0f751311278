"""The commands and their options. Commands are imported when they run, so that --help stays light."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from importlib import import_module
from typing import NoReturn

from ptq4snn import __version__
from ptq4snn.experiments.paper import protocol_seeds
from ptq4snn.extras import needed_by
from ptq4snn.overrides import COUPLINGS
from ptq4snn.words import ALLOCATIONS, OBJECTIVES, ROUNDINGS, STATE_ROUNDINGS

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


def model_options(p: argparse.ArgumentParser) -> None:
    group = p.add_argument_group("model and data")
    group.add_argument(
        "--model",
        metavar="NAME",
        help="a name of `ptq4snn models`, package.module:factory, or a file NET.nir (the embedded default)",
    )
    group.add_argument("--checkpoint", metavar="FILE", help="weights: .safetensors, or a saved state_dict")
    group.add_argument("--classes", type=at_least(1), metavar="N", help="outputs of the built-in model")
    group.add_argument("--T", type=at_least(1), metavar="N", help="time steps of the built-in model")
    group.add_argument(
        "--data",
        metavar="DATA",
        help="default or nmnist-sample (embedded), a data set as NAME:PATH or its PATH, a .npy, .npz or "
        ".safetensors file, or package.module:factory (an embedded sample where one fits the model)",
    )
    group.add_argument("--batch-axis", type=int, default=0, metavar="N", help="batch axis of the samples (0)")
    group.add_argument(
        "--steps", type=at_least(1), metavar="T", help="the model takes one step a call: call it T times"
    )
    group.add_argument(
        "--loop",
        metavar="NAME",
        help="the model takes one step a call: package.module:function of (net, x) runs the sequence",
    )
    group.add_argument("--device", metavar="NAME", help="cpu, cuda, cuda:1, mps ... (cpu)")
    nir = p.add_argument_group("of a NIR file")
    nir.add_argument("--dt", type=float, metavar="S", help="length of a step, in the file's unit of time")
    nir.add_argument("--reset", choices=["subtract", "zero"], help="how its neurons were trained to reset")
    nir.add_argument(
        "--readout", choices=["sum", "mean", "last", "none"], default="sum", help="of its output (sum)"
    )
    nir.add_argument(
        "--rule", choices=["euler", "rockpool"], default="euler", help="its equations: rockpool's, or (euler)"
    )


def quantize_options(p: argparse.ArgumentParser) -> None:
    model_options(p)
    group = p.add_argument_group("recipe")
    group.add_argument(
        "--recipe",
        default="w4m4",
        metavar="FILE",
        help="words joined by +, such as fast+w4m2, or a .toml file (w4m4)",
    )
    group.add_argument("--weights", type=float, metavar="BITS", help="2 to 8, or 32: float weights (4)")
    group.add_argument("--membrane", type=float, metavar="BITS", help="average bits of a state, 2 to 8 (4)")
    group.add_argument("--coupling", choices=COUPLINGS, help="where a state's scale comes from (bridge)")
    group.add_argument("--allocation", choices=ALLOCATIONS, help="how bits are given to channels (fit)")
    group.add_argument("--rounding", choices=ROUNDINGS, help="how weights are rounded (sbc)")
    group.add_argument("--iterations", type=int, metavar="N", help="steps of adaround and brecq (20,000)")
    group.add_argument("--objective", choices=OBJECTIVES, help="what a good state scale is (auto)")
    group.add_argument("--state-rounding", choices=STATE_ROUNDINGS, help="of a state each step (even)")
    group.add_argument(
        "--calibration", type=int, metavar="N", help="calibration samples that are used at most (1024)"
    )
    group.add_argument("--seed", type=int, metavar="N", help="of everything drawn at random (0)")
    goal = p.add_argument_group("goal: the smallest model that keeps it, instead of --weights and --membrane")
    goal.add_argument(
        "--max-drop", type=float, metavar="POINTS", help="loses so much accuracy at most; data with labels"
    )
    goal.add_argument(
        "--agreement", type=float, metavar="PERCENT", help="decides like the float model on so many samples"
    )
    p.add_argument(
        "--out", metavar="FILE", help="the bundle; its report: FILE.report.json and .html (model.ptq)"
    )
    p.add_argument(
        "--work", metavar="DIR", help="keeps what is finished of the rounding or of a search, to go on from"
    )


def inspect_options(p: argparse.ArgumentParser) -> None:
    p.add_argument(
        "bundle", nargs="?", metavar="MODEL.ptq", help="what this bundle asks for, not a model's neurons"
    )
    model_options(p)
    limit_options(p)


def limit_options(p: argparse.ArgumentParser) -> None:
    group = p.add_argument_group("limits: a bundle that asks for more is refused before it is loaded")
    group.add_argument(
        "--max-memory", type=at_least(1), metavar="MIB", help="to load it and run one sample (8192)"
    )
    group.add_argument(
        "--max-additions", type=at_least(1), metavar="N", help="of one sample at one step (10^12)"
    )


def evaluate_options(p: argparse.ArgumentParser) -> None:
    p.add_argument("bundle", nargs="?", metavar="MODEL.ptq", help="bundle that quantize wrote")
    p.add_argument(
        "--float",
        dest="float_too",
        action="store_true",
        help="evaluate the float model too: --model and --checkpoint as they were quantized",
    )
    model_options(p)
    reading_options(p)


def reading_options(p: argparse.ArgumentParser) -> None:
    group = p.add_argument_group("reading")
    group.add_argument(
        "--batch-size", type=at_least(1), default=64, metavar="N", help="samples at a time (64)"
    )
    group.add_argument(
        "--workers", type=at_least(0), default=0, metavar="N", help="processes that read a data set ahead (0)"
    )
    group.add_argument(
        "--limit",
        type=at_least(1),
        metavar="N",
        help="only N samples: the first, or N at random where classes are sorted (all)",
    )


def kernel_options(p: argparse.ArgumentParser) -> None:
    group = p.add_argument_group("runtime")
    group.add_argument(
        "--kernels",
        default="auto",
        metavar="NAME",
        help="auto, numpy, native, or an instruction set: scalar, avx2, avx512 (auto: the fastest there is)",
    )
    group.add_argument("--steps", type=at_least(1), metavar="N", help="steps of a still image (as trained)")


def run_options(p: argparse.ArgumentParser) -> None:
    p.add_argument("bundle", metavar="MODEL.ptq", help="bundle that quantize wrote")
    p.add_argument(
        "input",
        metavar="INPUT",
        help="samples: a .npy, .npz or .safetensors file, default, a data set as NAME:PATH, or "
        "package.module:factory",
    )
    p.add_argument("-o", "--out", metavar="FILE", help="write the outputs to this .npy file")
    p.add_argument("--top", type=at_least(1), default=3, metavar="N", help="classes shown of a sample (3)")
    kernel_options(p)
    p.add_argument("--threads", type=at_least(1), default=1, metavar="N", help="the results are the same (1)")
    p.add_argument("--stream", action="store_true", help="one time step a call, states kept packed")
    p.add_argument("--state", metavar="FILE", help="go on from this state (with --stream)")
    p.add_argument("--save-state", metavar="FILE", help="write the state after the last step (with --stream)")
    limit_options(p)


def bench_options(p: argparse.ArgumentParser) -> None:
    p.add_argument("bundle", metavar="MODEL.ptq", help="bundle that quantize wrote")
    p.add_argument("--input", metavar="FILE", help="a .npy, .npz or .safetensors file (random samples)")
    p.add_argument("--batch", type=numbers, default=[1, 16], metavar="N,N", help="samples a call (1,16)")
    p.add_argument("--threads", type=numbers, default=[1], metavar="N,N", help="threads (1)")
    p.add_argument("--seconds", type=at_least(1), default=1, metavar="N", help="of each measurement (1)")
    kernel_options(p)


def export_options(p: argparse.ArgumentParser) -> None:
    p.add_argument(
        "bundle",
        metavar="MODEL.ptq",
        help="bundle that quantize wrote; with --to ptq a NIR file with one",
    )
    p.add_argument(
        "--to",
        required=True,
        choices=["c", "onnx", "nir", "ptq"],
        help="what is written: C99, ONNX, NIR, or the bundle that a NIR file holds",
    )
    p.add_argument("--out", required=True, metavar="PATH", help="the file, or the folder of C's sources")
    p.add_argument(
        "--form",
        default="step",
        choices=["step", "scan", "unrolled"],
        help="of ONNX: one step with its state, or the sequence by a Scan or written out (step)",
    )
    p.add_argument("--opset", type=at_least(1), default=21, metavar="N", help="of ONNX: 21 to 26 (21)")
    p.add_argument(
        "--qonnx",
        action="store_true",
        help="of ONNX: a step with Quant nodes, for FINN and hls4ml; plain chains only",
    )
    p.add_argument("--dt", type=float, default=1e-4, metavar="S", help="of NIR: length of a step (1e-4)")
    p.add_argument("--name", metavar="NAME", help="begins all names in C and the files' (the bundle's)")
    p.add_argument("--section", metavar="NAME", help="the linker's section of the weights, such as .flash2")
    p.add_argument(
        "--weights",
        default="c",
        choices=["c", "bin", "mem", "hex"],
        help="in the source, or beside it: raw, for $readmemh, Intel HEX (c)",
    )
    p.add_argument("--steps", type=at_least(1), metavar="T", help="the most of a sequence (65,536)")
    p.add_argument(
        "--path",
        default="event",
        choices=["event", "dense", "auto"],
        help="loops over spikes, over all inputs, or by what --samples show (event)",
    )
    p.add_argument(
        "--samples", metavar="FILE", help="inputs, .npy, .npz or .safetensors: for --path auto, and counts"
    )


def check_options(p: argparse.ArgumentParser) -> None:
    p.add_argument("bundle", metavar="MODEL.ptq", help="bundle that quantize wrote")
    p.add_argument(
        "--target",
        required=True,
        metavar="NAME",
        help="xylo, xylo-audio3, speck, loihi2, spinnaker2, hls4ml, spiker+, microcontroller, a .toml file",
    )
    p.add_argument("--flash", type=at_least(0), metavar="BYTES", help="of the microcontroller")
    p.add_argument("--ram", type=at_least(0), metavar="BYTES", help="of the microcontroller")


def summary_options(p: argparse.ArgumentParser) -> None:
    p.add_argument("out", metavar="OUT", help="a bundle, its report, or a JSON file of compare or experiment")
    p.add_argument("--all", action="store_true", help="all layers, not only those with most flips")


def report_options(p: argparse.ArgumentParser) -> None:
    p.add_argument("run_of", metavar="OUT", help="a bundle, its report, or JSON of compare or experiment")
    p.add_argument("--out", metavar="FILE", help="the page (OUT.report.html)")
    p.add_argument(
        "--add", nargs="+", default=[], metavar="FILE", help="JSON of compare and experiment to show too"
    )
    p.add_argument("--figures", metavar="DIR", help="write all figures as SVG and PNG")


def figure_options(p: argparse.ArgumentParser) -> None:
    p.add_argument("name", nargs="?", metavar="NAME", help="which; without it all are listed")
    p.add_argument("run_of", nargs="?", metavar="RUN", help="a bundle, its report, or an experiment's JSON")
    p.add_argument("--out", metavar="FILE", help=".svg, .png, .pdf, or .json for the spec (NAME.svg)")
    p.add_argument("--neuron", nargs="+", default=[], metavar="NAME", help="draw these neurons only")


def compare_options(p: argparse.ArgumentParser) -> None:
    p.add_argument("named", nargs="?", metavar="MODEL", help="the same as --model")
    model_options(p)
    group = p.add_argument_group("methods")
    group.add_argument(
        "--methods",
        nargs="+",
        required=True,
        metavar="METHOD",
        help="recipes such as gptq+reuse+uniform+w4m4, .toml files, or LABEL=RECIPE",
    )
    group.add_argument(
        "--baseline",
        metavar="METHOD",
        help="what the others are compared with (each: m32 with weights rounded alike)",
    )
    protocol_options(p, "runs/compare", [0])
    p.add_argument("--csv", metavar="FILE", help="write one line a run")
    p.add_argument("--latex", metavar="FILE", help="write the table as LaTeX, for \\usepackage{booktabs}")


def protocol_options(p: argparse.ArgumentParser, out: str, seeds: list[int]) -> None:
    group = p.add_argument_group("protocol")
    group.add_argument(
        "--seeds",
        nargs="+",
        type=at_least(0),
        default=seeds,
        metavar="N",
        help=f"each draws calibration samples ({' '.join(map(str, seeds))})",
    )
    group.add_argument("--calibration", type=at_least(1), metavar="N", help="samples drawn (1024)")
    group.add_argument("--iterations", type=at_least(1), metavar="N", help="of adaround and brecq (20,000)")
    group.add_argument("--first-bits", type=int, metavar="BITS", help="of the first projection's weights (8)")
    group.add_argument("--last-bits", type=int, metavar="BITS", help="of the classifier's weights (8)")
    reading_options(p)
    cluster_options(p)
    p.add_argument("--out", default=out, metavar="DIR", help=f"finished runs, which are reused ({out})")


def cluster_options(p: argparse.ArgumentParser) -> None:
    group = p.add_argument_group("cluster")
    group.add_argument(
        "--ray",
        metavar="ADDRESS",
        help="runs are tasks of this Ray cluster: HOST:PORT, auto, or local for the cores of this machine",
    )
    group.add_argument(
        "--ray-cpus", type=at_least(1), default=1, metavar="N", help="cores and threads of each run there (1)"
    )


def experiment_options(p: argparse.ArgumentParser) -> None:
    p.add_argument("name", nargs="?", metavar="NAME", help="which; without it all are listed")
    p.add_argument("--list", action="store_true", help="list the experiments")
    model_options(p)
    protocol_options(p, "runs/experiments", protocol_seeds())


def at_least(least: int) -> Callable[[str], int]:
    """A whole number that is not smaller."""

    def number(text: str) -> int:
        if not text.isascii() or not text.isdigit() or int(text) < least:
            raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of {least} or more")
        return int(text)

    return number


def numbers(text: str) -> list[int]:
    """Whole numbers of 1 or more, separated by commas."""
    return [at_least(1)(part) for part in text.split(",")]


def models_options(p: argparse.ArgumentParser) -> None:
    p.add_argument("name", nargs="?", metavar="NAME", help="one of them")


def train_options(p: argparse.ArgumentParser) -> None:
    p.add_argument("recipe", metavar="RECIPE", help="a name of `ptq4snn models`, or a .toml file")
    p.add_argument("--data", required=True, metavar="DATA", help="the data set: NAME:PATH, or its PATH")
    p.add_argument("--test", metavar="DATA", help="test samples (the data set's test split)")
    p.add_argument(
        "--out", metavar="DIR", help="weights, card, and what a killed run goes on from (runs/RECIPE)"
    )
    p.add_argument("--license", metavar="TEXT", help="of the weights, for their card")
    p.add_argument(
        "--seed", type=at_least(0), metavar="N", help="of everything drawn at random (the recipe's)"
    )
    p.add_argument(
        "--workers", type=at_least(0), default=0, metavar="N", help="processes that read ahead (0)"
    )
    p.add_argument("--threads", type=at_least(1), metavar="N", help="of the arithmetic (all cores)")
    p.add_argument("--compile", action="store_true", help="faster, by torch.compile; needs a C++ compiler")


def demo_options(p: argparse.ArgumentParser) -> None:
    p.add_argument("--full", action="store_true", help="more ways to quantize, and all embedded samples")
    help_text = "test data of the first network: a folder that holds cifar-10-batches-bin (embedded images)"
    p.add_argument("--data", default="default", help=help_text)
    p.add_argument(
        "--out", default="ptq4snn-demo", metavar="DIR", help="folder of the bundles and pages (ptq4snn-demo)"
    )
