"""Quantized networks in the NumPy runtime: spikes, states and outputs of the simulation, bit for bit."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from oracles.simulation import Trace, simulate
from runtime.test_loading import run_without_torch
from torch import Tensor, nn

import ptq4snn.runtime
from ptq4snn.errors import BundleError
from ptq4snn.models.neuron import IF, LIF
from ptq4snn.modules.quantized import QuantizedModel
from ptq4snn.network.program import Neuron
from ptq4snn.pipeline import Prepared, prepare, run
from ptq4snn.recipe import Recipe
from ptq4snn.runtime import Runtime, model_of

LIGHT = Recipe(calibration=24, holdout=8, sensitivity_batches=1, beta=0.8, percentile=98.0).replace(
    objective="squared_error"
)
RECIPES = {
    "bridge": LIGHT,
    "dither": LIGHT.replace(state_rounding="dither", membrane=3.0),
    "zero points": LIGHT.replace(zero_point="channel", objective="replay"),
    "wide states": LIGHT.replace(coupling="none"),
    "multipliers": LIGHT.replace(coupling="independent"),
}


class Late(nn.Module):
    """Means over time before projections and neurons: a hidden layer runs once, behind them."""

    def __init__(self, T: int = 4) -> None:
        super().__init__()
        self.T = T
        self.conv, self.n1 = nn.Conv2d(3, 8, 3, padding=1, stride=2), LIF()
        self.hidden, self.n2 = nn.Linear(8 * 16, 20), IF()
        self.head = nn.Linear(20, 3)
        self.other = nn.Linear(8 * 16, 5)
        g = torch.Generator().manual_seed(0)
        with torch.no_grad():
            for p in self.parameters():
                p.copy_(torch.randn(p.shape, generator=g) * 3 / max(1, p[0].numel()) ** 0.5)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        spikes = self.n1(self.conv(x).expand(self.T, *[-1] * 4)).flatten(2).mean(0)
        return self.head(self.n2(self.hidden(spikes)[None])[0]), self.other(spikes)


def images(n: int, size: int = 8) -> Tensor:
    g = torch.Generator().manual_seed(1)
    return (torch.randint(0, 256, (n, 3, size, size), generator=g).float() / 255 - 0.45) / 0.25


@functools.cache
def late() -> QuantizedModel:
    return run(prepare(Late(), images(32), LIGHT), LIGHT)


def runtime(q: QuantizedModel) -> Runtime:
    assert q.program is not None, q.not_lowered
    return Runtime(model_of(q.program, q.plan, q.integers), "numpy")


def outputs(y: Any) -> list[Any]:
    return list(y) if isinstance(y, tuple) else [y]


def equal(found: Any, want: list[Any]) -> None:
    for a, b in zip(outputs(found), want, strict=True):
        assert a.dtype == b.dtype and a.shape == b.shape
        assert np.array_equal(a, b)


def same_inside(trace: dict[str, dict[str, Any]], want: Trace) -> None:
    assert set(trace) == set(want.spikes)
    for name, found in trace.items():
        spikes = found["spikes"]
        assert np.array_equal(spikes.reshape(*spikes.shape[:2], -1), want.spikes[name]), name
        if "state" in found:
            assert np.array_equal(found["state"].reshape(len(found["state"]), -1), want.states[name][-1]), (
                name
            )


@pytest.mark.parametrize("name", RECIPES)
def test_a_residual_network_gives_the_simulations_bits(observed: Prepared, images: Any, name: str) -> None:
    q = run(observed, RECIPES[name])
    rt, x = runtime(q), images(5)
    want = simulate(q, x)
    equal(rt(x), want.outputs)
    same_inside(rt.trace(x), want)


@pytest.mark.filterwarnings("ignore:no state is inside the budget")
@pytest.mark.parametrize("steps", [1, 3, 4, 9])
def test_another_number_of_steps_than_at_calibration(steps: int) -> None:
    q = late()
    assert all(q.plan.projections[n].over_time for n in ("hidden", "other"))
    assert q.plan.projections["other"].role == "output"  # its integers are not rounded at other steps
    assert q.program is not None and any(isinstance(o, Neuron) and o.once for o in q.program.operations)
    q.model.T = steps  # type: ignore[assignment]
    try:
        x = images(6)
        want = simulate(q, x)
    finally:
        q.model.T = 4  # type: ignore[assignment]
    rt = runtime(q)
    equal(rt(x, steps=steps), want.outputs)
    same_inside(rt.trace(x, steps=steps), want)
    for _ in range(steps):
        streamed = rt.step(x)
    equal(streamed, want.outputs)
    assert 0.1 < want.spikes["n2"].mean() < 0.9


def test_a_bundle_runs_without_torch(tmp_path: Path, observed: Prepared, images: Any) -> None:
    q = run(observed, LIGHT)
    q.save(tmp_path / "m.ptq")
    x = images(3)
    found = run_without_torch(tmp_path / "m.ptq", x.numpy(), tmp_path)
    equal(found, simulate(q, x).outputs)
    assert ptq4snn.runtime.load(tmp_path / "m.ptq", "numpy").model.hash == runtime(q).model.hash


@pytest.mark.filterwarnings("ignore:no state is inside the budget")
def test_an_altered_bundle_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "m.ptq"
    late().save(path)
    whole = path.read_bytes()
    for at in range(0, len(whole), len(whole) // 23):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
        with pytest.raises(BundleError):
            ptq4snn.runtime.load(path)
