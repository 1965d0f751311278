"""Which bundle a report is of: the report holds the SHA-256 of the bundle's file. Needs no torch."""

from __future__ import annotations

import hashlib
import warnings
from pathlib import Path
from typing import Any

from ptq4snn.errors import BundleError

__all__ = ["BUNDLE", "REPORT", "bundle_hash", "check_report"]

REPORT = ".report"  # and .json or .html, beside the bundle
BUNDLE = "bundle"  # the key of a report
PIECE = 2**20


def bundle_hash(path: Path) -> str:
    """SHA-256 of the whole file, in hexadecimal digits."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while piece := file.read(PIECE):
            digest.update(piece)
    return digest.hexdigest()


def check_report(report: dict[str, Any], file: Path, bundle: Path) -> None:
    """Refuse the report in `file` unless it is of `bundle`; one that was written before reports said so is
    taken with a warning."""
    if BUNDLE not in report:
        warnings.warn(
            f"{file} was written by an older version and does not say which bundle it is of: quantize again",
            stacklevel=3,
        )
    elif report[BUNDLE] != bundle_hash(bundle):
        raise BundleError(
            f"{file} is the report of another bundle than {bundle}: quantize again, or bring back its own"
        )
