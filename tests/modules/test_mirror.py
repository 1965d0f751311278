"""A BatchNorm with negative gains behind a max-pool, through the whole pipeline."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from oracles.numbers import known
from torch import Tensor, nn
from torch.nn import functional as F

import ptq4snn
from ptq4snn.models.neuron import LIF


class Pooled(nn.Module):
    """x[B, 2, 8, 8] -> conv -> lif -> conv -> max-pool -> bn with gains of both signs -> lif -> fc"""

    def __init__(self) -> None:
        super().__init__()
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(3)
            self.conv1, self.lif1 = nn.Conv2d(2, 6, 3, padding=1), LIF(v_threshold=0.3)
            self.conv2, self.bn = nn.Conv2d(6, 8, 3, padding=1), nn.BatchNorm2d(8)
            self.lif2, self.fc = LIF(), nn.Linear(8 * 16, 4)
            nn.init.normal_(self.bn.weight, 0.0, 1.5)
            nn.init.normal_(self.bn.bias, 0.8, 0.5)
            assert self.bn.running_mean is not None and self.bn.running_var is not None
            self.bn.running_mean.normal_(0.0, 0.2)
            self.bn.running_var.uniform_(0.05, 0.2)
        self.eval()

    def forward(self, x: Tensor) -> Tensor:
        s = self.lif1(self.conv1(x).expand(4, *x.shape[:1], 6, 8, 8))
        y = self.bn(F.max_pool2d(self.conv2(s.flatten(0, 1)), 2)).view(4, -1, 8, 4, 4)
        out: Tensor = self.fc(self.lif2(y).flatten(2)).mean(0)
        return out


@pytest.fixture(scope="module")
def samples() -> Tensor:
    return torch.randn(64, 2, 8, 8, generator=torch.Generator().manual_seed(0))


def test_integers_equal_a_recomputation(samples: Tensor) -> None:
    """sign * maxpool(|g| W x) + shift in int64 is what reaches the neuron."""
    model = Pooled()
    assert 0 < int((model.bn.weight < 0).sum()) < 8
    q = ptq4snn.quantize(model, samples, "w4m4", allocation="uniform")
    seen: dict[str, Tensor] = {}

    def hook(name: str) -> Any:
        return lambda _m, args, _out: seen.__setitem__(name, args[0])

    q.model.get_submodule("conv2").register_forward_hook(hook("spikes"))
    q.model.get_submodule("lif2").register_forward_hook(hook("current"))
    q(samples[:4])
    plan, ints = q.plan.projections["conv2"], q.integers["conv2"]
    x, w = seen["spikes"].double(), ints.weight
    acc = F.conv2d(x, w, padding=1) * 2**plan.shift + ints.bias.view(-1, 1, 1)
    pooled = F.max_pool2d(acc, 2)
    m = q.plan.mirrors["bn"]
    expected = pooled * torch.tensor(m.signs).view(-1, 1, 1) + torch.tensor(m.shifts).view(-1, 1, 1)
    assert torch.equal(seen["current"].double().flatten(0, 1), expected.double())
    assert all(s == round(s) for s in m.shifts) and set(m.signs) == {-1, 1}
    assert float(seen["current"].abs().max()) <= q.plan.neurons["lif2"].bound


def test_spikes_follow_the_float_model_and_survive_saving(samples: Tensor, tmp_path: Path) -> None:
    q = ptq4snn.quantize(Pooled(), samples, "w8m8", allocation="uniform")
    assert known(q.report["summary"]["flip_rate"]) < 0.01
    q.save(tmp_path / "net.ptq")
    again = ptq4snn.load(tmp_path / "net.ptq", Pooled())
    assert torch.equal(q(samples[:8]), again(samples[:8]))
