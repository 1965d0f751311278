"""Channel numbers are as large as the tensors they are of, and the same at every position: axes along which
nothing changes are kept once, with stride 0, and computed with once."""

from __future__ import annotations

from torch import Tensor

from ptq4snn.discovery.facts import TIME

__all__ = ["channels_of", "spread", "thin"]

SMALL = 2**16  # numbers that are not worth it


def thin(ids: Tensor, keep: int | None = None) -> Tensor:
    """`ids` with size 1 along the axes that are kept once, but for the axis `keep`."""
    for d, stride in enumerate(ids.stride()):
        if stride == 0 and d != keep and ids.shape[d] > 1:
            ids = ids.narrow(d, 0, 1)
    return ids


def channels_of(ids: Tensor) -> Tensor:
    """The channel of every element, without its time step."""
    return (thin(ids) % TIME).expand(ids.shape)


def spread(ids: Tensor) -> Tensor:
    """The same numbers, in as little memory as axes along which nothing changes allow."""
    if ids.numel() <= SMALL:
        return ids
    small = thin(ids)
    for d in range(small.dim()):
        first = small.narrow(d, 0, 1) if small.shape[d] else small
        small = first if bool((small == first).all()) else small
    return small.clone().expand(ids.shape)
