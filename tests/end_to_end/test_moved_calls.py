"""What forward does in front of its first layer and behind its last: input normalisation, softmax, argmax."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
import torch
from end_to_end.structures import agreement, drawn, quantized, seeded
from oracles.frameworks import runs_everywhere
from torch import Tensor, nn
from torch.nn import functional as F

import ptq4snn
from ptq4snn import runtime
from ptq4snn.errors import PTQ4SNNError
from ptq4snn.models.neuron import LIF

snn = pytest.importorskip("snntorch")
utils = pytest.importorskip("snntorch.utils")

STEPS = 4
PIXELS = (drawn(32, 3, 6, 6) * 255).round()
Front = Callable[[Any, Tensor], Tensor]
End = Callable[[Tensor], Any]


class Net(nn.Module):
    """Images [B, 3, 6, 6], padded by the first convolution; `front` and `end` are lines of its forward."""

    mean: Tensor

    def __init__(self, front: Front = lambda net, x: x, end: End = lambda y: y) -> None:
        super().__init__()
        self.front, self.end = front, end
        self.register_buffer("mean", torch.tensor([0.4, 0.3, 0.5]).view(3, 1, 1))
        self.std = nn.Parameter(torch.tensor([0.2, 0.3, 0.25]).view(3, 1, 1))
        self.conv, self.n = nn.Conv2d(3, 8, 3, padding=1), LIF(v_threshold=0.5)
        self.fc, self.m, self.head = nn.Linear(72, 16), LIF(v_threshold=0.5), nn.Linear(16, 5)

    def forward(self, x: Tensor) -> Any:
        y = self.n(self.conv(self.front(self, x)).expand(STEPS, -1, -1, -1, -1))
        y = F.avg_pool2d(y.flatten(0, 1), 2).unflatten(0, y.shape[:2])
        return self.end(self.head(self.m(self.fc(y.flatten(2)))).mean(0))


def net(front: Front = lambda net, x: x, end: End = lambda y: y) -> nn.Module:
    made: Any = seeded(lambda: Net(front, end), gain=1.0)
    with torch.no_grad():
        for layer in (made.conv, made.fc, made.head):
            layer.weight.mul_(2.5)
        made.head.bias.zero_()
    return cast(nn.Module, made)


FRONTS: dict[str, tuple[Front, float, Callable[[Any, Tensor], Tensor]]] = {
    # what forward does, pixels by this, and the same outside of the model
    "mean and std": (lambda n, x: (x - n.mean) / n.std, 255.0, lambda n, x: (x - n.mean) / n.std),
    "in place": (lambda n, x: x.clone().sub_(n.mean).div_(n.std), 255.0, lambda n, x: (x - n.mean) / n.std),
    "bytes": (lambda n, x: x / 255, 1.0, lambda n, x: x / 255),
    "-1 to 1": (lambda n, x: x * 2 - 1, 255.0, lambda n, x: x * 2 - 1),
    "turned round": (lambda n, x: 1 - x, 255.0, lambda n, x: 1 - x),
    "bytes, then mean and std": (
        lambda n, x: (x.float().div(255) - n.mean).div(n.std), 1.0, lambda n, x: (x / 255 - n.mean) / n.std
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", FRONTS)
def test_input_normalisation_is_in_the_grid(name: str, tmp_path: Path) -> None:
    """The same integers as with samples that were normalised outside: only what reads the input differs."""
    front, by, outside = FRONTS[name]
    model = net(front)
    x = PIXELS / by
    q = quantized(model, x, tmp_path)
    with torch.no_grad():
        given = outside(model, x)
    expected = ptq4snn.quantize(net(), given, "fast+w4m4")
    assert torch.equal(q(x), expected(given))
    a, b = q.plan.projections["conv"].input, expected.plan.projections["conv"].input
    assert a is not None and b is not None and a.exact
    np.testing.assert_allclose(a.scales, b.scales, rtol=1e-6)
    assert len(a.raw_scales) == 3 and {e.kind for e in q.plan.edits} == {"input"}


def test_any_input_is_read_alike(tmp_path: Path) -> None:
    """Inputs on no grid, and far outside of those seen: simulation and program read them by the same grid."""
    model = net(lambda n, x: (x - n.mean) / n.std)
    q = quantized(model, drawn(32, 3, 6, 6), tmp_path, "fast+w8m8")
    x = torch.randn(64, 3, 6, 6, generator=torch.Generator().manual_seed(5)) * 3
    for kernels in ("numpy", "auto"):
        found = runtime.load(tmp_path / "q.ptq", kernels=kernels)(x.numpy())
        np.testing.assert_array_equal(found, q(x).numpy())
    assert agreement(model, q, drawn(32, 3, 6, 6)) > 0.9


class Frames(nn.Module):
    """Frames [T, B, 8], normalised one by one in a loop."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.n, self.b = nn.Linear(8, 16), LIF(v_threshold=0.5), nn.Linear(16, 4)

    def forward(self, x: Tensor) -> Tensor:
        y = torch.stack([self.a((frame - 0.25) / 0.5) for frame in x])
        return F.log_softmax(self.b(self.n(y)).sum(0), dim=-1)


def test_frames_of_a_loop(tmp_path: Path) -> None:
    q = runs_everywhere(seeded(Frames), drawn(5, 32, 8), tmp_path, "fast+w4m4", batch_axis=1)
    assert sorted(e.kind for e in q.plan.edits) == ["input", "input", "log_softmax"]


