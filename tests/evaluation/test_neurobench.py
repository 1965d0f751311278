"""The counts in NeuroBench's terms against the neurobench package on the same networks and samples.

neurobench has a folder of its own (PTQ4SNN_NEUROBENCH), and what it imports is snnTorch, which is installed.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from ptq4snn.discovery.looping import looped
from ptq4snn.evaluation.neurobench import SynapticMeter, fan_out
from ptq4snn.models.neuron import LIF
from ptq4snn.models.sew_resnet import SEWResNet
from ptq4snn.pipeline import Prepared, prepare, run
from ptq4snn.recipe import Recipe

RECIPE = Recipe.parse("nearest+squared_error+w3m4").replace(holdout=16, micro_batch=16)
T = 5


@pytest.fixture(scope="module")
def neurobench() -> Iterator[Any]:
    """Its package, for as long as these tests run."""
    pytest.importorskip("snntorch", reason="snntorch is not installed here: `make test` installs it")
    folder = os.environ.get("PTQ4SNN_NEUROBENCH", "")
    if not folder or not Path(folder, "neurobench").is_dir():
        pytest.skip("PTQ4SNN_NEUROBENCH names no folder with neurobench in it: `make test` installs it there")
    sys.path.append(folder)
    try:
        import neurobench.metrics.static
        import neurobench.metrics.workload
        import neurobench.models

        yield neurobench
    finally:
        sys.path.remove(folder)


def theirs(
    bench: Any, net: nn.Module, x: Tensor, wrap: str, neuron: type[nn.Module] | None
) -> dict[str, Any]:
    """What neurobench counts when `net` runs on the batch x."""
    model = getattr(bench.models, wrap)(net)
    if neuron is not None:
        model.add_activation_module(neuron)
    found = {
        "footprint": bench.metrics.static.Footprint()(model),
        "connection_sparsity": bench.metrics.static.ConnectionSparsity()(model),
    }
    model.register_hooks()
    with torch.no_grad():
        model(x)
    operations = bench.metrics.workload.SynapticOperations()(model, None, (x, None))
    found["activation_sparsity"] = bench.metrics.workload.ActivationSparsity()(model, None, (x, None))
    model.cleanup_hooks()
    names = {"Effective_MACs": "effective_macs", "Effective_ACs": "effective_acs", "Dense": "dense"}
    return found | {names[k]: v for k, v in operations.items()}


def compared(ours: Any, expected: dict[str, Any]) -> None:
    assert ours["footprint"] == expected["footprint"]
    assert round(ours["connection_sparsity"], 4) == expected["connection_sparsity"]
    assert ours["activation_sparsity"] == pytest.approx(expected["activation_sparsity"], abs=1e-12)
    for key in ("effective_macs", "effective_acs", "dense"):
        assert ours[key] == pytest.approx(expected[key], rel=1e-12), key


def held_out(prepared: Prepared) -> Tensor:
    (x,) = prepared.reported  # one batch, as neurobench asks call by call whether inputs are spikes
    return x


def snntorch_net() -> nn.Module:
    """Strides, groups, padding, a pool between spikes and weights, weights of zero."""
    import snntorch as snn

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.n1 = nn.Conv2d(2, 6, 3, padding=1, stride=2), leaky(0.3)
            self.b, self.n2 = nn.Conv2d(6, 4, 3, groups=2, bias=False), leaky(0.2)
            self.pool = nn.AvgPool2d(2, ceil_mode=True)
            self.c, self.n3 = nn.Linear(16, 8), leaky(0.2)
            self.d, self.n4 = nn.Linear(8, 5), leaky(0.2)
            with torch.no_grad():
                self.b.weight[self.b.weight.abs() < 0.05] = 0

        def forward(self, x: Tensor) -> tuple[Tensor, None]:
            y = self.pool(self.n2(self.b(self.n1(self.a(x)))))
            return self.n4(self.d(self.n3(self.c(y.flatten(1))))), None

    def leaky(theta: float) -> nn.Module:
        neuron: nn.Module = snn.Leaky(beta=0.9, init_hidden=True, threshold=theta)
        return neuron

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return Net().eval()


def events(n: int, largest: int) -> Tensor:
    """Counts of events [n, T, 2, 10, 10]."""
    g = torch.Generator().manual_seed(1)
    x = torch.rand((n, T, 2, 10, 10), generator=g) > 0.7
    return x.float() * torch.randint(1, largest + 1, x.shape, generator=g)


def whole(net: nn.Module, x: Tensor) -> Tensor:
    from snntorch import utils

    utils.reset(net)
    return torch.stack([net(x[:, t])[0] for t in range(T)])


@pytest.mark.parametrize("largest", [1, 3])  # events alone are spikes, counts of them are not
def test_snntorch(neurobench: Any, largest: int) -> None:
    prepared = prepare(looped(snntorch_net(), whole), events(48, largest), RECIPE)
    counts = run(prepared, RECIPE).report["summary"]["neurobench"]
    expected = theirs(neurobench, snntorch_net(), held_out(prepared), "SNNTorchModel", None)
    compared(counts["before"], expected)
    assert expected["effective_acs"] > 0 and (expected["effective_macs"] > 0)
    assert 0.02 < expected["connection_sparsity"] < 0.9


def test_a_residual_network(neurobench: Any, small_model: Any, images: Any) -> None:
    """The first layer runs once on pixels; sums of spikes are counts, multiplied by NeuroBench's rule."""
    prepared = prepare(small_model(), images(48), RECIPE)
    counts = run(prepared, RECIPE).report["summary"]["neurobench"]
    expected = theirs(neurobench, small_model(), held_out(prepared), "TorchModel", LIF)
    compared(counts["before"], expected)
    assert expected["effective_acs"] > 0 and isinstance(small_model(), SEWResNet)


