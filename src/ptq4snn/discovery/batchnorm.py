"""BatchNorms, with and without a border.

A BatchNorm that pads (BNAndPad of RepConv) surrounds its output by what it makes of 0, its own shift:

    gain x + shift inside,  shift on the border    =    (gain x, padded with zeros)  +  shift everywhere

So its gain is folded into the projection in front, a border of zeros stays in its place, and its shift, the
same everywhere, goes on through the projections of the chain (discovery/chains.py).
"""

from __future__ import annotations

from typing import Any

from torch import nn

from ptq4snn.discovery.editing import ChannelAffine

__all__ = ["batch_norm", "border", "is_norm", "left_of_norm"]


def border(module: nn.Module) -> int:
    """Pixels that a BatchNorm adds on every side, by the usual names: a `bn` and its `pad_pixels`."""
    pixels = getattr(module, "pad_pixels", 0)
    padded = isinstance(pixels, int) and isinstance(getattr(module, "bn", None), nn.BatchNorm2d)
    return pixels if padded else 0


def is_norm(module: nn.Module) -> bool:
    known = isinstance(module, (nn.modules.batchnorm._BatchNorm, ChannelAffine))
    return known or border(module) > 0


def batch_norm(module: nn.Module) -> Any:
    """The BatchNorm itself, of one that pads the one inside."""
    return module.bn if border(module) else module


def left_of_norm(module: nn.Module) -> nn.Module:
    """What stands in a norm's place once it is folded: nothing, or a border of zeros."""
    pixels = border(module)
    return nn.ZeroPad2d(pixels) if pixels else nn.Identity()
