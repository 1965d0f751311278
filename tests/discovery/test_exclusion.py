"""`exclude` means float: a part of the model stays as it is, and the advice of every refusal works."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import ptq4snn
from ptq4snn.errors import PTQ4SNNError, RecipeError, UnsupportedModel
from ptq4snn.models.neuron import LIF

T = 4
X = torch.rand(96, 8, generator=torch.Generator().manual_seed(0)) * 3


class Net(nn.Module):
    """Layers by name; `way` leads x[T, B, 8] through them."""

    def __init__(self, way: Callable[[Any, Tensor], Tensor], **layers: nn.Module) -> None:
        super().__init__()
        self.way = way
        for name, layer in layers.items():
            self.add_module(name, layer)
        g = torch.Generator().manual_seed(1)
        with torch.no_grad():
            for p in self.parameters():
                p.copy_(torch.randn(p.shape, generator=g) * (0.7 if p.dim() > 1 else 0.1) + (p.dim() == 1))
        self.eval()

    def forward(self, x: Tensor) -> Tensor:
        return self.way(self, x.expand(T, *x.shape)).mean(0)


def linear(a: int = 16, b: int = 16) -> nn.Module:
    return nn.Linear(a, b)


class Transposed(nn.ConvTranspose1d):
    """[T, B, 8, 4] to [T, B, 8, 8]."""

    def forward(self, x: Tensor, output_size: list[int] | None = None) -> Tensor:
        return super().forward(x.flatten(0, 1)).unflatten(0, x.shape[:2])


class NormalIn(nn.Linear):
    """A layer with a forward of its own: its weight is a plain one, what it reads is not."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(nn.functional.normalize(x, dim=-1))


class LowRank(nn.Linear):
    """W s + B A s: a second way through the layer, by parameters of its own."""

    def __init__(self, a: int, b: int) -> None:
        super().__init__(a, b)
        self.down, self.up = nn.Parameter(torch.zeros(2, a)), nn.Parameter(torch.zeros(b, 2))

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) + (x @ self.down.t()) @ self.up.t()


REFUSED: dict[str, tuple[Callable[[], Net], set[str]]] = {
    "a LayerNorm behind the first layer": (
        lambda: Net(
            lambda m, x: m.c(m.n2(m.b(m.n1(m.ln(m.a(x)))))),
            a=linear(8), ln=nn.LayerNorm(16), n1=LIF(), b=linear(), n2=LIF(), c=linear(16, 3),
        ),
        {"a", "n1"},
    ),
    "a LayerNorm in the middle": (
        lambda: Net(
            lambda m, x: m.c(m.n3(m.d(m.n2(m.ln(m.b(m.n1(m.a(x)))))))),
            a=linear(8), n1=LIF(), b=linear(), ln=nn.LayerNorm(16), n2=LIF(), d=linear(), n3=LIF(),
            c=linear(16, 3),
        ),
        {"b", "n2"},
    ),
    "a stem of tanh": (
        lambda: Net(
            lambda m, x: m.c(m.n2(m.d(m.n1(m.b(torch.tanh(m.a(x))))))),
            a=linear(8), b=linear(), n1=LIF(), d=linear(), n2=LIF(), c=linear(16, 3),
        ),
        {"a"},
    ),
    "a softmax of spikes": (
        lambda: Net(
            lambda m, x: m.c(m.n2(m.b(m.n1(m.a(x)).softmax(-1)))),
            a=linear(8), n1=LIF(), b=linear(), n2=LIF(), c=linear(16, 3),
        ),
        {"b", "n2"},
    ),
    "a neuron on the input": (
        lambda: Net(
            lambda m, x: m.c(m.n2(m.b(m.n1(m.a(m.e(x)))))),
            e=LIF(), a=linear(8), n1=LIF(), b=linear(), n2=LIF(), c=linear(16, 3),
        ),
        {"e"},
    ),
    "a constant of every step added to a current": (
        lambda: Net(
            lambda m, x: m.c(m.n2(m.b(m.n1(m.a(x) + m.p.weight.unsqueeze(1))))),
            a=linear(8), p=nn.Embedding(4, 16), n1=LIF(), b=linear(), n2=LIF(), c=linear(16, 3),
        ),
        {"a", "n1"},
    ),
    "a transposed convolution": (
        lambda: Net(
            lambda m, x: m.c(m.n2(m.t(m.n1(m.a(x)).unsqueeze(-1).expand(-1, -1, -1, 4))).flatten(2)),
            a=linear(8, 8), n1=LIF(), t=Transposed(8, 8, 2, 2), n2=LIF(), c=linear(64, 3),
        ),
        {"t", "n2"},
    ),
    "a projection of the larger of two currents": (
        lambda: Net(
            lambda m, x: m.c(m.n2(m.d(torch.maximum(m.a(x), m.b(m.n1(m.a(x))))))),
            a=linear(8), n1=LIF(), b=linear(), d=linear(), n2=LIF(), c=linear(16, 3),
        ),
        {"a", "b", "n1"},
    ),
    "a layer that normalises its input": (
        lambda: Net(
            lambda m, x: m.c(m.n2(m.b(m.n1(m.a(x))))),
            a=linear(8), n1=LIF(), b=NormalIn(16, 16), n2=LIF(), c=linear(16, 3),
        ),
        {"b", "n2"},
    ),
    "a head that normalises its input": (
        lambda: Net(
            lambda m, x: m.c(m.n2(m.b(m.n1(m.a(x))))),
            a=linear(8), n1=LIF(), b=linear(), n2=LIF(), c=NormalIn(16, 3),
        ),
        {"c"},
    ),
    "a layer of two ways": (
        lambda: Net(
            lambda m, x: m.c(m.n2(m.b(m.n1(m.a(x))))),
            a=linear(8), n1=LIF(), b=LowRank(16, 16), n2=LIF(), c=linear(16, 3),
        ),
        {"b", "n2"},
    ),
    "a BatchNorm without running statistics": (
        lambda: Net(
            lambda m, x: m.c(m.n2(m.bn(m.b(m.n1(m.a(x))).flatten(0, 1)).view(T, -1, 16))),
            a=linear(8), n1=LIF(), b=linear(), bn=nn.BatchNorm1d(16, track_running_stats=False), n2=LIF(),
            c=linear(16, 3),
        ),
        {"bn", "n2"},
    ),
}  # fmt: skip


