"""The running average of the weights against its formula in float64, and through kills."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn
from training.test_loop import Killed, recipe, run, same

from ptq4snn.training import loop
from ptq4snn.training.average import Average


def model() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4))


def test_it_is_the_average_of_the_formula() -> None:
    net, g = model(), torch.Generator().manual_seed(1)
    average = Average(net, 0.9)
    wanted = {n: v.double().numpy().copy() for n, v in net.state_dict().items() if v.is_floating_point()}
    for step in range(40):
        with torch.no_grad():
            for value in (*net.parameters(), *(b for b in net.buffers() if b.is_floating_point())):
                value.add_(torch.randn(value.shape, generator=g))
        average.update(step)
        share = min(0.9, (1 + step) / (10 + step))
        for name, value in net.state_dict().items():
            if name in wanted:
                wanted[name] = share * wanted[name] + (1 - share) * value.double().numpy()
    assert set(average.values) == set(wanted) == {n for n in net.state_dict() if "num_batches" not in n}
    for name, value in average.values.items():
        np.testing.assert_allclose(value.numpy(), wanted[name], rtol=1e-5, atol=1e-5)


def test_the_model_has_it_inside_of_the_context_alone() -> None:
    net = model()
    average = Average(net, 0.5)
    before = {n: v.clone() for n, v in average.values.items()}
    weight = net.get_parameter("0.weight")
    with torch.no_grad():
        weight.zero_()
    with average.watched():
        assert all(torch.equal(net.state_dict()[n], v) for n, v in before.items())
    assert not weight.any() and torch.equal(average.values["0.weight"], before["0.weight"])


def test_without_a_share_nothing_is_kept_or_changed() -> None:
    net = model()
    before = net.get_parameter("0.weight").detach().clone()
    average = Average(net, 0.0)
    average.update(0)
    average.exchange()
    assert average.values == {} and torch.equal(net.get_parameter("0.weight"), before)


def test_a_run_ends_with_the_average(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The last stage's, and the next stage starts from it."""
    ends: list[dict[str, torch.Tensor]] = []
    exchange = Average.exchange

    def noted(self: Average) -> None:
        ends.append({n: v.clone() for n, v in self.values.items()})
        exchange(self)

    monkeypatch.setattr(Average, "exchange", noted)
    averaged, _ = run(tmp_path / "a", recipe(average=0.8))
    kept = averaged.state_dict()
    assert all(torch.equal(kept[n], v) for n, v in ends[-1].items())
    assert not same(averaged, run(tmp_path / "b")[0])


@pytest.mark.parametrize("steps", [3, 16])
def test_a_killed_run_goes_on_to_the_same_average(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, steps: int
) -> None:
    whole, _ = run(tmp_path / "whole", recipe(average=0.8))
    monkeypatch.setattr(loop, "SAVE_SECONDS", -1.0)
    step, left = loop.Trainer.step, [steps]

    def killed(self: loop.Trainer, *args: object) -> float:
        if not left[0]:
            raise Killed
        left[0] -= 1
        return step(self, *args)  # type: ignore[arg-type]

    monkeypatch.setattr(loop.Trainer, "step", killed)
    with pytest.raises(Killed):
        run(tmp_path / "killed", recipe(average=0.8))
    left[0] = 1000
    resumed, _ = run(tmp_path / "killed", recipe(average=0.8))
    assert same(whole, resumed)
