"""Options of the commands that take a bundle: run, bench, export, check, summary, report, figure."""

from __future__ import annotations

import argparse

from ptq4snn.cli.shared_options import at_least, kernel_options, limit_options, numbers

__all__ = [
    "bench_options",
    "check_options",
    "export_options",
    "figure_options",
    "report_options",
    "run_options",
    "summary_options",
]


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
    limit_options(p)


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
    limit_options(p)


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
    limit_options(p)


def summary_options(p: argparse.ArgumentParser) -> None:
    p.add_argument("out", metavar="OUT", help="a bundle, its report, or a JSON file of compare or experiment")
    p.add_argument("--all", action="store_true", help="all layers, not only those with most flips")
    limit_options(p)


def report_options(p: argparse.ArgumentParser) -> None:
    p.add_argument("run_of", metavar="OUT", help="a bundle, its report, or JSON of compare or experiment")
    p.add_argument("--out", metavar="FILE", help="the page (OUT.report.html)")
    p.add_argument(
        "--add", nargs="+", default=[], metavar="FILE", help="JSON of compare and experiment to show too"
    )
    p.add_argument("--figures", metavar="DIR", help="write all figures as SVG and PNG")
    limit_options(p)


def figure_options(p: argparse.ArgumentParser) -> None:
    p.add_argument("name", nargs="?", metavar="NAME", help="which; without it all are listed")
    p.add_argument("run_of", nargs="?", metavar="RUN", help="a bundle, its report, or an experiment's JSON")
    p.add_argument("--out", metavar="FILE", help=".svg, .png, .pdf, or .json for the spec (NAME.svg)")
    p.add_argument("--neuron", nargs="+", default=[], metavar="NAME", help="draw these neurons only")
