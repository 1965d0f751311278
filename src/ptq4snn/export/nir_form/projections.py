"""Projections with real weights: what one integer step of them is worth."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ptq4snn.network.program import Project

if TYPE_CHECKING:
    from ptq4snn.export.nir_form.walk import Walk

__all__ = ["projection_node"]


def projection_node(
    w: Walk, op: Project, shape: tuple[int, ...], summed: bool
) -> tuple[Any, tuple[int, ...]]:
    """The node of a projection that reads `shape`, and the shape that it makes. One behind a sum over time
    runs at every step in NIR, and what it makes is summed: each step has its share of the bias."""
    n = w.model.projections[op.name]
    if n.rescale is not None:
        raise w.refuse(op, "it writes a stream or a chain, whose saturation NIR has no words for")
    if n.bias.ndim == 2:
        raise w.refuse(op, "it has a bias for each position, and a NIR node has one for each channel")
    channels = n.weight.shape[0]
    step = (n.unit * 2.0**n.shift).reshape(-1, *[1] * (n.weight.ndim - 1))
    weight = n.weight.astype(np.float64) * step
    if n.input is not None and not np.array_equal(n.input.zeros, n.input.inside):
        raise w.refuse(op, "the model adds a constant to its input, of which a NIR graph knows nothing")
    if n.input is not None:
        scales = np.broadcast_to(n.input.scales, (n.weight.shape[1] * op.groups,))
        each = np.repeat(scales.reshape(op.groups, -1), channels // op.groups, axis=0)  # [Cout, Cin / G]
        weight = weight / each.reshape(*each.shape, *[1] * (n.weight.ndim - 2))
    bias = n.bias.astype(np.float64) * n.unit / (w.model.program.steps if summed else 1)
    meta = {
        "q.bits": np.array([n.bits]), "q.integers": n.weight, "q.scales": n.unit * 2.0**n.shift,
        "q.bias": n.bias, "q.shift": np.array([n.shift]),
    }  # fmt: skip
    if n.input is not None:
        meta |= {"q.input_scales": n.input.scales, "q.input_zeros": n.input.zeros}
    weight, bias = weight.astype(np.float32), bias.astype(np.float32)
    if op.window is None:
        if len(shape) != 1 or op.groups != 1:
            raise w.refuse(op, "it works on every position of its own, as NIR's matrices do not")
        return w.library.Affine(weight, bias, metadata=meta), (channels,)
    window = op.window
    if window.before != window.after:
        raise w.refuse(op, "its padding is not the same on both sides")
    if len(window.size) == 1:
        size, stride, padding, dilation = (
            v[0] for v in (window.size, window.stride, window.before, window.dilation)
        )
        node = w.library.Conv1d(int(size), weight, stride, padding, dilation, op.groups, bias, metadata=meta)
    elif len(window.size) == 2:
        node = w.library.Conv2d(
            window.size, weight, window.stride, window.before, window.dilation, op.groups, bias, metadata=meta
        )
    else:
        raise w.refuse(op, f"NIR has no convolution of {len(window.size)} axes")
    return node, (channels, *window.out_size)
