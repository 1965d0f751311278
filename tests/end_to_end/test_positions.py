"""Position embeddings: a constant for each position, added to a current, is a bias of the layer before it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from end_to_end.structures import agreement, drawn, quantized, seeded
from oracles.frameworks import runs_everywhere
from torch import Tensor, nn

import ptq4snn
from ptq4snn import runtime
from ptq4snn.errors import PTQ4SNNError, UnsupportedOperation
from ptq4snn.models.neuron import LIF

STEPS = 4
IMAGES = drawn(32, 2, 8, 8)


def lif() -> LIF:
    return LIF(v_threshold=0.5)


def embedding(*shape: int) -> nn.Parameter:
    g = torch.Generator().manual_seed(3)
    return nn.Parameter(torch.randn(*shape, generator=g) * 0.15)


class Tokens(nn.Module):
    """A spiking ViT's beginning: patches, a BatchNorm, tokens [T, B, N, C], an embedding for each of them."""

    def __init__(self, shape: tuple[int, ...] = (1, 16, 12), sign: float = 1.0) -> None:
        super().__init__()
        self.patches, self.bn, self.n = nn.Conv2d(2, 12, 2, 2), nn.BatchNorm2d(12), lif()
        self.pos, self.sign = embedding(*shape), sign
        self.fc, self.m, self.head = nn.Linear(12, 16), lif(), nn.Linear(16, 5)
        assert self.bn.running_mean is not None
        nn.init.normal_(self.bn.running_mean, 0, 0.1)
        nn.init.uniform_(self.bn.weight, 0.5, 1.5)

    def forward(self, x: Tensor) -> Tensor:
        y = self.bn(self.patches(x)).flatten(2).transpose(1, 2)  # [B, N, C]
        y = y + self.pos if self.sign > 0 else y - self.pos
        s = self.m(self.fc(self.n(y.expand(STEPS, -1, -1, -1))))
        out: Tensor = self.head(s.mean(2)).mean(0)
        return out


class Pictures(nn.Module):
    """[C, H, W] and [C, H, 1], in place, behind convolutions of spikes and of the input, in a loop."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.n = nn.Conv2d(2, 6, 3, padding=1), lif()
        self.b, self.m, self.head = nn.Conv2d(6, 6, 3, stride=2), lif(), nn.Linear(54, 5)
        self.first, self.second = embedding(6, 8, 8), embedding(6, 3, 3)

    def forward(self, x: Tensor) -> Tensor:
        current = torch.stack([self.a(x) + self.first for _ in range(STEPS)])
        s = self.b(self.n(current).flatten(0, 1)).unflatten(0, current.shape[:2])
        s += self.second
        out: Tensor = self.head(self.m(s).flatten(2)).mean(0)
        return out


class Rows(nn.Module):
    """A Linear on every token; the embedding is added before the membrane shortcut (a stream)."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.pos, self.n = nn.Linear(8, 12), embedding(6, 12), lif()
        self.b, self.m, self.head = nn.Linear(12, 12), lif(), nn.Linear(12, 5)

    def forward(self, x: Tensor) -> Tensor:  # [B, 6, 8]
        stream = (self.a(x) + self.pos).expand(STEPS, -1, -1, -1)
        stream = stream + self.b(self.n(stream))
        out: Tensor = self.head(self.m(stream).mean(2)).mean(0)
        return out


CASES: dict[str, tuple[Callable[[], nn.Module], Tensor, list[str]]] = {
    "tokens": (Tokens, IMAGES, ["patches"]),
    "without a batch axis": (lambda: Tokens((16, 12)), IMAGES, ["patches"]),
    "subtracted": (lambda: Tokens(sign=-1.0), IMAGES, ["patches"]),
    "pictures": (Pictures, IMAGES, ["a", "b"]),
    "a stream": (Rows, 2 * drawn(32, 6, 8), ["a"]),
}


@pytest.mark.parametrize("name", CASES)
def test_every_position_has_a_bias_of_its_own(name: str, tmp_path: Path) -> None:
    make, x, layers = CASES[name]
    net = seeded(make)
    q = runs_everywhere(net, x, tmp_path, "fast+w8m8", time_axis=None)
    assert [n for n, p in q.plan.projections.items() if p.places] == layers
    assert {e.kind for e in q.plan.edits} == {"position"}
    assert agreement(net, q, x) > 0.75
    other = seeded(make)
    with torch.no_grad():
        for n, p in other.named_parameters():
            if p.dim() and n.split(".")[0] in ("pos", "first", "second"):
                p.zero_()
    assert agreement(other, q, x) < agreement(net, q, x)  # it does matter


