"""Evaluation and search on the native kernels: the same numbers as on the simulation."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import ptq4snn
from ptq4snn.models.neuron import LIF
from ptq4snn.models.sew_resnet import SEWResNet
from ptq4snn.modules import running
from ptq4snn.runtime.engine import Runtime
from ptq4snn.runtime.loading import Family, model_of
from ptq4snn.runtime.native import available

pytestmark = pytest.mark.skipif(not any(available()), reason="the native kernels are not built")


def network() -> SEWResNet:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(3)
        model = SEWResNet(widths=(8, 16), blocks=(1, 1), strides=(1, 2), stem=8, neuron=LIF)
        for m in model.modules():
            if isinstance(m, torch.nn.BatchNorm2d):
                m.weight.data.fill_(4.0)
                m.bias.data.fill_(0.8)
    return model.eval()


@pytest.fixture(scope="module")
def images() -> torch.Tensor:
    return torch.rand(40, 3, 8, 8, generator=torch.Generator().manual_seed(1))


@pytest.fixture(scope="module")
def quantized(images: torch.Tensor) -> ptq4snn.QuantizedModel:
    return ptq4snn.quantize(network(), images, "fast", calibration=32)


class Counter:
    """Counts the samples that a runtime sees."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.samples = 0
        inner = running.Packed.tensors

        def tensors(packed: running.Packed, model: ptq4snn.QuantizedModel, x: torch.Tensor) -> Any:
            self.samples += len(x)
            return inner(packed, model, x)

        monkeypatch.setattr(running.Packed, "tensors", tensors)


def without_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(running, "available", tuple)
    running._made.clear()


def scores(q: ptq4snn.QuantizedModel, images: torch.Tensor) -> Any:
    labels = torch.arange(len(images)) % 10
    found: Any = ptq4snn.evaluate(q, [(images[:25], labels[:25]), (images[25:], labels[25:])])
    del found["throughput"]
    return found


def test_scores_are_those_of_the_simulation(
    quantized: ptq4snn.QuantizedModel, images: torch.Tensor, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = Counter(monkeypatch)
    packed = scores(quantized, images)
    assert seen.samples == len(images) + running.PROOF
    without_kernels(monkeypatch)
    assert scores(quantized, images) == packed


def test_the_search_finds_the_same_plan(images: torch.Tensor, monkeypatch: pytest.MonkeyPatch) -> None:
    settings: dict[str, Any] = {"calibration": 32, "rounding": "nearest", "beta_grid": (0.0, 0.6)}
    seen = Counter(monkeypatch)
    packed = ptq4snn.quantize(network(), images, "paper", **settings)
    assert seen.samples > 0
    without_kernels(monkeypatch)
    simulated = ptq4snn.quantize(network(), images, "paper", **settings)
    assert packed.plan == simulated.plan
    assert packed.report["trials"] == simulated.report["trials"]


def test_another_plan_gets_other_kernels(quantized: ptq4snn.QuantizedModel, images: torch.Tensor) -> None:
    first = running._packed(quantized)
    assert running._packed(quantized) is first
    other = ptq4snn.quantize(network(), images, "fast", membrane=2, calibration=32)
    quantized_again = ptq4snn.quantize(network(), images, "fast", calibration=32)
    running.fastest(quantized_again)(images[:2])
    quantized_again.use(other.plan)
    found = running.fastest(quantized_again)(images)
    assert torch.equal(found[0], other(images))


def test_a_model_changed_by_hand_runs_itself(images: torch.Tensor) -> None:
    q = ptq4snn.quantize(network(), images, "fast", calibration=32)
    q.model.T = 7  # type: ignore[assignment]
    assert torch.equal(running.fastest(q)(images), q(images))


def test_float64_and_other_sizes_run_in_the_simulation(
    quantized: ptq4snn.QuantizedModel, images: torch.Tensor
) -> None:
    run = running.fastest(quantized)
    assert torch.equal(run(images.double()), quantized(images.double()))
    large = torch.rand(2, 3, 12, 12, generator=torch.Generator().manual_seed(2))
    assert torch.equal(run(large), quantized(large))


def test_a_float_model_runs_itself() -> None:
    model = network()
    assert running.fastest(model) is model


def test_a_trial_with_other_states_runs_on_the_weights_of_the_first(images: torch.Tensor) -> None:
    wide, narrow = (
        ptq4snn.quantize(network(), images, f"fast+uniform+w4m{b}", calibration=32) for b in (4, 2)
    )
    assert wide.program is not None and wide.program == narrow.program
    family = Family(model_of(wide.program, wide.plan, wide.integers))
    for q in (narrow, wide):
        model = family.member(q.plan)
        assert model.projections is family.first.projections
        for kernels in ("numpy", "native"):
            found = Runtime(model, kernels=kernels)(images.numpy())
            np.testing.assert_array_equal(found, q(images).numpy())
    assert not torch.equal(wide(images), narrow(images))
