"""Options of the commands that take a model: quantize, inspect, evaluate, models, train."""

from __future__ import annotations

import argparse

from ptq4snn.cli.shared_options import at_least, limit_options, reading_options
from ptq4snn.overrides import COUPLINGS
from ptq4snn.words import ALLOCATIONS, OBJECTIVES, ROUNDINGS, STATE_ROUNDINGS

__all__ = [
    "evaluate_options",
    "inspect_options",
    "model_options",
    "models_options",
    "quantize_options",
    "train_options",
]


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
    group.add_argument(
        "--device", metavar="NAME", help="cpu, cuda, cuda:1 ... (cpu); not mps, which has no float64"
    )
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
    limit_options(p)


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
