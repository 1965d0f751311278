"""Where the bundle beside a report can go. Does not import torch."""

from __future__ import annotations

import argparse

from ptq4snn.report.deployment import Deployment
from ptq4snn.report.finished_run import REPORT, Run

__all__ = ["ways_beside"]


def ways_beside(found: Run, args: argparse.Namespace) -> Deployment | None:
    """None where the bundle is not there, or asks for more than the limits that were given."""
    bundle = found.path.with_name(found.path.name.removesuffix(REPORT))
    if bundle == found.path or not bundle.is_file():
        return None
    from ptq4snn.cli.limits import limits_of  # here: what reads no bundle needs no NumPy
    from ptq4snn.targets.ways_out import ways_out

    return ways_out(bundle, limits_of(args))
