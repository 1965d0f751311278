"""snnTorch networks: the pairs, what is read out, and that folding holds although its spikes are float32."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from ptq4snn.discovery import folding
from ptq4snn.discovery.discover import discover
from ptq4snn.discovery.proof import verify
from ptq4snn.errors import FoldingError

snn = pytest.importorskip("snntorch", reason="snnTorch is not installed")


@pytest.fixture(scope="module", autouse=True)
def own_list_of_neurons() -> Iterator[None]:
    """snnTorch lists every neuron of the process: other tests find the list as it was."""
    listed = list(snn.SpikingNeuron.instances)
    yield
    snn.SpikingNeuron.instances[:] = listed


def load(name: str) -> Any:
    path = Path(__file__).parents[1] / "frameworks" / f"{name}.py"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


models = load("snn_models")
# neuron -> (projection, norms, state, factor)
EXPECTED: dict[str, dict[str, tuple[str, tuple[str, ...], tuple[int, ...], float]]] = {
    "fc": {"lif1": ("fc1", (), (64,), 1.0), "lif2": ("fc2", (), (10,), 1.0)},
    "conv": {
        "lif1": ("conv1", ("bn1",), (6, 6, 6), 1.0),
        "lif2": ("conv2", (), (8, 3, 3), 0.25),
        "lif3": ("fc", (), (10,), 1.0),
    },
    "recording": {"lif1": ("fc1", (), (40,), 1.0), "lif2": ("fc2", (), (10,), 1.0)},
    "readout": {"lif1": ("fc1", (), (48,), 1.0), "readout": ("fc2", (), (10,), 1.0)},
}


@pytest.mark.parametrize("name", EXPECTED)
def test_pairs(name: str) -> None:
    net, x = models.ALL[name](), models.inputs(2)
    d = discover(net, x)
    assert list(d.neurons) == list(EXPECTED[name])
    for n, (projection, norms, shape, factor) in EXPECTED[name].items():
        info = d.neurons[n]
        assert (info.kind, info.projections, info.norms) == ("pair", (projection,), norms)
        assert (info.layout.shape, info.factor, info.steps) == (shape, factor, models.STEPS)
        assert info.readout == (n == "readout" or (name, n) == ("recording", "lif2"))
    stems = [n.name for n in d.neurons.values() if n.stem]
    assert stems == [next(iter(EXPECTED[name]))]
    assert d.unused_neurons == () and d.unused_projections == ()


@pytest.mark.parametrize("name", EXPECTED)
def test_folding_holds_in_float64(name: str) -> None:
    net, x = models.ALL[name](), models.inputs(2)
    verify(net, discover(net, x), x)
    with torch.no_grad():
        net(x)  # the model still runs in its own type, and can be looked at again
    verify(net, discover(net, x), x)


def test_a_wrong_fold_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    net, x = models.ALL["conv"](), models.inputs(2)
    d = discover(net, x)
    right = folding._folded_norms
    monkeypatch.setattr(
        folding,
        "_folded_norms",
        lambda m, n, norms: (right(m, n, norms)[0] * (1.02 if n == "conv1" else 1), None, None),
    )
    with pytest.raises(FoldingError, match="'lif1'"):
        verify(net, d, x)


def test_counts_at_the_output() -> None:
    d = discover(models.ALL["fc"](), models.inputs(2))
    assert [o.projection for o in d.outputs] == [None] and d.neurons["lif2"].last
    assert d.projections["fc2"].spike_sources == ("lif1",)


def test_a_state_that_hangs_in_a_graph_is_let_go() -> None:
    net, x = models.ALL["conv"](), models.inputs(2)
    net(x)  # with gradients: init_hidden keeps a membrane that hangs in the graph
    d = discover(net, x)
    verify(net, d, x)
    assert d.neurons["lif1"].steps == models.STEPS