class Elsewhere(Net):
    """What is normalised goes another way too, or differs from pixel to pixel."""

    def __init__(self, how: str) -> None:
        super().__init__()
        self.how, self.image = how, nn.Parameter(torch.linspace(0, 1, 36).view(6, 6))
        self.front = self.normalised

    def normalised(self, _: Any, x: Tensor) -> Tensor:
        if self.how == "pixels":
            return x - self.image
        x = (x - self.mean) / self.std
        return x.clamp(-1, 1)


@pytest.mark.parametrize("how", ["pixels", "clamp"])
def test_what_no_grid_can_do_stays_float(how: str) -> None:
    model = seeded(lambda: Elsewhere(how))
    q = ptq4snn.quantize(model, PIXELS / 255, "fast+w8m8")
    assert not q.plan.edits and q.program is None
    assert "input; prepare it outside of the model" in q.not_lowered or "clip" in q.not_lowered


ENDS: dict[str, tuple[End, list[str]]] = {
    "softmax": (lambda y: F.softmax(y, 1), ["softmax"]),
    "method": (lambda y: y.softmax(-1), ["softmax"]),
    "log_softmax": (lambda y: torch.log_softmax(y, dim=1), ["log_softmax"]),
    "module": (nn.LogSoftmax(dim=1), ["log_softmax"]),
    "argmax": (lambda y: y.argmax(1), ["argmax"]),
    "both": (lambda y: F.softmax(y, 1).argmax(1), ["softmax", "argmax"]),
}


@pytest.mark.parametrize("name", ENDS)
def test_what_forward_ends_with(name: str, tmp_path: Path) -> None:
    end, kinds = ENDS[name]
    x = PIXELS / 255
    model = net(end=end)
    q = runs_everywhere(model, x, tmp_path, "fast+w4m4", time_axis=None)
    logits = ptq4snn.quantize(net(), x, "fast+w4m4")
    assert [e.kind for e in q.plan.edits] == kinds and q.plan.neurons == logits.plan.neurons
    torch.testing.assert_close(q(x), end(logits(x)))  # nothing was chosen by softmaxed numbers
    labels = logits(x).argmax(1)
    assert ptq4snn.evaluate(q, (x, labels), progress=False)["accuracy"] == 100.0
    assert q.report["summary"]["kl"] == logits.report["summary"]["kl"]


def test_several_outputs_each_with_an_end_of_its_own(tmp_path: Path) -> None:
    x = PIXELS / 255
    q = ptq4snn.quantize(net(end=lambda y: (y, F.softmax(y, 1), y.argmax(1))), x, "fast+w4m4")
    assert q.program is not None, q.not_lowered
    q.save(tmp_path / "q.ptq")
    logits, shares, best = runtime.load(tmp_path / "q.ptq")(x.numpy())
    for found, expected in zip((logits, shares, best), q(x), strict=True):
        np.testing.assert_array_equal(found, expected.numpy())
    assert best.dtype == np.int64 and logits.dtype == shares.dtype == np.float32
    np.testing.assert_array_equal(logits.argmax(1), best)


def test_a_softmax_that_something_follows_stays_float() -> None:
    q = ptq4snn.quantize(net(end=lambda y: F.softmax(y, 1) * 2), PIXELS / 255, "fast+w4m4")
    assert q.program is None and "return what is in front of it" in q.not_lowered


def test_exporters_do_it_or_refuse_it_by_name(tmp_path: Path) -> None:
    x = PIXELS / 255
    quantized(net(lambda n, x: (x - n.mean) / n.std, lambda y: F.softmax(y, 1)), x, tmp_path)
    bundle = tmp_path / "q.ptq"
    ptq4snn.export.c(bundle, tmp_path / "c")
    assert "softmax" in (tmp_path / "c" / "q.h").read_text()
    pytest.importorskip("nir")
    with pytest.raises(PTQ4SNNError, match="NIR"):
        ptq4snn.export.nir(bundle, tmp_path / "q.nir")
    ort = pytest.importorskip("onnxruntime")
    ptq4snn.export.onnx(bundle, tmp_path / "q.onnx", form="scan", steps=STEPS)
    session = ort.InferenceSession(tmp_path / "q.onnx")
    (found,) = session.run(None, {session.get_inputs()[0].name: x.numpy()})
    np.testing.assert_array_equal(found, runtime.load(bundle)(x.numpy()))


class Step(nn.Module):
    """One step a call; `inside`: normalised by the net itself, else by the loop around it."""

    def __init__(self, inside: bool) -> None:
        super().__init__()
        self.inside = inside
        self.a, self.n, self.b = nn.Linear(8, 16), snn.Leaky(0.9, init_hidden=True), nn.Linear(16, 4)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.b(self.n(self.a((x - 0.5) / 0.25 if self.inside else x)))
        return out


def loop(model: Any, x: Tensor) -> Tensor:
    net = getattr(model, "model", model)
    utils.reset(net)
    inside = getattr(net, "inside", True)
    out = torch.stack([model(x if inside else (x - 0.5) / 0.25) for _ in range(5)]).mean(0)
    return out.softmax(1)


@pytest.mark.parametrize("inside", [True, False])
def test_loops_around_the_net(inside: bool, tmp_path: Path) -> None:
    """What the loop does stays the loop's: a step reads what it is given."""
    x = drawn(48, 8)
    q = ptq4snn.quantize(seeded(lambda: Step(inside)), x, "fast+w4m4", loop=loop)
    assert ("input" in {e.kind for e in q.plan.edits}) is inside
    torch.testing.assert_close(loop(q, x), q.sequence(x))
    assert (q.program is not None) is inside
    if inside:
        q.save(tmp_path / "q.ptq")
        np.testing.assert_array_equal(runtime.load(tmp_path / "q.ptq")(x.numpy()), q.sequence(x).numpy())
