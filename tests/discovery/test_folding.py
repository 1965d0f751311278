"""Folding against float64, and that its check catches folds that are wrong."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from ptq4snn.discovery import folding
from ptq4snn.discovery.discover import discover
from ptq4snn.discovery.folding import fold
from ptq4snn.discovery.proof import verify
from ptq4snn.errors import FoldingError
from ptq4snn.models.neuron import LIF, PLIF

T = 3


class Two(nn.Module):
    """conv -> bn -> PLIF -> conv -> bn -> bn -> LIF -> mean -> fc"""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.conv1, self.bn1, self.lif1 = nn.Conv2d(2, 4, 3), nn.BatchNorm2d(4), PLIF(3.0)
        self.conv2, self.bn2, self.bn3 = nn.Conv2d(4, 6, 3, bias=False), nn.BatchNorm2d(6), nn.BatchNorm2d(6)
        self.lif2, self.fc = LIF(decay_input=False), nn.Linear(6, 3)
        for m in self.modules():
            if isinstance(m, nn.BatchNorm2d):
                assert m.running_mean is not None and m.running_var is not None
                nn.init.normal_(m.weight, 1.0, 0.5)
                nn.init.normal_(m.bias, 0.3, 0.3)
                nn.init.normal_(m.running_mean, 0.0, 0.2)
                nn.init.uniform_(m.running_var, 0.05, 0.4)
        self.eval()

    def forward(self, x: Tensor) -> Any:
        s = self.lif1(self.bn1(self.conv1(x)).expand(T, *x.shape[:1], 4, 6, 6))
        y = self.bn3(self.bn2(self.conv2(s.flatten(0, 1))))
        y = self.lif2(y.view(T, -1, 6, 4, 4))
        return self.fc(y.mean((-2, -1))).mean(0)


X = torch.randn(4, 2, 8, 8, generator=torch.Generator().manual_seed(1))


def spikes(model: nn.Module, x: Tensor) -> dict[str, Tensor]:
    seen: dict[str, Tensor] = {}
    for name in ("lif1", "lif2"):
        model.get_submodule(name).register_forward_hook(
            lambda _m, _a, out, name=name: seen.__setitem__(name, out)
        )
    with torch.no_grad():
        model(x)
    return seen


def test_folded_spikes_are_equal() -> None:
    model = Two()
    d = discover(model, X)
    verify(model, d, X)
    expected = spikes(Two().double(), X.double())
    found = spikes(fold(model, d, torch.float64).model, X.double())
    for name in expected:
        assert 0.02 < float(expected[name].mean()) < 0.6
        assert torch.equal(expected[name], found[name])


def test_folded_weights_by_hand() -> None:
    model = Two()
    f = fold(model, discover(model, X), torch.float64)
    weight, bias = model.conv2.weight.double(), torch.zeros(6, dtype=torch.float64)
    for bn in (model.bn2, model.bn3):
        assert bn.running_mean is not None and bn.running_var is not None
        g = bn.weight.double() / torch.sqrt(bn.running_var.double() + bn.eps)
        weight = weight * g.view(-1, 1, 1, 1)
        bias = (bias - bn.running_mean.double()) * g + bn.bias.double()
    torch.testing.assert_close(f.weight("conv2"), weight.detach(), rtol=1e-12, atol=0)
    torch.testing.assert_close(f.bias("conv2"), bias.detach(), rtol=1e-12, atol=1e-14)


def test_the_gain_goes_into_the_projection() -> None:
    model = Two()
    d = discover(model, X)
    f = fold(model, d)
    plain = replace(d, specs={n: replace(s, gain=torch.ones_like(s.gain)) for n, s in d.specs.items()})
    without = fold(model, plain)
    torch.testing.assert_close(f.weight("conv1"), without.weight("conv1") / 3)
    assert torch.equal(f.weight("conv2"), without.weight("conv2"))
    assert float(f.specs["lif1"].gain) == 1.0 and float(d.specs["lif1"].gain) == pytest.approx(
        1 / 3, rel=1e-6
    )
    assert torch.equal(f.weight("fc"), model.fc.weight)


def test_the_original_is_not_touched() -> None:
    model = Two()
    before = {k: v.clone() for k, v in model.state_dict().items()}
    fold(model, discover(model, X))
    assert all(torch.equal(v, before[k]) for k, v in model.state_dict().items())
    assert isinstance(model.bn1, nn.BatchNorm2d) and isinstance(model.lif1, PLIF)


@pytest.mark.parametrize("neuron", ["lif1", "lif2"])
def test_a_wrong_fold_is_caught_and_located(monkeypatch: pytest.MonkeyPatch, neuron: str) -> None:
    wrong = {"lif1": "conv1", "lif2": "conv2"}[neuron]
    right = folding._folded_norms

    def bad(model: nn.Module, name: str, norms: Any) -> Any:
        weight, bias, mirror = right(model, name, norms)
        return weight, None if name == wrong else bias, mirror

    model = Two()
    d = discover(model, X)
    monkeypatch.setattr(folding, "_folded_norms", bad)
    with pytest.raises(FoldingError, match=rf"the neuron '{neuron}' differs.*\['{wrong}'\]"):
        verify(model, d, X)


def test_a_wrong_leak_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    model = Two()
    d = discover(model, X)
    specs = {n: replace(s, leak=s.leak * 0.9) if n == "lif2" else s for n, s in d.specs.items()}
    with pytest.raises(FoldingError, match="'lif2'"):
        verify(model, replace(d, specs=specs), X)


def test_norm_without_statistics() -> None:
    model = Two()
    model.bn2 = nn.BatchNorm2d(6, track_running_stats=False)
    with pytest.raises(FoldingError, match="'bn2' keeps no running statistics"):
        fold(model, discover(model, X))


def test_a_gain_shared_with_an_output_stays_in_the_neuron() -> None:
    class Open(Two):
        def forward(self, x: Tensor) -> Any:
            y = self.bn1(self.conv1(x))
            s = self.lif1(y.expand(T, *y.shape))
            return self.fc(self.lif2(self.conv2(s.flatten(0, 1)).view(T, -1, 6, 4, 4)).mean((-2, -1))).mean(
                0
            ), y

    model = Open()
    d = discover(model, X)
    verify(model, d, X)
    f = fold(model, d)
    assert float(f.specs["lif1"].gain) == pytest.approx(1 / 3, rel=1e-6)
    with torch.no_grad():
        torch.testing.assert_close(f.model(X)[1], model(X)[1])
