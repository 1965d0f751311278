"""Which axes of a neuron's state are its channels."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # a bundle's plan is read without torch
    from torch import Tensor

__all__ = ["Layout"]


@dataclass(frozen=True)
class Layout:
    """One sample's state has `shape`; the channel changes along the axes `dims` and along no other.

    A convolution's neuron has shape (C, H, W) and dims (0,), a token neuron (N, C) and (1,), attention heads
    (heads, N, d) and (0, 2).
    """

    shape: tuple[int, ...]
    dims: tuple[int, ...]

    @property
    def channels(self) -> int:
        return prod(self.shape[d] for d in self.dims)

    @property
    def elements(self) -> int:
        """State values of one channel of one sample."""
        return prod(self.shape) // max(1, self.channels)

    def broadcast(self, per_channel: Tensor) -> Tensor:
        """A value per channel [C], shaped to multiply a state [B, ...] of any resolution."""
        return per_channel.reshape([n if d in self.dims else 1 for d, n in enumerate(self.shape)])

    def by_channel(self, x: Tensor) -> Tensor:
        """A state [B, ...] as [B, C, positions]."""
        others = [d for d in range(len(self.shape)) if d not in self.dims]
        order = [0, *(d + 1 for d in self.dims), *(d + 1 for d in others)]
        return x.permute(order).reshape(x.shape[0], self.channels, -1)

    def to_dict(self) -> dict[str, Any]:
        return {"shape": list(self.shape), "dims": list(self.dims)}

    @classmethod
    def from_dict(cls, d: dict[str, Any]) -> Layout:
        return cls(tuple(d["shape"]), tuple(d["dims"]))
