"""Which bundle a report is of: the report holds the SHA-256 of the bundle's file. Needs no torch."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

from ptq4snn.errors import BundleError
from ptq4snn.hashing import file_digest

__all__ = ["BUNDLE", "REPORT", "check_report"]

REPORT = ".report"  # and .json or .html, beside the bundle
BUNDLE = "bundle"  # the key of a report


def check_report(report: dict[str, Any], file: Path, bundle: Path) -> None:
    """Refuse the report in `file` unless it is of `bundle`; one that was written before reports said so is
    taken with a warning."""
    if BUNDLE not in report:
        warnings.warn(
            f"{file} was written by an older version and does not say which bundle it is of: quantize again",
            stacklevel=3,
        )
    elif report[BUNDLE] != file_digest(bundle):
        raise BundleError(
            f"{file} is the report of another bundle than {bundle}: quantize again, or bring back its own"
        )
