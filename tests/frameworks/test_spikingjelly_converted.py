"""A ResNet20 through SpikingJelly's own ann2snn (benchmarks/converted_resnet.py), from ReLUs to integers."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

pytest.importorskip("spikingjelly.activation_based")
from frameworks.zoo_cases import _without_extras
from oracles.frameworks import runs_everywhere, seeded

_without_extras()
from spikingjelly.activation_based import ann2snn  # noqa: E402

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
if hasattr(ann2snn, "RateCodingRecipe"):
    pytest.skip("the converter of 2.0.0 takes no F.pad", allow_module_level=True)


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    return import_module("converted_resnet")


def relu_network(script: Any) -> nn.Module:
    """With statistics as training leaves them."""
    net: nn.Module = seeded(0, script.ResNet20).eval()
    g = torch.Generator().manual_seed(1)
    for m in net.modules():
        if isinstance(m, nn.BatchNorm2d):
            m.weight.data = torch.rand(m.num_features, generator=g) + 0.5
            m.bias.data = torch.randn(m.num_features, generator=g) * 0.1
            m.running_var = torch.rand(m.num_features, generator=g) * 0.3 + 0.1
    return net.requires_grad_(False)


def images(count: int) -> Tensor:
    return torch.randn(count, 3, 8, 8, generator=torch.Generator().manual_seed(2))


def test_more_steps_come_nearer_to_the_relu_network(script: Any) -> None:
    """As 1 / T where nothing is clipped; and neurons that start at half a threshold are nearer at once."""
    ann, x = relu_network(script), images(6)
    expected = ann(x)
    size, errors = float((expected - expected.mean(0)).std()), {}
    for start, steps in ((0.5, 16), (0.5, 128), (0.0, 16), (0.0, 128)):
        net = script.OverTime(script.converted(ann, x, "Max", start), steps)
        errors[start, steps] = float((net(x) - expected).abs().mean()) / size
    assert errors[0.0, 128] < errors[0.0, 16] / 4, errors
    for steps in (16, 128):
        assert errors[0.5, steps] < errors[0.0, steps] / 1.5, errors


def test_it_is_quantized_as_it_comes(script: Any, tmp_path: Path) -> None:
    ann, x = relu_network(script), images(8)
    net = script.OverTime(script.converted(ann, x), 5)
    q = runs_everywhere(net, x, tmp_path, "paper+nearest+uniform+w4m4", None)
    assert len(q.plan.neurons) == 19 and sum("shortcut" in n for n in q.plan.projections) == 9
    assert {n.v_rest for n in q.plan.neurons.values()} == {0.5}