def test_the_quantized_network_is_counted_by_its_integers(
    neurobench: Any, small_model: Any, images: Any
) -> None:
    """neurobench on a copy that holds the integers: zeros among them are connections that are not there."""
    prepared = prepare(small_model(), images(48), RECIPE)
    q = run(prepared, RECIPE)
    counts = q.report["summary"]["neurobench"]["after"]
    integers = torch.cat([i.weight.flatten() for i in q.integers.values()])
    assert counts["connection_sparsity"] == pytest.approx(float((integers == 0).double().mean()))
    assert counts["connection_sparsity"] > 0.05
    expected = theirs(neurobench, q.model, held_out(prepared), "TorchModel", None)
    # their layers are those inside of ours, which count pixels from 0: nothing else differs
    spiking = [n for n, p in prepared.folded.discovery.projections.items() if p.reads == "count"]
    assert len(spiking) == len(q.plan.projections) - 1
    assert counts["dense"] == expected["dense"]
    assert counts["effective_acs"] == pytest.approx(expected["effective_acs"], rel=1e-12)
    s = q.report["summary"]
    parameters = sum(s["weight_bytes"][k] for k in ("quantized", "scales", "biases"))
    assert counts["footprint"] == parameters + s["state_bytes"]["shifts"]


@pytest.mark.parametrize(
    ("layer", "shape"),
    [
        (nn.Conv2d(4, 6, 3, stride=2, padding=2, dilation=2, groups=2), (4, 9, 8)),
        (nn.Conv1d(3, 5, 4, stride=3), (3, 17)),
        (nn.Conv3d(2, 3, 2, padding=1), (2, 3, 4, 5)),
        (nn.Conv2d(2, 3, 3, padding=1, padding_mode="circular"), (2, 5, 5)),
        (nn.Linear(7, 4), (7,)),
    ],
)
def test_operations_multiplied_out(layer: Any, shape: tuple[int, ...]) -> None:
    """Without the package: ones where neither weight nor input is zero, through the layer itself."""
    g = torch.Generator().manual_seed(0)
    with torch.no_grad():
        layer.weight[torch.rand(layer.weight.shape, generator=g) < 0.3] = 0
    meter = SynapticMeter(layer)
    x = (torch.rand((6, *shape), generator=g) < 0.2).float()
    x[3:] *= -1
    meter(layer, (x,))
    again = torch.rand((2, *shape), generator=g)
    meter(layer, (again,))
    with torch.no_grad():
        kept = (layer.weight != 0).float()
        bias, layer.bias = layer.bias, None
        layer.weight.copy_(kept)
        acs, macs = float(layer((x != 0).float()).sum()), float(layer((again != 0).float()).sum())
        layer.weight.fill_(1)
        dense = float(layer(torch.ones(8, *shape)).sum())
        layer.bias = bias
    assert (meter.acs, meter.macs, meter.dense) == pytest.approx((acs, macs, dense))
    assert fan_out(layer, torch.ones_like(layer.weight).double(), shape).shape == shape
