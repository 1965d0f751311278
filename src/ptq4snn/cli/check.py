"""`ptq4snn check`: whether a bundle fits a chip; exit code 1 if it does not. Does not import torch."""

from __future__ import annotations

import argparse
import json

from ptq4snn.cli.limits import limits_of
from ptq4snn.report.terminal import show_lines
from ptq4snn.targets.verdict import check, target_of

__all__ = ["run"]

DOES_NOT_FIT = 1


def run(args: argparse.Namespace) -> int:
    found = check(args.bundle, target_of(args.target, args.flash, args.ram), limits_of(args))
    if args.json:
        print(json.dumps(found.to_dict(), indent=2))
    else:
        show_lines(found.lines())
    return 0 if found.fits else DOES_NOT_FIT
