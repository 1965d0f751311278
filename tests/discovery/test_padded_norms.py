"""BatchNorms that pad with what they make of 0 (RepConv), and biases that travel through chains."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ptq4snn import pipeline
from ptq4snn.discovery.discover import discover
from ptq4snn.discovery.folding import fold
from ptq4snn.discovery.proof import verify
from ptq4snn.discovery.surgery import copy_model
from ptq4snn.errors import UnsupportedOperation
from ptq4snn.models.meta_spikeformer import BNAndPad, RepConv
from ptq4snn.models.neuron import LIF
from ptq4snn.models.patches import per_step
from ptq4snn.modules.quantized import QuantizedModel
from ptq4snn.numerics.fixed_point import rshift_even
from ptq4snn.recipe import Recipe


def random_norms(model: nn.Module) -> nn.Module:
    for m in model.modules():
        if isinstance(m, nn.BatchNorm2d):
            nn.init.normal_(m.weight, 1.0, 0.4)
            nn.init.normal_(m.bias, 0.5, 0.5)
            nn.init.normal_(m.running_mean, 0.0, 0.5)  # type: ignore[arg-type]
            nn.init.uniform_(m.running_var, 0.2, 1.0)  # type: ignore[arg-type]
    return model.eval()


class OriginalLayer(nn.Module):
    """The layer as published code has it: the border is written into the padded output."""

    def __init__(self, channels: int, pad_pixels: int = 1) -> None:
        super().__init__()
        self.bn, self.pad_pixels = nn.BatchNorm2d(channels), pad_pixels

    def forward(self, x: Tensor) -> Tensor:
        bn, p = self.bn, self.pad_pixels
        y: Tensor = bn(x)
        assert bn.running_mean is not None and bn.running_var is not None
        value = bn.bias - bn.running_mean * bn.weight / torch.sqrt(bn.running_var + bn.eps)
        y = F.pad(y, [p] * 4)
        value = value.view(1, -1, 1, 1)
        y[:, :, :p, :], y[:, :, -p:, :] = value, value
        y[:, :, :, :p], y[:, :, :, -p:] = value, value
        return y


class Net(nn.Module):
    """An encoder, and a neuron behind the projections to be looked at."""

    def __init__(self, body: nn.Module, width: int = 4, T: int = 3) -> None:
        super().__init__()
        self.T = T
        self.stem, self.lif1 = nn.Conv2d(3, width, 3, padding=1), LIF()
        self.body, self.lif2 = body, LIF()
        self.head = nn.Linear(width, 5)

    def forward(self, x: Tensor) -> Tensor:
        s = self.lif1(per_step(self.stem, 4 * x.repeat(self.T, 1, 1, 1, 1)))
        logits: Tensor = self.head(self.lif2(per_step(self.body, s)).mean((0, 3, 4)))
        return logits


def net(body: nn.Module) -> nn.Module:
    torch.manual_seed(1)
    return random_norms(Net(body))


@pytest.mark.parametrize("pixels", [1, 2])
def test_the_border_is_the_norm_of_zeros(pixels: int) -> None:
    torch.manual_seed(0)
    layer, original = BNAndPad(4, pixels), OriginalLayer(4, pixels)
    random_norms(layer).double()
    original.load_state_dict(layer.state_dict())
    x = torch.randn(2, 4, 5, 6, dtype=torch.float64)
    y = layer(x)
    torch.testing.assert_close(y, layer.bn(F.pad(x, [pixels] * 4)), rtol=0, atol=1e-14)
    torch.testing.assert_close(y, original.double().eval()(x), rtol=0, atol=1e-14)


def test_training_statistics_are_those_of_the_input_without_its_border() -> None:
    x = torch.randn(8, 4, 5, 6) + 3
    layer, bn = BNAndPad(4).train(), nn.BatchNorm2d(4).train()
    layer(x), bn(x)
    assert torch.equal(layer.bn.running_mean, bn.running_mean)  # type: ignore[arg-type]


@pytest.mark.parametrize("published", [False, True])
def test_a_repconv_folds_exactly(published: bool) -> None:
    body = RepConv(4)
    if published:
        body.body[1] = OriginalLayer(4)
    model, x = net(nn.Sequential(body, nn.BatchNorm2d(4))), torch.randn(4, 3, 6, 6)
    d = discover(copy_model(model), x)
    assert [n.border for n in d.projections["body.0.body.0"].norms] == [1]
    verify(model, d, x)
    folded = fold(model, d, torch.float64)
    parts = [folded.projection(f"body.0.body.{i}") for i in ("0", "2.0", "2.1")]
    assert [p.bias is not None for p in parts] == [False, False, True]
    assert isinstance(folded.model.get_submodule("body.0.body.1"), nn.ZeroPad2d)
    s = torch.randint(0, 2, (2, 4, 6, 6)).double()
    expected = model.double().get_submodule("body")(s) * 0.5  # the neuron's gain
    with torch.no_grad():
        torch.testing.assert_close(folded.model.get_submodule("body")(s), expected, rtol=0, atol=1e-12)


def test_a_bias_travels_through_a_chain_where_nothing_pads() -> None:
    def chain(padding: int) -> nn.Module:
        return nn.Sequential(
            nn.Conv2d(4, 4, 1), nn.Conv2d(4, 4, 3, padding=padding, groups=2), nn.Conv2d(4, 4, 1)
        )

    x = torch.randn(4, 3, 6, 6)
    for padding, left in ((0, [False, False, True]), (1, [True, False, True])):
        model = net(chain(padding))
        d = discover(copy_model(model), x)
        verify(model, d, x)
        folded = fold(model, d, torch.float64)
        assert [folded.projection(f"body.{i}").bias is not None for i in range(3)] == left
        s = torch.randint(0, 2, (2, 4, 6, 6)).double()
        expected = model.double().get_submodule("body")(s) * 0.5
        torch.testing.assert_close(folded.model.get_submodule("body")(s), expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize(
    ("body", "word"),
    [
        (lambda: (nn.Conv2d(4, 4, 1, bias=False), BNAndPad(4)), "without padding"),
        (
            lambda: (nn.Conv2d(4, 4, 1, bias=False), BNAndPad(4), nn.Conv2d(4, 4, 3, padding=1)),
            "without padding",
        ),
        (lambda: (nn.Conv2d(4, 4, 1), BNAndPad(4), nn.Conv2d(4, 4, 3)), "bias"),
        (
            lambda: (nn.Conv2d(4, 4, 1, bias=False), nn.BatchNorm2d(4), BNAndPad(4), nn.Conv2d(4, 4, 3)),
            "bias",
        ),
    ],
)
def test_borders_that_cannot_be_folded_are_named(body: object, word: str) -> None:
    model = net(nn.Sequential(*body()))  # type: ignore[operator]
    with pytest.raises(UnsupportedOperation, match=f"'body.[12]' pads.*{word}"):
        discover(model, torch.randn(1, 3, 6, 6))


def integers(q: QuantizedModel, name: str, x: Tensor, last: bool = False) -> Tensor:
    """A projection of the plan in int64: ((Wq x) << F) + bq, brought to 8 bits unless it is the last."""
    plan, own = q.plan.projections[name], q.integers[name]
    groups = x.shape[1] // own.weight.shape[1]
    y: Tensor = F.conv2d(x.double(), own.weight, groups=groups).long() << plan.shift
    y = y + own.bias.long().view(-1, 1, 1)
    if last:
        return y
    assert plan.rescale is not None and plan.rescale.bits == 8
    rows = zip(y.unbind(1), plan.rescale.multipliers, plan.rescale.shifts, strict=True)
    return torch.stack([rshift_even(c * m, n) for c, m, n in rows], 1).clamp(-128, 127)


def test_a_quantized_repconv_is_three_integer_projections() -> None:
    model = net(nn.Sequential(RepConv(4), nn.BatchNorm2d(4)))
    x = (torch.randint(0, 256, (48, 3, 6, 6)) / 255 - 0.5) / 0.25
    recipe = Recipe(calibration=32, holdout=16, allocation="uniform")
    q = pipeline.run(pipeline.prepare(model, x, recipe), recipe)
    s = torch.randint(0, 2, (8, 4, 6, 6))
    y = F.pad(integers(q, "body.0.body.0", s), [1] * 4)
    y = integers(q, "body.0.body.2.1", integers(q, "body.0.body.2.0", y), last=True)
    q.clock.start()
    with torch.no_grad():
        found = q.model.get_submodule("body")(s.float())
    assert torch.equal(found.long(), y) and bool((found == found.round()).all())
