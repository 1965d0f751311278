"""Outputs of the model: where and how their integers become real numbers."""

from __future__ import annotations

import torch
from torch import Tensor

from ptq4snn.discovery.channel_layout import layout_of
from ptq4snn.discovery.facts import TIME, Current, Fact, Opaque
from ptq4snn.discovery.walk import Walk

__all__ = ["leaves", "output_axis", "summed_with"]


def leaves(w: Walk, fact: Fact, streams: dict[str, int]) -> bool:
    """An output that cannot be turned into real numbers at the end, only where it is made."""
    return isinstance(fact, Opaque) or (isinstance(fact, Current) and output_axis(w, fact, streams) is None)


def output_axis(w: Walk, fact: Current, streams: dict[str, int]) -> int | None:
    """Channel axis, from the end, of an output made of all channels, in order, of a projection, of a stream,
    or of several projections that are summed."""
    if any(len(s.projections) > 1 for s in fact.sheets):
        return None
    names = [min(s.projections) for s in fact.sheets]
    same_stream = len({streams.get(n, n) for n in names}) == 1
    if not same_stream and any(n in streams for n in names):
        return None
    axes = {_whole_axis(w, s.ids % TIME, n) for s, n in zip(fact.sheets, names, strict=True)}
    return axes.pop() if len(axes) == 1 else None


def _whole_axis(w: Walk, ids: Tensor, name: str) -> int | None:
    """The axis, from the end, along which `ids` are all channels of a projection in order."""
    layout = layout_of(ids)
    if len(layout.dims) > 1:
        return None
    axis = layout.dims[0] if layout.dims else ids.dim() - 1
    line = ids.movedim(axis, -1).reshape(-1, ids.shape[axis])[0]
    whole = torch.equal(line - w.base[name], torch.arange(w.channels[name], dtype=ids.dtype))
    return axis - ids.dim() if whole else None


def summed_with(w: Walk, name: str, streams: dict[str, int]) -> tuple[str, ...]:
    """All output projections that are summed with `name`, itself among them; none where it stands alone."""
    for fact in w.outputs:
        if isinstance(fact, Current) and name in fact.projections and len(fact.projections) > 1:
            return () if leaves(w, fact, streams) or name in streams else tuple(sorted(fact.projections))
    return ()