def advice_in(message: str) -> dict[str, Any]:
    """The overrides that a refusal tells to give."""
    found = re.search(r"overrides=(\{.*\}\})", message)
    assert found is not None, message
    advised: dict[str, Any] = ast.literal_eval(found[1])
    return advised


@pytest.mark.parametrize("recipe", ["fast+w8m8", "w4m4"])
@pytest.mark.parametrize("case", REFUSED)
def test_the_advice_of_a_refusal_works(case: str, recipe: str, tmp_path: Path) -> None:
    make, kept = REFUSED[case]
    net = make()
    with pytest.raises(PTQ4SNNError) as refused:
        ptq4snn.quantize(net, X[:64], recipe)
    q = ptq4snn.quantize(net, X[:64], recipe, overrides=advice_in(str(refused.value)))
    assert set(q.plan.excluded) == kept
    assert q.program is None and "stay float" in q.not_lowered
    with torch.no_grad():
        expected, found = net(X[64:]), q(X[64:])
    assert (found - expected).norm() / expected.norm() < (0.3 if recipe == "fast+w8m8" else 0.6)
    q.save(tmp_path / "m.ptq")
    other = make()
    for p in other.parameters():
        p.data.zero_()  # the bundle brings the float weights, too
    assert torch.equal(ptq4snn.load(tmp_path / "m.ptq", other)(X[64:]), found)


def test_a_call_in_the_model_itself_has_no_name_to_exclude() -> None:
    net = Net(
        lambda m, x: m.c(m.n2(nn.functional.linear(m.n1(m.a(x)).softmax(-1), m.p.weight))),
        a=linear(8), n1=LIF(), p=nn.Embedding(16, 16), n2=LIF(), c=linear(16, 3),
    )  # fmt: skip
    with pytest.raises(PTQ4SNNError, match="move it into a module of its own"):
        ptq4snn.quantize(net, X[:64], "fast+w8m8")


