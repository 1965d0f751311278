"""What no program can express: the model is quantized all the same, and operation and place are named."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from lowering.small import STEPS, images, lively, quantized
from torch import Tensor, nn
from torch.nn import functional as F

import ptq4snn
from ptq4snn.errors import UnsupportedOperation
from ptq4snn.lowering import lower
from ptq4snn.models.neuron import LIF


class Block(nn.Module):
    def __init__(self, odd: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.odd = odd

    def forward(self, x: Tensor) -> Tensor:
        return self.odd(x)


def same(x: Tensor) -> Tensor:
    return x


class Net(nn.Module):
    """Something odd with the input, with the spikes [T, B, 4, 8, 8], or with the logits [T, B, 5]."""

    def __init__(
        self,
        given: Callable[[Tensor], Tensor] = same,
        spikes: Callable[[Tensor], Tensor] = same,
        logits: Callable[[Tensor], Tensor] = lambda y: y.mean(0),
        conv: nn.Module | None = None,
    ) -> None:
        super().__init__()
        self.given, self.between, self.last = Block(given), Block(spikes), Block(logits)
        self.conv = conv or nn.Conv2d(2, 4, 3, padding=1)
        self.lif = LIF(v_threshold=0.5)
        self.head = nn.Linear(4, 5)

    def forward(self, x: Tensor) -> Tensor:
        y = self.conv(self.given(x))
        s = self.lif(y.expand(STEPS, *y.shape))
        out: Tensor = self.last(self.head(self.between(s).mean((3, 4))))
        return out


REFUSED: dict[str, tuple[Callable[[], Net], str]] = {
    "input computed": (
        lambda: Net(given=lambda x: (x / 2).clamp(0, 1)),
        "div in 'given' computes with the input",
    ),
    "reflected": (
        lambda: Net(conv=nn.Conv2d(2, 4, 3, padding=1, padding_mode="reflect")),
        "the projection 'conv' pads with 'reflect'",
    ),
    "steps mixed": (
        lambda: Net(spikes=lambda x: x + x.roll(1, 0)),
        "add in 'between' joins different time steps or samples",
    ),
    "samples mixed": (
        lambda: Net(spikes=lambda x: x + x.flip(1)),
        "add in 'between' joins different time steps or samples",
    ),
    "two steps": (
        lambda: Net(spikes=lambda x: x[:2].sum(0, keepdim=True).expand_as(x)),
        "sum in 'between' joins some of the time steps",
    ),
    "largest over time": (
        lambda: Net(spikes=lambda x: x.amax(0, keepdim=True).expand_as(x)),
        "amax in 'between' joins some of the time steps",
    ),
    "softmax": (
        lambda: Net(logits=lambda y: F.softmax(y.mean(0), 1) + 1),
        "mean in 'last' computes with the real",
    ),
    "first step": (lambda: Net(logits=lambda y: y[0]), "output 0 of the model has no axis of its own"),
    "one axis": (
        lambda: Net(logits=lambda y: y.flatten(0, 1)),
        "output 0 of the model has no axis of its own",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name: str) -> None:
    build, reason = REFUSED[name]
    q = quantized(lively(build, images()), images())
    assert q.program is None and reason in q.not_lowered
    assert q.not_lowered.count("\n") == 0
    with pytest.raises(UnsupportedOperation) as why:
        lower(q, images())
    assert str(why.value) == q.not_lowered


def test_a_model_without_a_program_is_saved_and_loaded(tmp_path: Path) -> None:
    model = lively(REFUSED["input computed"][0], images())
    q = quantized(model, images())
    q.save(tmp_path / "net.ptq")
    again = ptq4snn.load(tmp_path / "net.ptq", model)
    assert again.program is None and again.not_lowered == q.not_lowered != ""
    assert torch.equal(again(images()), q(images()))
    assert q.summary()


def test_float_arithmetic_has_no_program() -> None:
    q = quantized(lively(Net, images()), images(), arithmetic="float")
    assert q.program is None and "float arithmetic" in q.not_lowered
