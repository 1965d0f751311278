"""SpikingJelly models through the whole pipeline: they keep their habits and compute integers."""

from __future__ import annotations

import importlib.util
import warnings
from pathlib import Path

import pytest
import torch
from oracles.numbers import known

pytest.importorskip(
    "spikingjelly", reason="runs from test_spikingjelly_generations.py, one generation at a time"
)

from spikingjelly.activation_based import functional

import ptq4snn
from ptq4snn.modules.integer import IntegerCore

spec = importlib.util.spec_from_file_location("sj_models", Path(__file__).with_name("sj_models.py"))
assert spec is not None and spec.loader is not None
sj_models = importlib.util.module_from_spec(spec)
spec.loader.exec_module(sj_models)
NETS = sj_models.all_nets()


@pytest.fixture(params=sorted(NETS))
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def quantized(name: str) -> ptq4snn.QuantizedModel:
    return ptq4snn.quantize(NETS[name](), sj_models.inputs(64), "w8m8", allocation="uniform")


def test_spikes_hardly_change_at_eight_bits(name: str) -> None:
    q = quantized(name)
    assert 0 < known(q.report["summary"]["flip_rate"]) < 0.01
    assert all(isinstance(q.core(n), IntegerCore) for n in q.plan.neurons)
    assert {n.kind for n in q.plan.neurons.values()} == {"pair"}


def test_reset_net_is_all_that_is_needed(name: str) -> None:
    q, x = quantized(name), sj_models.inputs(8, seed=1)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        functional.reset_net(q)
        first = q(x)
        functional.reset_net(q)
        again = q(x)
    assert torch.equal(first, again)


def test_state_lives_on_without_reset(name: str) -> None:
    q, x = quantized(name), sj_models.inputs(8, seed=1)
    functional.reset_net(q)
    first, second = q(x), q(x)
    model = NETS[name]()
    functional.reset_net(model)
    carries = not torch.equal(model(x), model(x))  # a model may reset itself in forward
    assert torch.equal(first, second) is not carries


def test_bundle_gives_the_same_bits(name: str, tmp_path: Path) -> None:
    q, x = quantized(name), sj_models.inputs(8, seed=2)
    q.save(tmp_path / "net.ptq")
    again = ptq4snn.load(tmp_path / "net.ptq", NETS[name]())
    functional.reset_net(q)
    functional.reset_net(again)
    assert torch.equal(q(x), again(x))


def test_original_is_untouched(name: str) -> None:
    model, x = NETS[name](), sj_models.inputs(8)
    functional.reset_net(model)
    before = model(x)
    ptq4snn.quantize(model, sj_models.inputs(64), "w4m4", allocation="uniform")
    functional.reset_net(model)
    assert torch.equal(before, model(x))
