"""Options of the commands that compare methods: compare, experiment, demo."""

from __future__ import annotations

import argparse

from ptq4snn.cli.model_options import model_options
from ptq4snn.cli.shared_options import at_least, reading_options
from ptq4snn.experiments.paper import protocol_seeds

__all__ = ["compare_options", "demo_options", "experiment_options"]


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


def demo_options(p: argparse.ArgumentParser) -> None:
    p.add_argument("--full", action="store_true", help="more ways to quantize, and all embedded samples")
    help_text = "test data of the first network: a folder that holds cifar-10-batches-bin (embedded images)"
    p.add_argument("--data", default="default", help=help_text)
    p.add_argument(
        "--out", default="ptq4snn-demo", metavar="DIR", help="folder of the bundles and pages (ptq4snn-demo)"
    )
