"""What the user's forward asks its layers for, beside calling them: settings, devices, shapes, weights."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import ptq4snn
from ptq4snn.errors import UnsupportedOperation
from ptq4snn.models.neuron import LIF

X = torch.rand(48, 1, 6, 6, generator=torch.Generator().manual_seed(0))


class Net(nn.Module):
    """x[B, 1, 6, 6] for four steps; `ask` does something with the model before it runs."""

    def __init__(self, ask: Callable[[Any, Tensor], Tensor]) -> None:
        super().__init__()
        self.ask = ask
        self.a, self.n = nn.Conv2d(1, 4, 3, padding=1), LIF(v_threshold=0.5)
        self.b, self.m, self.c = nn.Linear(144, 24), LIF(v_threshold=0.5), nn.Linear(24, 3)
        g = torch.Generator().manual_seed(1)
        with torch.no_grad():
            for p in self.parameters():
                p.copy_(torch.randn(p.shape, generator=g) * (0.4 if p.dim() > 1 else 0.1))
        self.eval()

    def forward(self, x: Tensor) -> Tensor:
        h = self.n(self.a(self.ask(self, x)).expand(4, *x.shape[:1], 4, 6, 6))
        out: Tensor = self.c(self.m(self.b(h.flatten(2)))).mean(0)
        return out


ASKS: dict[str, Callable[[Any, Tensor], Tensor]] = {
    "sizes": lambda m, x: x.view(-1, m.a.in_channels, 6, 6)[..., : m.b.out_features],
    "settings": lambda m, x: x if m.a.kernel_size == (3, 3) and m.a.padding == (1, 1) else x * 2,
    "a device": lambda m, x: x.to(m.a.weight.device),
    "a type": lambda m, x: x.to(m.b.weight.dtype),
    "a shape": lambda m, x: x[..., : m.b.weight.shape[1]],
    "the first parameter": lambda m, x: x.to(next(m.parameters()).device),
}


@pytest.mark.parametrize("ask", ASKS)
def test_what_is_asked_of_a_layer(ask: str, tmp_path: Path) -> None:
    net = Net(ASKS[ask])
    q = ptq4snn.quantize(net, X, "fast+w8m8")
    expected = ptq4snn.quantize(Net(lambda m, x: x), X, "fast+w8m8")
    assert q.plan == expected.plan and torch.equal(q(X), expected(X))
    q.save(tmp_path / "m.ptq")
    assert np.array_equal(ptq4snn.runtime.load(tmp_path / "m.ptq")(X.numpy()), q(X).numpy())
    assert torch.equal(ptq4snn.load(tmp_path / "m.ptq", net)(X), q(X))


def test_the_weight_is_given_in_real_numbers() -> None:
    net = Net(lambda m, x: x)
    q = ptq4snn.quantize(net, X, "fast+w8m8")
    real, layer = net.c.weight, q.model.get_submodule("c")
    found: Any = layer.weight
    step = torch.tensor(q.plan.projections["c"].scales).view(-1, 1)
    assert found.shape == real.shape and found.dtype == real.dtype
    assert bool(((found - real).abs() <= 0.51 * step).all())


def test_what_a_neuron_has_not_is_one_sentence() -> None:
    with pytest.raises(UnsupportedOperation, match=r"'v_threshold'.*keep such settings in the model itself"):
        ptq4snn.quantize(Net(lambda m, x: x * m.n.v_threshold), X, "fast+w8m8")
