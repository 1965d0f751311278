"""Which modules are projections, and where their channels are."""

from __future__ import annotations

from torch import nn

__all__ = ["PROJECTIONS", "channel_axis", "is_projection"]

PROJECTIONS = (nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d)
CONVOLUTIONS = {1: nn.Conv1d, 2: nn.Conv2d, 3: nn.Conv3d}


def is_projection(module: nn.Module) -> bool:
    return isinstance(module, PROJECTIONS)


def channel_axis(module: nn.Module) -> int:
    """Axis of the output channels, counted from the end: -1 for Linear, -3 for Conv2d."""
    if isinstance(module, nn.Linear):
        return -1
    return next(-1 - rank for rank, kind in CONVOLUTIONS.items() if isinstance(module, kind))
