"""The noise floor: what 0.01 % of weight noise does to the float model, and that it is taken back."""

from __future__ import annotations

from typing import Any

import torch

from ptq4snn.evaluation import noise
from ptq4snn.evaluation.noise import jittered, noise_floor
from ptq4snn.modules.readout import divergence


def test_weights_move_by_a_share_of_their_spread_and_come_back(residual: Any) -> None:
    folded = residual.prepared.folded
    names = list(folded.discovery.projections)
    before = {n: folded.weight(n).clone() for n in names}
    with jittered(folded):
        for n in names:
            moved = (folded.weight(n) - before[n]).double()
            ratio = float(moved.std() / before[n].double().std())
            assert 0.5e-4 < ratio < 2e-4, n
    assert all(torch.equal(folded.weight(n), before[n]) for n in names)


def test_the_floor_is_that_of_the_jittered_model(residual: Any, monkeypatch: Any) -> None:
    p = residual.prepared
    monkeypatch.setattr(noise, "JITTER", 0.05)  # a small network needs more to decide otherwise
    p.cache.noise = None
    kl, agreement = noise_floor(p)
    x = torch.cat(list(p.reported), p.batch_axis)
    with torch.no_grad():
        expected = p.readout(p.folded.model(x))
        with jittered(p.folded):
            found = p.readout(p.folded.model(x))
    assert (kl, agreement) == divergence(expected, found)
    assert kl > 0
    p.cache.noise = None


def test_the_report_has_it(residual: Any) -> None:
    floor = residual.model.report["summary"]["noise_floor"]
    assert 0 <= floor["agreement"] <= 1
    assert floor["kl"] is not None
