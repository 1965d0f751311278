"""The same network with thresholds and gains of 1, where the weights in front of a neuron can hold them.

A neuron that is charged by gain x and fires above theta is, with v / theta for its state, one that is charged
by (gain / theta) x and fires above 1. Several readers of NIR take one threshold for a layer only, or no gain.

    IF, LIF, I, LI   r = 1
    CubaLIF          r = tau_mem / dt, w_in = tau_syn / dt
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ptq4snn.export.nir_form.walk import Walk

__all__ = ["make_uniform"]

Array = NDArray[Any]


def make_uniform(w: Walk) -> None:
    """Every neuron behind projections that nothing else reads."""
    readers: dict[str, int] = {}
    for source, _ in w.edges:
        readers[source] = readers.get(source, 0) + 1
    for name, node in list(w.nodes.items()):
        sources = [s for s, reader in w.edges if reader == name]
        feeding = [w.nodes[s] for s in sources]
        if not _is_neuron(w, node) or not sources or any(readers[s] > 1 for s in sources):
            continue
        gain, theta = _numbers(w, node)
        by = _each_channel(gain / theta)
        if by is not None and all(hasattr(f, "weight") for f in feeding):
            for projection in feeding:
                _scale(projection, by)
            w.nodes[name] = _plain(w, node, theta)


def _is_neuron(w: Walk, node: Any) -> bool:
    lib = w.library
    return isinstance(node, (lib.IF, lib.LIF, lib.CubaLIF, lib.LI, lib.I))


def _numbers(w: Walk, node: Any) -> tuple[Array, Array]:
    """By what a step's input is multiplied beyond the canonical gain of the kind, and the threshold."""
    theta = np.asarray(getattr(node, "v_threshold", 1.0), dtype=np.float64)
    if isinstance(node, w.library.CubaLIF):
        return node.w_in.astype(np.float64) * w.dt / node.tau_syn, theta
    return node.r.astype(np.float64), theta


def _each_channel(values: Array) -> Array | None:
    """One value for each entry of the first axis; None where they differ inside of one."""
    rows = values.reshape(len(values), -1)
    return rows[:, 0] if np.array_equal(rows, np.broadcast_to(rows[:, :1], rows.shape)) else None


def _scale(node: Any, by: Array) -> None:
    """Rows of weights and biases; `q.norm` is what they were multiplied by."""
    node.weight = (node.weight * by.reshape(-1, *[1] * (node.weight.ndim - 1))).astype(np.float32)
    node.bias = (node.bias * by).astype(np.float32)
    node.metadata["q.norm"] = by


def _plain(w: Walk, node: Any, theta: Array) -> Any:
    """The neuron in units of its threshold; `q.worth` is the real number that a state of 1 stands for."""
    lib, meta, one = w.library, node.metadata, np.ones_like(node.r)
    zero = np.zeros_like(one)
    if isinstance(node, (lib.I, lib.LI)):
        return (
            lib.I(one, metadata=meta)
            if isinstance(node, lib.I)
            else lib.LI(node.tau, one, zero, metadata=meta)
        )
    meta["q.worth"] = theta
    if isinstance(node, lib.IF):
        return lib.IF(one, one, v_reset=zero, metadata=meta)
    if isinstance(node, lib.LIF):
        return lib.LIF(node.tau, one, zero, one, v_reset=zero, metadata=meta)
    w_in = (node.tau_syn.astype(np.float64) / w.dt).astype(np.float32)
    values = [node.tau_syn, node.tau_mem, node.r, zero, one]
    return lib.CubaLIF(*values, v_reset=zero, w_in=w_in, metadata=meta)