@pytest.mark.parametrize("recipe", ["w4m4", "paper+nearest+w4m2", "fast+w4m4+brecq"])
def test_with_every_way_to_round(recipe: str, tmp_path: Path) -> None:
    quantized(seeded(Tokens), IMAGES, tmp_path, recipe, iterations=3)


def test_the_biases_are_those_of_the_float_network() -> None:
    net: Any = seeded(Tokens)
    q = ptq4snn.quantize(net, IMAGES, "fast+w8m8")
    plan = q.plan.projections["patches"]
    real = q.integers["patches"].bias * torch.tensor(plan.lattice) * 2.0**-plan.shift  # [16, 12]
    gain = net.bn.weight / torch.sqrt(net.bn.running_var + net.bn.eps)
    bias = gain * (net.patches.bias - net.bn.running_mean) + net.bn.bias
    own = q.specs["n"].gain  # of the neuron, folded as well
    expected = ((bias + net.pos[0]) * own).float().detach()
    torch.testing.assert_close(real.float(), expected, rtol=0, atol=2e-3)


class Shared(Tokens):
    """The current without the embedding goes on as well."""

    def forward(self, x: Tensor) -> Tensor:
        y = self.patches(x).flatten(2).transpose(1, 2)
        y = torch.cat([y + self.pos, y], 1)
        out: Tensor = self.head(self.m(self.fc(self.n(y.expand(STEPS, -1, -1, -1)))).mean(2)).mean(0)
        return out


class Pooled(Tokens):
    def forward(self, x: Tensor) -> Tensor:
        y = nn.functional.avg_pool2d(self.patches(x), 2).flatten(2).transpose(1, 2) + self.pos
        out: Tensor = self.head(self.m(self.fc(self.n(y.expand(STEPS, -1, -1, -1)))).mean(2)).mean(0)
        return out


class Normed(Tokens):
    """A BatchNorm behind the embedding."""

    def forward(self, x: Tensor) -> Tensor:
        y = self.patches(x).flatten(2).transpose(1, 2) + self.pos
        y = self.bn(y.transpose(1, 2).unflatten(2, (4, 4))).flatten(2).transpose(1, 2)
        out: Tensor = self.head(self.m(self.fc(self.n(y.expand(STEPS, -1, -1, -1)))).mean(2)).mean(0)
        return out


class Moving(Tokens):
    """Another embedding at every step."""

    def forward(self, x: Tensor) -> Tensor:
        y = self.patches(x).flatten(2).transpose(1, 2)
        y = torch.stack([y + self.pos * (t + 1) for t in range(STEPS)])
        out: Tensor = self.head(self.m(self.fc(self.n(y))).mean(2)).mean(0)
        return out


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (Shared, "something else reads"),
        (lambda: Pooled((1, 4, 12)), "not the output of one layer alone"),
        (Normed, "makes constants differ from place to place"),
        (Moving, "changes from call to call"),
    ],
)
def test_what_is_refused_is_refused_by_name(make: Callable[[], nn.Module], words: str) -> None:
    with pytest.raises(UnsupportedOperation, match=words) as why:
        ptq4snn.quantize(seeded(make), IMAGES, "fast+w4m4")
    assert str(why.value).count(". ") <= 1


def test_exporters(tmp_path: Path) -> None:
    quantized(seeded(Pictures), IMAGES, tmp_path)
    bundle = tmp_path / "q.ptq"
    ptq4snn.export.c(bundle, tmp_path / "c")
    pytest.importorskip("nir")
    with pytest.raises(PTQ4SNNError, match="a bias for each position"):
        ptq4snn.export.nir(bundle, tmp_path / "q.nir")
    ort = pytest.importorskip("onnxruntime")
    ptq4snn.export.onnx(bundle, tmp_path / "q.onnx", form="scan", steps=STEPS)
    session = ort.InferenceSession(tmp_path / "q.onnx")
    (found,) = session.run(None, {session.get_inputs()[0].name: IMAGES.numpy()})
    np.testing.assert_array_equal(found, runtime.load(bundle)(IMAGES.numpy()))
