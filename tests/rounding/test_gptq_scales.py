"""The scales that GPTQ searches, against every candidate solved by itself; which ones stay."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from rounding.families import RECIPE, prepared

from ptq4snn.bridge.lattice import Lattice
from ptq4snn.numerics.nearest import round_nearest
from ptq4snn.prepared import Cache
from ptq4snn.rounding.gptq import Inverse, searched, solve
from ptq4snn.rounding.stage import round_weights


@pytest.mark.parametrize(("bits", "groups"), [(2, 1), (3, 2), (4, 1)])
def test_scales_are_those_with_the_least_loss_of_all(bits: int, groups: int) -> None:
    """Every candidate solved by itself."""
    g = torch.Generator().manual_seed(bits)
    weight = torch.randn(8, 5, 2, generator=g, dtype=torch.float64)
    x = torch.randn(groups, 10, 200, generator=g, dtype=torch.float64)
    x[:, 1] = x[:, 0] + 0.1 * x[:, 1]
    x[:, 3] = 0.0  # a column that no input reaches
    hessian = 2 / 200 * x @ x.transpose(1, 2)
    own = round_nearest(weight, bits)
    found = searched(weight, own, Inverse.of(hessian), 0.0)
    full = weight.flatten(1).abs().amax(1) / (2 ** (bits - 1) - 1)
    options = [own.scales, *(full * i / 20 for i in range(6, 21))]
    rounded = [round_nearest(weight, bits, scales=s) for s in options]
    losses = torch.stack([solve(weight, q, hessian).loss for q in rounded])
    reached = solve(weight, found, hessian).loss
    assert torch.allclose(reached, losses.amin(0), rtol=1e-9)
    assert bool((reached <= losses[0] * (1 + 1e-9)).all()) and bool((reached < losses[0]).any())


def test_scales_that_others_share_are_kept() -> None:
    p = prepared("sdt")
    recipe = RECIPE.replace(rounding="gptq", weight_scales="moments", weights=2)
    own = Lattice.of(p.folded, p.seen, recipe)
    made = round_weights(replace(p, cache=Cache()), own, recipe)
    before = {n: w.weight.scales for n, w in own.projections.items()}
    moved = {n for n, w in made.projections.items() if not w.weight.scales.equal(before[n])}
    outputs = {n for n, w in own.projections.items() if w.info.role == "output" or w.info.reads == "data"}
    assert moved and not moved & outputs
    tied = own.basis.recipe.replace(stream="shift")
    own = Lattice.of(p.folded, p.seen, tied)
    made = round_weights(replace(p, cache=Cache()), own, tied)
    for w in made.projections.values():
        if w.info.stream is not None:
            octaves = torch.log2(w.lattice / own.basis.streams[w.info.stream])
            assert torch.allclose(octaves, octaves.round(), atol=1e-9)
    jointly = own.with_scales({n: own.projections[n].weight.scales for n in moved})
    kept = round_weights(replace(p, cache=Cache()), jointly, tied)
    assert all(kept.projections[n].weight.scales.equal(own.projections[n].weight.scales) for n in moved)
