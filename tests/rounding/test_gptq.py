"""GPTQ against brute force, against X itself, and on every kind of projection."""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from ptq4snn.numerics.grid import signed_range
from ptq4snn.numerics.nearest import QuantWeight, round_nearest
from ptq4snn.rounding import gptq, moments
from ptq4snn.rounding.gptq import Solution, solve
from ptq4snn.rounding.moments import Hessian, columns, positions


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def correlated(size: int, n: int, seed: int = 0) -> Tensor:
    """Spikes [n, size] that are correlated between columns."""
    g = generator(seed)
    mixed = torch.randn(n, size, generator=g) @ torch.randn(size, size, generator=g) / size**0.5
    return (mixed + 0.3 > 0).float()


def rounded(
    rows: int = 12, size: int = 40, bits: int = 3, seed: int = 0, **settings: Any
) -> tuple[Tensor, Tensor, QuantWeight, Solution]:
    w = torch.randn(rows, size, generator=generator(seed + 1))
    x = correlated(size, 400, seed)
    h = Hessian(nn.Linear(size, rows))
    h.update(x)
    q = round_nearest(w, bits)
    return w, x, q, solve(w, q, h.value(), **settings)


def output_error(w: Tensor, q: QuantWeight, integers: Tensor, x: Tensor) -> Tensor:
    """|dW x|^2 / n of every row, in float64."""
    difference = w.double() - q.scales[:, None] * integers
    return (x.double() @ difference.T).square().sum(0) / len(x)


@pytest.mark.parametrize("blocksize", [1, 7, 16, 128])
def test_the_reported_loss_is_the_output_error(blocksize: int) -> None:
    w, x, q, found = rounded(percdamp=0.0, blocksize=blocksize)
    assert found.dead == 0 and found.solved
    torch.testing.assert_close(found.loss, output_error(w, q, found.integers, x), rtol=1e-6, atol=0)


def test_the_blocksize_changes_no_integer() -> None:
    reference = rounded(blocksize=1)[3].integers
    for blocksize in (7, 16, 128):
        assert torch.equal(rounded(blocksize=blocksize)[3].integers, reference)


@pytest.mark.parametrize("seed", range(4))
def test_better_than_nearest_and_inside_the_grid(seed: int) -> None:
    w, x, q, found = rounded(seed=seed)
    nearest, mine = (float(output_error(w, q, i, x).sum()) for i in (q.integers, found.integers))
    assert mine < 0.8 * nearest
    low, high = signed_range(3)
    assert torch.equal(found.integers, found.integers.round())
    assert float(found.integers.min()) >= low and float(found.integers.max()) <= high


def test_brute_force_bounds_it_from_below() -> None:
    w, x, q, found = rounded(rows=6, size=5, bits=2, seed=3)
    grid = torch.tensor(list(itertools.product(range(-2, 2), repeat=5)), dtype=torch.float64)  # [4^5, 5]
    mine, nearest = (output_error(w, q, i, x) for i in (found.integers, q.integers))
    for c in range(len(w)):
        errors = (x.double() @ (w[c].double() - q.scales[c] * grid).T).square().sum(0) / len(x)
        assert float(errors.min()) <= float(mine[c]) + 1e-12
    assert float(mine.sum()) <= float(nearest.sum())


def test_columns_without_a_spike_keep_the_nearest_value_and_are_counted() -> None:
    w = torch.randn(6, 20, generator=generator(1))
    x = correlated(20, 300)
    x[:, [3, 11, 12]] = 0
    h = Hessian(nn.Linear(20, 6))
    h.update(x)
    q = round_nearest(w, 4)
    found = solve(w, q, h.value())
    assert found.dead == 3
    assert torch.equal(found.integers[:, [3, 11, 12]], q.integers[:, [3, 11, 12]])
    live = [i for i in range(20) if i not in (3, 11, 12)]
    alone = solve(w[:, live], QuantWeight(4, q.scales, q.integers[:, live]), h.value()[:, live][:, :, live])
    assert torch.equal(found.integers[:, live], alone.integers)


def test_shards_add_up_to_the_whole() -> None:
    x = torch.randn(64, 30, generator=generator())
    whole, parts = Hessian(nn.Linear(30, 4)), [Hessian(nn.Linear(30, 4)) for _ in range(3)]
    whole.update(x)
    for part, rows in zip(parts, x.split([10, 40, 14]), strict=True):
        part.update(rows)
    parts[0].merge(parts[1])
    parts[0].merge(parts[2])
    torch.testing.assert_close(parts[0].value(), whole.value(), rtol=4e-7, atol=4e-7)
    torch.testing.assert_close(whole.value()[0], 2 / 64 * x.double().T @ x.double(), rtol=1e-5, atol=1e-6)


