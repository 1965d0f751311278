"""What labels may be; no torch."""

from __future__ import annotations

__all__ = ["VOID"]

VOID = 255  # label of pixels that are not scored
