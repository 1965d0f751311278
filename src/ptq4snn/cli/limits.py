"""What a bundle may ask for, as the command line says it."""

from __future__ import annotations

import argparse
from dataclasses import replace

from ptq4snn.runtime import Limits

__all__ = ["limits_of"]


def limits_of(args: argparse.Namespace) -> Limits:
    """--max-memory, --max-loading and --max-additions."""
    limits = Limits()
    if args.max_memory is not None:
        limits = replace(limits, memory=args.max_memory * 2**20)
    if args.max_loading is not None:
        limits = replace(limits, loading=float(args.max_loading))
    if args.max_additions is not None:
        limits = replace(limits, additions=args.max_additions)
    return limits
