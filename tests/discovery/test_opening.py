"""What runs is what counts: layers that compute their weight, hooks, parametrizations, pruning."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils import parametrizations, prune

import ptq4snn
from ptq4snn import freezing
from ptq4snn.discovery.opening import Opened, bake, readable
from ptq4snn.errors import ExactnessError, FoldingError, UnsupportedOperation
from ptq4snn.models.neuron import LIF

RECIPE: dict[str, Any] = {"recipe": "fast+w8m8"}


def randn(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


X = torch.rand(48, 12, generator=torch.Generator().manual_seed(0)) * 2


class Masked(nn.Linear):
    mask: Tensor

    def __init__(self, a: int, b: int) -> None:
        super().__init__(a, b)
        self.register_buffer("mask", (randn(b, a, seed=3) > 0).float())

    def forward(self, x: Tensor) -> Tensor:
        return F.linear(x, self.weight * self.mask, self.bias)


class Cosine(nn.Linear):
    def forward(self, x: Tensor) -> Tensor:
        return F.linear(x, F.normalize(self.weight, dim=1)) * 8


class Binary(nn.Linear):
    def forward(self, x: Tensor) -> Tensor:
        return F.linear(x, self.weight.sign() * self.weight.abs().mean(), bias=self.bias)


class Halved(nn.Linear):
    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x * 0.5)


class Standardised(nn.Conv1d):
    def forward(self, x: Tensor) -> Tensor:
        w = self.weight
        w = (w - w.mean((1, 2), True)) / (w.std((1, 2), keepdim=True) + 1e-5)
        return self._conv_forward(x, w, self.bias)


class Net(nn.Module):
    """Linear, `layer`, Linear on x[B, 12] shown for four steps."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.a, self.n1 = nn.Linear(12, 24), LIF(v_threshold=0.5)
        self.b, self.n2 = layer, LIF(v_threshold=0.5)
        self.convolves = isinstance(layer, nn.Conv1d)
        self.head = nn.Linear(24, 4)
        g = torch.Generator().manual_seed(1)
        with torch.no_grad():
            for p in self.parameters():
                p.copy_(torch.randn(p.shape, generator=g) * (0.8 if p.dim() > 1 else 0.1))
        self.eval()

    def between(self, s: Tensor) -> Tensor:
        if self.convolves:  # [T, B, 24] as [T * B, 8, 3]
            return self.b(s.reshape(-1, 8, 3)).reshape(*s.shape[:2], -1)
        return self.b(s)

    def forward(self, x: Tensor) -> Tensor:
        y = self.n1(self.a(x.expand(4, *x.shape)))
        out: Tensor = self.head(self.n2(self.between(y))).mean(0)
        return out


def plain_twin(net: Net, weight: Tensor, bias: Tensor | None) -> Net:
    """The same network with an ordinary layer of the weight that runs."""
    own: Any = net.b
    if isinstance(own, nn.Conv1d):
        layer: nn.Module = nn.Conv1d(8, 8, 3, padding=1, bias=bias is not None)
    else:
        layer = nn.Linear(24, 24, bias=bias is not None)
    twin = Net(layer)
    twin.load_state_dict({k: v for k, v in net.state_dict().items() if not k.startswith("b.")}, strict=False)
    with torch.no_grad():
        layer.weight.copy_(weight)  # type: ignore[operator]
        if bias is not None:
            layer.bias.copy_(bias)  # type: ignore[operator]
    return twin


def pruned() -> nn.Module:
    layer = nn.Linear(24, 24)
    prune.l1_unstructured(layer, "weight", amount=0.6)
    return layer


def hooked(hook: Callable[[nn.Module], object]) -> nn.Module:
    layer = nn.Linear(24, 24)
    hook(layer)
    return layer


ODD: dict[str, Callable[[], nn.Module]] = {
    "masked": lambda: Masked(24, 24),
    "cosine": lambda: Cosine(24, 24),
    "binary": lambda: Binary(24, 24),
    "standardised": lambda: Standardised(8, 8, 3, padding=1),
    "pruned": pruned,
    "weight norm": lambda: torch.nn.utils.weight_norm(nn.Linear(24, 24)),
    "weight norm, parametrization": lambda: parametrizations.weight_norm(nn.Linear(24, 24)),
    "spectral norm": lambda: torch.nn.utils.spectral_norm(nn.Linear(24, 24)),
    "spectral norm, parametrization": lambda: parametrizations.spectral_norm(nn.Linear(24, 24)),
    "halved input": lambda: Halved(24, 24),
    "pre-hook": lambda: hooked(lambda m: m.register_forward_pre_hook(lambda _m, a: (a[0] * 0.5,))),
    "hook": lambda: hooked(lambda m: m.register_forward_hook(lambda _m, _a, out: out * 0.5)),
}


