"""Options that several commands have, and how their values are read."""

from __future__ import annotations

import argparse
from collections.abc import Callable

__all__ = ["at_least", "kernel_options", "limit_options", "numbers", "reading_options"]


def limit_options(p: argparse.ArgumentParser) -> None:
    group = p.add_argument_group("limits: a bundle that asks for more is refused before it is loaded")
    group.add_argument(
        "--max-memory", type=at_least(1), metavar="MIB", help="to load it and run one sample (8192)"
    )
    group.add_argument("--max-loading", type=at_least(1), metavar="SECONDS", help="to load it (10)")
    group.add_argument(
        "--max-additions", type=at_least(1), metavar="N", help="of one sample, all its steps (10^13)"
    )


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
        help="auto, numpy, native, or an instruction set: scalar, avx2, avx512bw, avx512vnni, avx512 "
        "(auto: the fastest there is)",
    )
    group.add_argument("--steps", type=at_least(1), metavar="N", help="steps of a still image (as trained)")


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