def test_a_relu_head_behind_a_sum_of_calls() -> None:
    """One call of the layer in front of the head for each step, as loops over single steps make them."""
    net = Net(
        lambda m, x: m.head(torch.relu(sum(m.c(s) for s in m.n2(m.b(m.n1(m.a(x))))))).unsqueeze(0),
        a=linear(8), n1=LIF(), b=linear(), n2=LIF(), c=linear(16, 8), head=linear(8, 3),
    )  # fmt: skip
    q = ptq4snn.quantize(net, X[:64], "fast+w8m8")
    with torch.no_grad():
        expected, found = net(X[64:]), q(X[64:])
    assert (found - expected).norm() / expected.norm() < 0.2


def test_what_goes_in_and_out_of_an_excluded_part_is_real() -> None:
    """Nothing in front of the excluded block is changed by more than its own quantization, and behind it the
    block's own float numbers arrive."""
    net = REFUSED["a LayerNorm in the middle"][0]()
    q = ptq4snn.quantize(
        net, X[:64], "fast+w8m8", overrides={"b": {"exclude": True}, "ln": {"exclude": True}}
    )
    seen: dict[str, Tensor] = {}
    q.model.get_submodule("b").register_forward_hook(lambda _m, a, out: seen.update(spikes=a[0], current=out))
    q.model.get_submodule("ln").register_forward_hook(lambda _m, _a, out: seen.update(normal=out))
    with torch.no_grad():
        q(X[64:])
        assert set(seen["spikes"].unique().tolist()) <= {0.0, 1.0}
        assert torch.equal(seen["current"], net.get_submodule("b")(seen["spikes"]))
        assert torch.equal(seen["normal"], net.get_submodule("ln")(seen["current"]))


def test_a_head_in_a_container_is_left_out_by_its_name() -> None:
    net = Net(
        lambda m, x: m.head(m.n2(m.b(m.n1(m.a(x))))),
        a=linear(8), n1=LIF(), b=linear(), n2=LIF(),
        head=nn.Sequential(linear(16, 8), nn.GELU(), linear(8, 3)),
    )  # fmt: skip
    q = ptq4snn.quantize(net, X[:64], "fast+w8m8", overrides={"head": {"exclude": True}})
    assert q.plan.excluded == ("head",) and set(q.plan.projections) == {"a", "b"}
    assert q.report["summary"]["excluded"] == {"head": 16 * 8 + 8 + 8 * 3 + 3}
    assert "kept in float" in q.summary() and "head" in q.summary()


def test_a_current_that_feeds_an_excluded_head_arrives_in_its_own_units() -> None:
    net = Net(
        lambda m, x: m.head(m.c(m.n2(m.b(m.n1(m.a(x)))))),
        a=linear(8), n1=LIF(), b=linear(), n2=LIF(), c=linear(), head=nn.LayerNorm(16),
    )  # fmt: skip
    q = ptq4snn.quantize(net, X[:64], "fast+w8m8", overrides={"head": {"exclude": True}})
    with torch.no_grad():
        expected, found = net(X[64:]), q(X[64:])
    assert (found - expected).norm() / expected.norm() < 0.3


def test_an_unsupported_neuron_may_stay_float() -> None:
    snn, utils = pytest.importorskip("snntorch"), pytest.importorskip("snntorch.utils")

    class One(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.n1 = nn.Linear(8, 16), snn.Leaky(beta=0.9, init_hidden=True)
            self.b, self.n2 = nn.Linear(16, 16), snn.Alpha(alpha=0.9, beta=0.8, init_hidden=True)
            self.c = nn.Linear(16, 3)

        def forward(self, x: Tensor) -> Tensor:
            utils.reset(self)
            return sum(self.c(self.n2(self.b(self.n1(self.a(x))))) for _ in range(T))

    with pytest.raises(PTQ4SNNError) as refused:
        ptq4snn.quantize(One(), X[:64], "fast+w8m8")
    q = ptq4snn.quantize(One(), X[:64], "fast+w8m8", overrides=advice_in(str(refused.value)))
    assert q.plan.excluded == ("n2",)


def test_nothing_left() -> None:
    net = REFUSED["a stem of tanh"][0]()
    with pytest.raises(UnsupportedModel, match="all of them are excluded"):
        ptq4snn.quantize(net, X, overrides={"*": {"exclude": True}})


def test_a_pattern_that_fits_no_module() -> None:
    net = REFUSED["a stem of tanh"][0]()
    with pytest.raises(RecipeError, match=r"'stem'.* fits no"):
        ptq4snn.quantize(net, X, overrides={"a": {"exclude": True}, "stem": {"exclude": True}})
