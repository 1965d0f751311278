"""The project's own neurons against their own forward."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import nn

from ptq4snn.frameworks import adapter_of
from ptq4snn.frameworks.core import FloatCore
from ptq4snn.frameworks.native import NativeAdapter
from ptq4snn.models.neuron import IF, LIF, PLIF

ADAPTER = NativeAdapter()


def currents(dtype: torch.dtype = torch.float64) -> torch.Tensor:
    generator = torch.Generator().manual_seed(5)
    return torch.randn(24, 3, 11, generator=generator, dtype=torch.float64).to(dtype) * 2.0 + 0.8


def neurons(v_threshold: float, v_reset: float | None) -> list[nn.Module]:
    common: dict[str, Any] = {"v_threshold": v_threshold, "v_reset": v_reset}
    return [
        IF(**common),
        LIF(tau=2.0, decay_input=True, **common),
        LIF(tau=3.7, decay_input=True, **common),
        LIF(tau=1.4, decay_input=False, **common),
        PLIF(init_tau=2.6, decay_input=True, **common),
        PLIF(init_tau=2.6, decay_input=False, **common),
    ]


@pytest.mark.parametrize("v_reset", [None, 0.0, -0.3, 0.25])
@pytest.mark.parametrize("v_threshold", [1.0, 0.6])
def test_spikes_like_the_original(v_threshold: float, v_reset: float | None) -> None:
    x = currents()
    for neuron in neurons(v_threshold, v_reset):
        neuron = neuron.double()
        shell = ADAPTER.shell(neuron, FloatCore(ADAPTER.spec(neuron, "n")))
        expected = neuron(x)
        assert 0.02 < expected.mean() < 0.9
        assert torch.equal(shell(x), expected)
        assert torch.equal(shell(x), expected), "a call must leave no state behind"


def test_spec_of_a_float32_model_is_float64_and_shifted() -> None:
    spec = ADAPTER.spec(LIF(tau=3.0, v_threshold=1.0, v_reset=-0.5), "n")
    assert spec.leak.dtype == torch.float64
    assert float(spec.leak) == 1.0 - 1.0 / 3.0
    assert float(spec.gain) == 1.0 / 3.0
    assert (float(spec.theta), spec.v_rest, spec.reset, spec.comparator) == (1.5, -0.5, "hard", ">=")


def test_surrogate_has_the_models_gradient() -> None:
    u = torch.linspace(-2, 2, 9, dtype=torch.float64, requires_grad=True)
    ADAPTER.spec(LIF(alpha=3.0), "n").surrogate(u).sum().backward()
    expected = 1.5 / (1 + (torch.pi / 2 * 3.0 * u.detach()) ** 2)
    torch.testing.assert_close(u.grad, expected)


def test_is_recognised_and_calls_are_sequences() -> None:
    neuron = IF()
    assert isinstance(adapter_of(neuron), NativeAdapter)
    assert adapter_of(nn.ReLU()) is None
    assert ADAPTER.steps(neuron, currents()) == 24
    shell = ADAPTER.shell(neuron, FloatCore(ADAPTER.spec(neuron, "n")))
    assert adapter_of(shell) is None
    x = currents(torch.float32)
    assert torch.equal(copy.deepcopy(shell)(x), shell(x))
