"""Which axes of a neuron's state are its channels, from the channel numbers of its elements."""

from __future__ import annotations

from torch import Tensor

from ptq4snn.network.state_layout import Layout

__all__ = ["channel_ids", "layout_of"]


def layout_of(ids: Tensor) -> Layout:
    """Layout of one sample's state from the channel number of each of its elements."""
    dims = tuple(d for d in range(ids.dim()) if not bool((ids == ids.select(d, 0).unsqueeze(d)).all()))
    return Layout(tuple(ids.shape), dims)


def channel_ids(layout: Layout, ids: Tensor) -> Tensor:
    """The channel number of every channel [C]."""
    return layout.by_channel(ids.unsqueeze(0))[0, :, 0]
