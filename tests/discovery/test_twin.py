"""The exact twin: no partial sum is rounded, and nothing but the last bits changes."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from conftest import build, pixels
from torch import Tensor, nn

from ptq4snn.discovery.discover import discover, reset_neurons
from ptq4snn.discovery.folding import Folded, fold
from ptq4snn.discovery.twin import exact_twin
from ptq4snn.numerics.powers import next_power, parts_of_octave

X = pixels(24)


def folded() -> Folded:
    model = build()
    return fold(model, discover(model, X[:2], 0))


def calls(f: Folded, x: Tensor) -> list[tuple[str, Tensor, Tensor]]:
    """Inputs and outputs of all projections."""
    seen: list[tuple[str, Tensor, Tensor]] = []

    def note(name: str) -> Any:
        return lambda _m, args, out: seen.append((name, args[0], out))

    handles = [f.projection(n).register_forward_hook(note(n)) for n in f.discovery.projections]
    reset_neurons(f.model)
    with torch.no_grad():
        f.model(x)
    for h in handles:
        h.remove()
    return seen


def turned(module: Any, x: Tensor) -> Tensor:
    """The same output in float64, added up from the last input channel to the first."""
    w, b = module.weight.double().flip(1), None if module.bias is None else module.bias.double()
    x = x.double().flip(-1 if isinstance(module, nn.Linear) else -3)
    return nn.functional.linear(x, w, b) if isinstance(module, nn.Linear) else module._conv_forward(x, w, b)


def test_sums_of_spikes_are_exact_on_samples_that_it_has_not_seen() -> None:
    twin = exact_twin(folded(), X[:8])
    found = calls(twin, X[8:])
    counted = [n for n, _, _ in found if n in twin.steps]
    assert len(counted) == len(found) - 2  # the first reads images, the last means of nine spikes
    with torch.no_grad():
        for name, x, out in found:
            if name in twin.steps:
                assert torch.equal(out.double(), turned(twin.projection(name), x)), name


def test_without_the_twin_they_are_not() -> None:
    plain = folded()
    with torch.no_grad():
        equal = [torch.equal(o.double(), turned(plain.projection(n), x)) for n, x, o in calls(plain, X[8:])]
    assert not all(equal)


def test_weights_move_by_less_than_a_hundred_thousandth_of_the_largest() -> None:
    plain, twin = folded(), exact_twin(folded(), X[:8])
    for name in twin.steps:
        a, b = plain.weight(name), twin.weight(name)
        assert not torch.equal(a, b)
        assert float((a - b).abs().max()) < 1e-5 * float(a.abs().max())


def test_a_projection_of_images_stays_within_a_millionth() -> None:
    twin = exact_twin(folded(), X[:8])
    name, x, out = calls(twin, X[8:])[0]
    with torch.no_grad():
        exact = turned(twin.projection(name), x)
    assert float((out.double() - exact).abs().max()) < 2.0**-20 * float(exact.abs().max())


@pytest.mark.parametrize(
    ("x", "power"), [(0.0, 1.0), (0.75, 1.0), (1.0, 2.0), (5.0, 8.0), (2.0**-40, 2.0**-39)]
)
def test_next_power(x: float, power: float) -> None:
    assert float(next_power(torch.tensor(x, dtype=torch.float64))) == power


def test_parts_of_octave() -> None:
    expected = [2 ** (-i / 12) for i in range(61)]
    assert parts_of_octave(12, 61, down=True).tolist() == pytest.approx(expected, rel=1e-11)
