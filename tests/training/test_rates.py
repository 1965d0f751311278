"""The staircase of firing rates against the neuron itself, run on constant currents."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from ptq4snn.errors import RecipeError
from ptq4snn.models.fpn import SpikeFPN
from ptq4snn.models.neuron import IF, LIF, PLIF
from ptq4snn.models.sdt import SpikeDrivenTransformer
from ptq4snn.training.rates import Rate, firing_rates, stairs, steps_seen

NEURONS = [LIF(), LIF(tau=4.0), LIF(tau=1.5, decay_input=False), LIF(v_threshold=0.5), IF(v_threshold=1.3)]


@pytest.mark.parametrize("neuron", NEURONS, ids=repr)
@pytest.mark.parametrize("T", [1, 2, 4, 10])
def test_rate_is_that_of_the_neuron(neuron: LIF, T: int) -> None:
    x = torch.linspace(-1.0, 6.0, 4001, dtype=torch.float64)
    levels = torch.tensor([level for level, _ in stairs(neuron, T)], dtype=torch.float64)
    x = x[(x.unsqueeze(1) - levels).abs().amin(1) > 1e-9]  # on a stair itself rounding decides
    measured = neuron(x.expand(T, -1)).mean(0)
    torch.testing.assert_close(Rate(neuron, T)(x), measured, atol=1e-12, rtol=0)
    assert 0.0 < float(measured.mean()) < 1.0


def test_gradient_rises_at_the_stairs_only() -> None:
    x = torch.tensor([-20.0, 1.1, 1.4, 30.0], requires_grad=True)
    Rate(LIF(), 4)(x).sum().backward()
    assert x.grad is not None
    assert x.grad[1] > 0.3 and x.grad[2] > 0.3
    assert float(x.grad[[0, 3]].abs().max()) < 1e-2


@pytest.mark.parametrize("neuron", [LIF(v_reset=None), PLIF()])
def test_neurons_without_a_staircase_are_refused(neuron: LIF) -> None:
    with pytest.raises(RecipeError, match="hard reset and a fixed leak"):
        Rate(neuron, 4)


def test_neurons_come_back_and_weights_keep_their_names() -> None:
    model = SpikeDrivenTransformer(width=16, depth=1, heads=2, T=1)
    before = [(n, m) for n, m in model.named_modules() if isinstance(m, LIF)]
    names = list(model.state_dict())
    with pytest.raises(KeyError), firing_rates(model, {}):
        assert not any(isinstance(m, LIF) for m in model.modules())
        assert sum(isinstance(m, Rate) for m in model.modules()) == len(before)
        assert list(model.state_dict()) == names
        raise KeyError
    assert [(n, m) for n, m in model.named_modules() if isinstance(m, LIF)] == before


def test_rates_are_the_mean_of_the_spikes_of_a_first_layer() -> None:
    """One layer on a still image: nothing is approximated there."""
    torch.manual_seed(0)
    layer = nn.Sequential(nn.Linear(5, 7), LIF())
    x = torch.randn(3, 5)
    spikes = layer[1](layer[0](x).expand(4, -1, -1)).mean(0)
    with firing_rates(layer, {"1": 4}):
        assert torch.equal(layer(x), spikes)


def test_steps_of_neurons_behind_an_average_over_time() -> None:
    model = SpikeFPN((8, 8, 8, 8), 8, (1, 1), 2, num_classes=2, T=3)
    seen = steps_seen(model, torch.zeros(1, 3, 16, 16))
    assert {n for n, steps in seen.items() if steps == 3} == {n for n in seen if n.startswith("backbone")}
    assert {n for n, steps in seen.items() if steps == 1} == {n for n in seen if not n.startswith("backbone")}
    assert "backbone.lif" not in seen  # of no use in segmentation