PROJECTIONS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "linear": (lambda: nn.Linear(6, 4), (5, 3, 2, 6)),
    "conv1d": (lambda: nn.Conv1d(6, 4, 3, padding=1), (5, 6, 9)),
    "conv2d": (lambda: nn.Conv2d(6, 4, 3, stride=2, padding=1, dilation=2), (5, 6, 9, 8)),
    "uneven": (lambda: nn.Conv2d(6, 4, (3, 2), stride=(1, 2), padding=(0, 1)), (5, 6, 7, 8)),
    "grouped": (lambda: nn.Conv2d(6, 4, 3, groups=2), (5, 6, 6, 6)),
    "depthwise": (lambda: nn.Conv2d(6, 12, 3, padding="same", groups=6), (5, 6, 6, 6)),
    "reflected": (lambda: nn.Conv2d(6, 4, 3, padding=1, padding_mode="reflect"), (5, 6, 6, 6)),
    "conv3d": (lambda: nn.Conv3d(6, 4, 2), (2, 6, 3, 4, 4)),
}


@pytest.mark.parametrize("name", PROJECTIONS)
def test_columns_are_what_the_weight_meets(name: str) -> None:
    build, shape = PROJECTIONS[name]
    module: Any = build()
    module.bias = None
    x = torch.randn(shape, generator=generator())
    laid = columns(module, x)  # [G, K, n]
    w = module.weight.detach().reshape(laid.shape[0], -1, laid.shape[1])
    out = module(x).detach()
    expected = out.reshape(-1, 4).T if name == "linear" else out.transpose(0, 1).flatten(1)
    torch.testing.assert_close((w @ laid).flatten(0, 1), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", PROJECTIONS)
def test_picked_positions_are_some_of_all(name: str) -> None:
    build, shape = PROJECTIONS[name]
    module: Any = build()
    x = torch.randn(shape, generator=generator())
    whole = columns(module, x)
    samples, each = positions(module, x)
    assert samples * each == whole.shape[2]
    picked = torch.arange(1, whole.shape[2], 3)
    assert torch.equal(columns(module, x, picked), whole[:, :, picked])


def test_of_many_positions_some_tell_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(moments, "AT_LEAST", 600)
    monkeypatch.setattr(moments, "PER_INPUT", 1)
    module = nn.Conv2d(3, 4, 3, padding=1)
    x = (torch.rand((40, 3, 8, 8), generator=generator()) > 0.6).float()
    whole, some = Hessian(module), Hessian(module, calls=8)
    for part in x.split(5):
        whole.update(part)
        some.update(part)
    assert whole.count == 40 * 64 and 300 <= some.count <= 700
    assert some.every % 2 == 1, "or the same positions of each of the samples"
    exact, found = whole.value(), some.value()
    assert float((found - exact).norm() / exact.norm()) < 0.15
    alone = Hessian(module, calls=1)
    alone.update(x[:5])  # few are all taken
    assert alone.count == 5 * 64


@pytest.mark.parametrize("name", ["conv2d", "grouped", "depthwise"])
def test_convolutions_have_the_loss_of_their_own_outputs(name: str) -> None:
    build, shape = PROJECTIONS[name]
    module: Any = build()
    module.bias = None
    x = (torch.rand((40, *shape[1:]), generator=generator()) > 0.6).float()
    h = Hessian(module)
    for part in x.unflatten(0, (2, 5, 4)).unbind(0):  # [T, B, C, H, W]
        h.update(part)
    w = module.weight.detach()
    q = round_nearest(w, 3)
    found = solve(w, q, h.value(), percdamp=0.0)
    exact = module.double()(x.double())
    module.weight.data = q.scales.view(-1, 1, 1, 1) * found.integers
    error = (module(x.double()) - exact).square().transpose(0, 1).flatten(1).mean(1)
    torch.testing.assert_close(found.loss, error.detach(), rtol=1e-6, atol=0)


def test_a_singular_hessian_is_damped_and_a_hopeless_one_is_left_nearest() -> None:
    x = correlated(4, 50).repeat(1, 3)  # every column three times
    h = Hessian(nn.Linear(12, 5))
    h.update(x)
    w = torch.randn(5, 12, generator=generator())
    q = round_nearest(w, 3)
    assert solve(w, q, h.value(), percdamp=0.0).solved
    found = solve(w, q, torch.full((1, 12, 12), torch.inf))
    assert not found.solved and torch.equal(found.integers, q.integers)


def test_a_layer_that_is_given_up_is_named(monkeypatch: pytest.MonkeyPatch, observed: Any) -> None:
    from ptq4snn.bridge.lattice import Lattice
    from ptq4snn.recipe import Recipe
    from ptq4snn.rounding.network import Network

    recipe = Recipe(rounding="gptq")
    network = Network(observed, Lattice.of(observed.folded, observed.seen, recipe))
    monkeypatch.setattr(gptq, "_inverse_factor", lambda *_: None)
    with pytest.warns(UserWarning, match=r"'fc'"):
        found = gptq.round_unit(network, ("fc",))
    assert torch.equal(found.integers["fc"], network.weight("fc").integers)
    monkeypatch.undo()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        gptq.round_unit(network, ("fc",))
