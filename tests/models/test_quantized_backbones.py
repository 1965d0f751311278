"""Small random versions of the backbones, quantized end to end: every neuron, the same bits when loaded."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import torch
from oracles.backbones import slow
from torch import Tensor, nn

import ptq4snn
from ptq4snn.models.neuron import IF, LIF
from ptq4snn.models.qkformer import QKFormer
from ptq4snn.models.sew_resnet import Bottleneck, SEWResNet
from ptq4snn.models.spikformer import Spikformer
from ptq4snn.models.vgg import SpikingVGG
from ptq4snn.pipeline import Prepared, prepare, run
from ptq4snn.recipe import Recipe

RECIPE = Recipe(calibration=32, holdout=16, sensitivity_batches=1, beta=0.8, percentile=98.0)


@dataclass(frozen=True)
class Small:
    build: Callable[[], nn.Module]
    counts: tuple[int, int, int]  # pairs, streams, bare neurons
    input: tuple[int, ...] = (3, 16, 16)
    zero_state: tuple[str, ...] = field(default=())
    unused: int = 0


def sew(**arguments: Any) -> Callable[[], nn.Module]:
    return lambda: SEWResNet((8, 16), (1, 1), (1, 2), **arguments)


def spikformer(**arguments: Any) -> Callable[[], nn.Module]:
    return lambda: Spikformer(32, 1, 4, **arguments)


GROUPS = ((16,), (16, 16), (16,), (32,))
TOKENS = ("stage1.0.tssa.attn_lif", "stage2.0.tssa.attn_lif")
FRAMES = (3, 2, 32, 32)
SMALL = {
    "sew_add": Small(sew(), (6, 0, 0)),
    "sew_and": Small(sew(connect="AND", stem_kind="imagenet"), (6, 0, 0), (3, 32, 32)),
    "sew_bottleneck_iand": Small(sew(connect="IAND", neuron=IF, block=Bottleneck), (9, 0, 0)),
    "vgg_linear": Small(lambda: SpikingVGG(GROUPS), (5, 0, 0)),
    "vgg_stock": Small(lambda: SpikingVGG(GROUPS, head="stock", hidden=32), (7, 0, 0)),
    "spikformer_linear": Small(spikformer(), (11, 0, 1)),
    "spikformer_conv2d": Small(spikformer(kind="conv2d", pooling="0011"), (11, 0, 1)),
    "spikformer_conv1d": Small(
        spikformer(kind="conv1d", in_channels=2, tokens=64, scale=0.25), (11, 0, 1), FRAMES, unused=1
    ),
    "qkformer_cifar": Small(lambda: QKFormer(32, (1, 1, 1), 4), (25, 0, 3), zero_state=TOKENS),
    "qkformer_imagenet": Small(
        lambda: QKFormer(32, (1, 1, 1), 4, layout="imagenet", scale=0.5), (26, 0, 3), (3, 32, 32),
        zero_state=TOKENS,
    ),
    "qkformer_events": Small(
        lambda: QKFormer(32, (1, 1), 4, in_channels=2, mlp_ratio=1, layout="events", scale=0.5), (19, 0, 2),
        FRAMES, zero_state=TOKENS[:1],
    ),
}  # fmt: skip

QUICK = ("sew_bottleneck_iand", "vgg_linear", "spikformer_conv1d", "qkformer_imagenet")


def samples(name: str, n: int, seed: int) -> Tensor:
    """Images of 8 bits, or frames of event counts."""
    g = torch.Generator().manual_seed(seed)
    shape = (n, *SMALL[name].input)
    if len(shape) == 5:
        return torch.poisson(torch.full(shape, 0.5), generator=g)
    return (torch.randint(0, 256, shape, generator=g) / 255 - 0.5) / 0.25


def calibrated(name: str) -> nn.Module:
    """Random weights with BatchNorm statistics of random data, so that every neuron fires."""
    torch.manual_seed(0)
    model = SMALL[name].build()
    for m in model.modules():
        if isinstance(m, nn.modules.batchnorm._BatchNorm):
            m.momentum = None
            nn.init.normal_(m.weight, 1.0, 0.1)
            nn.init.normal_(m.bias, 0.8, 0.2)
        elif isinstance(m, nn.Linear):
            nn.init.normal_(m.weight, 0.0, (4 / m.in_features) ** 0.5)
            nn.init.constant_(m.bias, 0.5)
    model.train()
    with torch.no_grad():
        for i in range(3):
            model(samples(name, 16, 100 + i))
    return model.eval()


@functools.cache
def prepared(name: str) -> Prepared:
    return prepare(calibrated(name), samples(name, 32, 1), RECIPE)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("name", SMALL)
def test_every_neuron_is_quantized_and_comes_back_from_the_file(name: str, tmp_path: Path) -> None:
    small, ready = SMALL[name], prepared(name)
    q = run(ready, RECIPE)
    ran: list[str] = []
    for path, m in ready.model.named_modules():
        if isinstance(m, LIF):
            m.register_forward_hook(lambda *_a, path=path: ran.append(path))
    x = samples(name, 6, 2)
    ready.model(x[:1])
    assert list(q.plan.neurons) == ran
    assert len(ready.folded.discovery.unused_neurons) == small.unused
    kinds = [n.kind for n in q.plan.neurons.values()]
    assert (kinds.count("pair"), kinds.count("stream"), kinds.count("bare")) == small.counts
    assert tuple(n.name for n in q.plan.neurons.values() if n.zero_state) == small.zero_state
    assert abs(q.plan.average_bits() - RECIPE.membrane) < 0.1
    q.save(tmp_path / "model.ptq")
    again = ptq4snn.load(tmp_path / "model.ptq", calibrated(name))
    assert again.plan == q.plan
    assert torch.equal(again(x), q(x))
    assert all(torch.equal(again.integers[n].weight, q.integers[n].weight) for n in q.integers)


def rates(model: nn.Module, neurons: list[str], x: Tensor) -> tuple[Tensor, Tensor]:
    """Logits, and how often each neuron fires."""
    found: dict[str, float] = {}
    handles = [
        model.get_submodule(n).register_forward_hook(
            lambda _m, _a, out, n=n: found.update({n: float(out.mean())})
        )
        for n in neurons
    ]
    with torch.no_grad():
        logits = model(x)
    for h in handles:
        h.remove()
    return logits, torch.tensor([found[n] for n in neurons])


@pytest.mark.parametrize("name", [*QUICK, *slow(*((n,) for n in SMALL if n not in QUICK))])
def test_eight_bits_fire_as_often_as_the_float_model(name: str) -> None:
    """Random networks turn one flipped spike into many, so rates are compared and not spikes."""
    ready = prepared(name)
    q = run(ready, RECIPE.replace(weights=8, membrane=8.0, allocation="uniform"))
    neurons, x = list(q.plan.neurons), samples(name, 32, 3)
    (wanted, before), (_, after) = rates(ready.model, neurons, x), rates(q.model, neurons, x)
    assert bool((before > 0.002).all())
    torch.testing.assert_close(after, before, rtol=0.1, atol=0.01)
    got = q(x)
    assert torch.corrcoef(torch.stack([got.flatten(), wanted.flatten()]))[0, 1] > 0.6
    torch.testing.assert_close(got.std(), wanted.std(), rtol=0.1, atol=0.0)
    assert torch.equal(q(x[:1]), got[:1])  # a sample's result does not depend on its batch
