"""Outputs of the model: where and how their integers become real numbers."""

from __future__ import annotations

import torch

from ptq4snn.discovery.facts import TIME, Current, Fact, Opaque
from ptq4snn.discovery.layout import layout_of
from ptq4snn.discovery.walk import Walk

__all__ = ["leaves", "output_axis"]


def leaves(w: Walk, fact: Fact, streams: dict[str, int]) -> bool:
    """An output that cannot be turned into real numbers at the end, only where it is made."""
    return isinstance(fact, Opaque) or (isinstance(fact, Current) and output_axis(w, fact, streams) is None)


def output_axis(w: Walk, fact: Current, streams: dict[str, int]) -> int | None:
    """Channel axis, from the end, of an output made of all channels of a projection or stream in order."""
    same_stream = len({streams.get(n, n) for n in fact.projections}) == 1
    if any(len(s.projections) > 1 for s in fact.sheets) or not same_stream:
        return None
    ids = fact.sheets[0].ids % TIME
    layout = layout_of(ids)
    if len(layout.dims) > 1:
        return None
    axis = layout.dims[0] if layout.dims else ids.dim() - 1
    line = ids.movedim(axis, -1).reshape(-1, ids.shape[axis])[0]
    name = min(fact.sheets[0].projections)
    whole = torch.equal(line - w.base[name], torch.arange(w.channels[name], dtype=ids.dtype))
    return axis - ids.dim() if whole else None