@pytest.mark.filterwarnings("ignore:.*weight_norm:FutureWarning")
@pytest.mark.parametrize("name", ODD)
def test_the_weight_that_runs_is_the_weight(name: str, tmp_path: Path) -> None:
    net = Net(ODD[name]())
    opened = readable(net)
    bake(opened, [X[:2]])
    layer = opened.get_submodule("b")
    assert isinstance(layer, Opened)
    q = ptq4snn.quantize(net, X, **RECIPE)
    assert "b.plain" in q.plan.projections and "b" not in q.plan.projections
    assert q.program is not None  # and it gave q's bits, or quantize would have raised
    with torch.no_grad():
        error = (q(X) - net(X)).norm() / net(X).norm()
    assert error < 0.25
    q.save(tmp_path / "m.ptq")
    again = ptq4snn.load(tmp_path / "m.ptq", Net(ODD[name]()))
    assert torch.equal(again(X), q(X))


@pytest.mark.parametrize("name", ["masked", "binary", "standardised", "pruned"])
def test_it_is_the_plain_layer_of_that_weight(name: str) -> None:
    net = Net(ODD[name]())
    opened = readable(net)
    bake(opened, [X[:2]])
    plain: Any = opened.get_submodule("b.plain")
    q, twin = (ptq4snn.quantize(m, X, **RECIPE) for m in (net, plain_twin(net, plain.weight, plain.bias)))
    assert torch.equal(q.integers["b.plain"].weight, twin.integers["b"].weight)
    assert torch.equal(q(X), twin(X))


def test_ordinary_layers_stay_what_they_are() -> None:
    assert not any(isinstance(m, Opened) for m in readable(Net(nn.Linear(24, 24))).modules())


class ByInput(nn.Linear):
    def forward(self, x: Tensor) -> Tensor:
        return F.linear(x, self.weight * x.mean(), self.bias)


class ByBatch(nn.Linear):
    """Another weight in large batches."""

    def forward(self, x: Tensor) -> Tensor:
        return F.linear(x, self.weight * (2 if x.numel() > 4 * 8 * 24 else 1), self.bias)


class ByCall(nn.Linear):
    calls = 0

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        return F.linear(x, self.weight * (1 + self.calls % 2), self.bias)


class Twice(nn.Linear):
    def forward(self, x: Tensor) -> Tensor:
        return F.linear(x, self.weight) + F.linear(x, self.weight * 0.5, self.bias)


class OtherStride(nn.Conv1d):
    def forward(self, x: Tensor) -> Tensor:
        return F.conv1d(x, self.weight, self.bias, dilation=2, padding=2)


@pytest.mark.parametrize(
    ("layer", "words"),
    [
        (ByInput(24, 24), "the weight of 'b', a ByInput, changes"),
        (ByBatch(24, 24), "the weight of 'b', a ByBatch, changes"),
        (ByCall(24, 24), "the weight of 'b', a ByCall, changes"),
        (Twice(24, 24), "'b', a Twice, calls linear or conv more than once"),
        (OtherStride(8, 8, 3, padding=1), "'b', a OtherStride, .* dilation"),
    ],
)
def test_what_no_single_weight_stands_for_is_refused_by_name(layer: nn.Module, words: str) -> None:
    with pytest.raises(UnsupportedOperation, match=words):
        ptq4snn.quantize(Net(layer), X, **RECIPE)
    kept = ptq4snn.quantize(Net(layer), X, **RECIPE, overrides={"b": {"exclude": True}})
    assert kept.plan.excluded == ("b", "n2")


def test_a_hook_on_a_neuron_is_refused_by_name() -> None:
    net = Net(nn.Linear(24, 24))
    net.n1.register_forward_hook(lambda _m, _a, out: out * (torch.arange(24) < 12))
    with pytest.raises(FoldingError, match="'n1' has a forward hook"):
        ptq4snn.quantize(net, X, **RECIPE)


def test_outputs_are_compared_with_the_originals_own_forward(monkeypatch: pytest.MonkeyPatch) -> None:
    """A classifier whose constant is dropped leaves every spike as it is."""
    from ptq4snn.discovery.folding import fold_in_place

    def forgetful(*args: Any, **kwargs: Any) -> Any:
        folded = fold_in_place(*args, **kwargs)
        folded.model.get_parameter("head.bias").data.zero_()
        return folded

    monkeypatch.setattr("ptq4snn.discovery.proof.fold_in_place", forgetful)
    with pytest.raises(FoldingError, match="output 0 differs"):
        ptq4snn.quantize(Net(nn.Linear(24, 24)), X, **RECIPE)


def test_a_program_that_differs_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    class Wrong(freezing.Runtime):  # type: ignore[name-defined]  # a name that freezing imports
        def __call__(self, *args: Any, **kwargs: Any) -> Any:
            y = super().__call__(*args, **kwargs)
            y[0, 0] += 1e-3
            return y

    monkeypatch.setattr(freezing, "Runtime", Wrong)
    with pytest.raises(ExactnessError, match="1 of 64 values differ"):
        ptq4snn.quantize(Net(nn.Linear(24, 24)), X, **RECIPE)
