"""SpikingJelly networks: the pairs of each, found in whichever generation is importable.

test_spikingjelly_pairs_generations.py runs this file with each generation.
"""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path
from typing import Any

import pytest
import torch

from ptq4snn.discovery.discover import discover
from ptq4snn.discovery.folding import fold
from ptq4snn.discovery.proof import verify

spikingjelly = pytest.importorskip("spikingjelly", reason="SpikingJelly is not installed")


def load(name: str) -> Any:
    path = Path(__file__).parents[1] / "frameworks" / f"{name}.py"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


models = load("sj_models")
# neuron -> (projection, norms, state)
EXPECTED: dict[str, dict[str, tuple[str, tuple[str, ...], tuple[int, ...]]]] = {
    "conv": {
        "features.2": ("features.0", ("features.1",), (8, 12, 12)),
        "features.6": ("features.4", ("features.5",), (8, 6, 6)),
    },
    "folded": {
        "lif1": ("stem.0", ("stem.1",), (8, 12, 12)),
        "lif2": ("block.1", ("block.2",), (8, 6, 6)),
    },
    "looped": {"lif1": ("conv", ("bn",), (8, 12, 12)), "lif2": ("fc1", (), (32,))},
    "clock_driven": {"lif1": ("conv", ("bn",), (8, 12, 12)), "lif2": ("fc1", (), (32,))},
}
CLASSIFIER = {"conv": "fc", "folded": "head.1", "looped": "fc2", "clock_driven": "fc2"}
NETS = models.all_nets()


def test_the_generation_is_the_expected_one() -> None:
    folder = os.environ.get("PTQ4SNN_EXPECTED_SPIKINGJELLY")
    if folder is None:
        pytest.skip("any generation will do")
    assert Path(folder) in Path(spikingjelly.__file__).parents


@pytest.mark.parametrize("name", EXPECTED)
def test_pairs(name: str) -> None:
    if name not in NETS:
        pytest.skip("this generation of SpikingJelly has no clock_driven neurons")
    net, x = NETS[name](), models.inputs(2)
    d = discover(net, x)
    assert list(d.neurons) == list(EXPECTED[name])
    for n, (projection, norms, shape) in EXPECTED[name].items():
        info = d.neurons[n]
        assert (info.kind, info.projections, info.norms) == ("pair", (projection,), norms)
        assert (info.layout.shape, info.layout.dims, info.steps) == (shape, (0,), models.STEPS)
    assert [n.stem for n in d.neurons.values()] == [True, False]
    assert d.outputs[0].projection == CLASSIFIER[name]
    assert d.projections[CLASSIFIER[name]].role == "output"


@pytest.mark.parametrize("name", EXPECTED)
def test_folding_holds(name: str) -> None:
    if name not in NETS:
        pytest.skip("this generation of SpikingJelly has no clock_driven neurons")
    net, x = NETS[name](), models.inputs(2)
    net(x)  # with gradients: the nodes keep states that hang in a graph
    d = discover(net, x)
    verify(net, d, x)
    f = fold(net, d)
    with torch.no_grad():
        torch.testing.assert_close(f.model(x), net(x), rtol=0, atol=0.3)  # float32: a spike may flip
        torch.testing.assert_close(f.model(x), f.model(x))  # reset_net reaches the new neurons


def test_norm_layers_of_sequences_have_their_channels_on_axis_2() -> None:
    net, x = NETS["conv"](), models.inputs(2)
    (bn,) = discover(net, x).projections["features.4"].norms
    assert bn.channels == tuple(range(8))
