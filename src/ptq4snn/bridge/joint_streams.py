"""The scale of a stream, chosen together with the scales that are tied to it.

Readers' states are bridged to it, s_mem = u_c 2^k, and with `stream="shift"` so are the writers' weights,
s_w = u_c 2^j. Whole octaves change nothing, since k and j follow them; what is left to choose lies between
u_c and 2 u_c:

    min_u  sum over writers min_j E_w(W_c; u 2^j)  +  lambda_mem sum over readers min_k E_mem(V_c; u 2^k, b_c)
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from ptq4snn.bridge.joint import state_errors
from ptq4snn.bridge.projection_lattice import tied_to_stream
from ptq4snn.numerics.powers import parts_of_octave

if TYPE_CHECKING:
    from ptq4snn.assemble import Assembly

__all__ = ["joint_stream_scales"]

PARTS = parts_of_octave(12, 12)  # of an octave
TINY = 1e-30


def joint_stream_scales(assembly: Assembly, bits: Mapping[str, Tensor]) -> dict[int, Tensor]:
    """u_c [C] of every stream, by number; `bits` are the widths of all neurons' states."""
    one = assembly.recipe.coupling == "flowq"  # scale for the layer
    out = {}
    for number, u in assembly.lattice.basis.streams.items():
        states = _readers(assembly, number, u, bits)
        cost = _writers(assembly, number, u) + assembly.recipe.lambda_mem * states
        index = cost.sum(0).argmin().expand(len(u)) if one else cost.argmin(1)
        out[number] = u * PARTS[index]
    return out


def _writers(assembly: Assembly, number: int, u: Tensor) -> Tensor:
    """Errors [C, 12] of the weights that are tied to the stream, in shares of their energies."""
    total = torch.zeros(len(u), len(PARTS), dtype=torch.float64)
    if assembly.recipe.stream != "shift":
        return total
    basis = assembly.lattice.basis
    for p in assembly.lattice.projections.values():
        if p.info.stream != number or p.weight.bits is None:
            continue
        for i, part in enumerate(PARTS):
            weight, q = tied_to_stream(basis, p, u * part)
            total[:, i] += q.error(weight) / weight.square().flatten(1).sum(1).clamp_min(TINY)
    return total


def _readers(assembly: Assembly, number: int, u: Tensor, bits: Mapping[str, Tensor]) -> Tensor:
    """Least errors [C, 12] of the states bridged to the stream, in shares of their energies."""
    total = torch.zeros(len(u), len(PARTS), dtype=torch.float64)
    for name, n in assembly.lattice.neurons.items():
        if n.info.stream != number or not assembly.in_budget(name):
            continue
        table = assembly.tables[name]
        powers = torch.exp2(torch.tensor(list(table.view.ks), dtype=torch.float64))
        for i, part in enumerate(PARTS):
            errors = state_errors(table, n.scale[:, None] * part * powers, bits[name])  # [c, K]
            total[:, i].index_add_(0, n.info.source_channel, _least(errors, assembly.coupling(name)))
    return total


def _least(errors: Tensor, coupling: str) -> Tensor:
    """Errors [C] of the best exponents of errors [C, K], or of the one that suits all channels best."""
    return errors.amin(1) if coupling == "bridge" else errors[:, errors.sum(0).argmin()]
