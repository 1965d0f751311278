"""Networks that Rockpool writes as NIR files: read, and compared with Rockpool's own forward."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from oracles.frameworks import framework, runs_everywhere, seeded
from torch import Tensor

import ptq4snn
from ptq4snn.errors import PTQ4SNNError

nir = pytest.importorskip("nir")
rockpool = framework("rockpool")

from rockpool.nn.combinators import Sequential  # noqa: E402
from rockpool.nn.modules.torch import ExpSynTorch, LIFNeuronTorch, LIFTorch, LinearTorch  # noqa: E402
from rockpool.nn.modules.torch.nir import to_nir  # noqa: E402

DT = 2e-3
pytestmark = pytest.mark.filterwarnings("ignore:nirtorch.extract_nir_graph:DeprecationWarning")
ONE = torch.tensor(1.0)  # spike a step; NIR does not say how many there may be
X = (torch.rand(24, 20, 9, generator=torch.Generator().manual_seed(0)) < 0.4).float()


def with_currents() -> Any:
    taus = torch.linspace(5e-3, 30e-3, 16)
    return Sequential(
        LinearTorch((9, 16), has_bias=True),
        LIFTorch((16,), tau_mem=taus, tau_syn=10e-3, dt=DT, max_spikes_per_dt=ONE),
        LinearTorch((16, 5), has_bias=False),
        LIFTorch((5,), tau_mem=20e-3, tau_syn=5e-3, threshold=0.7, dt=DT, max_spikes_per_dt=ONE),
    )


def without_currents() -> Any:
    return Sequential(
        LinearTorch((9, 16), has_bias=False),
        LIFNeuronTorch((16,), tau_mem=8e-3, threshold=0.9, dt=DT, max_spikes_per_dt=ONE),
        LinearTorch((16, 5), has_bias=False),
        LIFNeuronTorch((5,), tau_mem=20e-3, dt=DT, max_spikes_per_dt=ONE),
    )


def with_a_readout() -> Any:
    return Sequential(
        LinearTorch((9, 16), has_bias=False),
        LIFTorch((16,), tau_mem=8e-3, tau_syn=10e-3, dt=DT, max_spikes_per_dt=ONE),
        LinearTorch((16, 5), has_bias=False),
        ExpSynTorch((5,), tau=15e-3, dt=DT),
    )


def written(build: Any, folder: Path) -> tuple[Any, Path]:
    """The network, and the file that Rockpool's own exporter makes of it."""
    net = seeded(0, build)
    graph = to_nir(net, torch.zeros(1, 4, 9))
    for node in graph.nodes.values():
        if isinstance(node, nir.LI):
            node.tau = node.tau.detach()  # Rockpool leaves it in its graph, and NIR cannot write that
    nir.write(folder / "net.nir", graph)
    return net, folder / "net.nir"


def own(net: Any, x: Tensor) -> Tensor:
    net.reset_state()
    out: Tensor = net(x)[0].detach()
    return out


@pytest.mark.parametrize("build", [with_currents, without_currents])
def test_every_spike_is_rockpools(build: Any, tmp_path: Path) -> None:
    net, file = written(build, tmp_path)
    expected = own(net, X)
    assert 0.02 < float(expected.mean()) < 0.9
    model = ptq4snn.from_nir(file, dt=DT, rule="rockpool", readout="none")
    assert torch.equal(model(X), expected)
    assert not torch.equal(ptq4snn.from_nir(file, dt=DT, reset="subtract", readout="none")(X), expected)


def test_the_readout_is_rockpools(tmp_path: Path) -> None:
    net, file = written(with_a_readout, tmp_path)
    model = ptq4snn.from_nir(file, dt=DT, rule="rockpool", readout="none")
    np.testing.assert_allclose(model(X).numpy(), own(net, X).numpy(), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("build", [with_currents, without_currents, with_a_readout])
def test_quantized_and_run(build: Any, tmp_path: Path) -> None:
    _, file = written(build, tmp_path)
    readout = "last" if build is with_a_readout else "sum"
    model = ptq4snn.from_nir(file, dt=DT, rule="rockpool", readout=readout)
    runs_everywhere(model, X, tmp_path, time_axis=1)


def test_the_command_line_knows_the_rule(tmp_path: Path) -> None:
    from ptq4snn.cli.main import main

    _, file = written(with_currents, tmp_path)
    np.savez(tmp_path / "x.npz", x=X.numpy())
    asked = ["--model", str(file), "--data", str(tmp_path / "x.npz"), "--dt", str(DT)]
    assert main(["inspect", *asked, "--rule", "rockpool"]) == 0
    with pytest.raises(PTQ4SNNError, match="rule is 'xylo': give one of euler, rockpool"):
        ptq4snn.from_nir(file, dt=DT, rule="xylo")


def test_its_modules_are_sent_to_nir() -> None:
    class Net(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.n = torch.nn.Linear(9, 16), LIFTorch((16,), dt=DT).to_torch()

        def forward(self, x: Tensor) -> Tensor:
            out: Tensor = self.n(self.a(x))[0]
            return out

    with pytest.raises(PTQ4SNNError, match=r"'n' is rockpool's LIFTorch; export the network to NIR"):
        ptq4snn.quantize(Net(), X)
