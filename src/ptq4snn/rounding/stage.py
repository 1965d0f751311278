"""Weight rounding as a stage of its own: integers that change the network's outputs least."""

from __future__ import annotations

from torch import Tensor

from ptq4snn.bridge.lattice import Lattice
from ptq4snn.prepare import Prepared
from ptq4snn.recipe import Recipe

__all__ = ["round_weights"]


def round_weights(prepared: Prepared, lattice: Lattice, recipe: Recipe) -> dict[str, Tensor]:
    """Integers [C, ...] of every projection that is rounded otherwise than to nearest, for its scales."""
    raise NotImplementedError
