"""Where the bundle beside a report can go. Does not import torch."""

from __future__ import annotations

from ptq4snn.report.deployment import Deployment
from ptq4snn.report.finished_run import REPORT, Run

__all__ = ["ways_beside"]


def ways_beside(found: Run) -> Deployment | None:
    """None where the bundle is not there."""
    bundle = found.path.with_name(found.path.name.removesuffix(REPORT))
    if bundle == found.path or not bundle.is_file():
        return None
    from ptq4snn.targets.ways_out import ways_out  # here: what reads no bundle needs no NumPy

    return ways_out(bundle)
