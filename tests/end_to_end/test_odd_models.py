"""What users bring: casts, random encoders, weight norm, numpy samples, misspelt overrides, frozen norms."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from oracles.numbers import known
from torch import Tensor, nn

import ptq4snn
from ptq4snn.errors import BundleError, DataError, RecipeError, UnsupportedModel
from ptq4snn.models.neuron import LIF


class Net(nn.Module):
    """Three linear layers on x[B, 12], `encode`d into [T, B, 12] first."""

    def __init__(self, encode: Callable[[Tensor], Tensor] = lambda x: x.expand(4, *x.shape)) -> None:
        super().__init__()
        self.encode = encode
        self.a, self.n1 = nn.Linear(12, 24), LIF(v_threshold=0.5)
        self.b, self.n2 = nn.Linear(24, 24), LIF(v_threshold=0.5)
        self.head = nn.Linear(24, 4)
        g = torch.Generator().manual_seed(1)
        with torch.no_grad():
            for p in self.parameters():
                p.copy_(torch.randn(p.shape, generator=g) * (0.8 if p.dim() > 1 else 0.1))

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.head(self.n2(self.b(self.n1(self.a(self.encode(x)))))).mean(0)
        return out


X = torch.rand(64, 12, generator=torch.Generator().manual_seed(0))


def test_casts_in_forward() -> None:
    q = ptq4snn.quantize(Net(lambda x: x.float().expand(4, *x.shape)), X, "w8m8", allocation="uniform")
    assert known(q.report["summary"]["flip_rate"]) < 0.02


def test_uint8_input() -> None:
    model = Net(lambda x: (x.float() / 255).expand(4, *x.shape))
    q = ptq4snn.quantize(model, (X * 255).to(torch.uint8), "w8m8", allocation="uniform")
    assert known(q.report["summary"]["flip_rate"]) < 0.02


def test_random_encoders_are_compared_on_the_same_draws() -> None:
    model = Net(lambda x: torch.bernoulli(x.expand(4, *x.shape)))
    before = torch.get_rng_state()
    q = ptq4snn.quantize(model, X, "w8m8", allocation="uniform")
    ptq4snn.evaluate(q, [X])
    ptq4snn.inspect(model, X)
    assert torch.equal(before, torch.get_rng_state())
    assert known(q.report["summary"]["flip_rate"]) < 0.02


def test_numpy_samples_are_the_same_samples() -> None:
    plans = [ptq4snn.quantize(Net(), x, "w4m4", beta=0.8, percentile=98.0).plan for x in (X, np.asarray(X))]
    assert plans[0] == plans[1]


def test_inference_mode_around_it() -> None:
    with torch.inference_mode():
        q = ptq4snn.quantize(Net(), X.clone(), "w4m4", allocation="uniform")
    assert len(q.plan.neurons) == 2


def test_an_override_that_fits_nothing() -> None:
    with pytest.raises(RecipeError, match=r"'n22'.*did you mean 'n2'"):
        ptq4snn.quantize(Net(), X, overrides={"n22": {"membrane": 8}}, allocation="uniform")


def test_quantizing_twice() -> None:
    q = ptq4snn.quantize(Net(), X, allocation="uniform")
    with pytest.raises(UnsupportedModel, match="already"):
        ptq4snn.quantize(q, X)


class Leaks(Net):
    """Its output is a tensor that forward did not make."""

    def forward(self, x: Tensor) -> Tensor:
        super().forward(x)
        return self.kept

    kept = torch.zeros(2, 4)


def test_an_output_that_nothing_made() -> None:
    with pytest.raises(UnsupportedModel, match="not made by anything"):
        ptq4snn.inspect(Leaks(), X)


class Twice(Net):
    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:  # type: ignore[override]
        y = super().forward(x)
        return y, y


def test_a_bundle_of_a_model_with_other_outputs(tmp_path: Path) -> None:
    ptq4snn.quantize(Net(), X, allocation="uniform").save(tmp_path / "net.ptq")
    with pytest.raises(BundleError, match="other outputs"):
        ptq4snn.load(tmp_path / "net.ptq", Twice())(X)


def test_a_save_that_fails_leaves_nothing(tmp_path: Path) -> None:
    q = ptq4snn.quantize(Net(), X, allocation="uniform")
    with pytest.raises(BundleError):
        q.save(tmp_path / "absent" / "net.ptq")
    assert list(tmp_path.iterdir()) == []


def test_evaluate_leaves_the_model_as_it_was() -> None:
    model = Net().train()
    model.n2.eval()
    with pytest.raises(DataError, match="labels of shape"):
        ptq4snn.evaluate(model, [(X, torch.zeros(3))])
    with pytest.raises(DataError, match="cannot run"):
        ptq4snn.evaluate(model, [X[:, :5]])
    assert ptq4snn.evaluate(model, X)["samples"] == 64
    assert model.training and model.n1.training and not model.n2.training


def test_nothing_inside_the_budget_is_said() -> None:
    with pytest.warns(UserWarning, match="no state is inside the budget"):
        ptq4snn.quantize(Net(), X, overrides={"n2": {"coupling": "none"}}, allocation="uniform")
