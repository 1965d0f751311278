"""The published backbones: how each is built here, and what is known of it.

tests/golden/backbones.json.gz holds, for every model, the names and shapes of its parameters, what feeds each
of its neurons, and outputs of the original code on weights that anybody can make from names and shapes.
"""

from __future__ import annotations

import functools
import gzip
import json
import os
import zlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from ptq4snn.discovery.discover import Discovery, discover
from ptq4snn.models.neuron import LIF
from ptq4snn.models.qkformer import QKFormer
from ptq4snn.models.sdt import SpikeDrivenTransformer as SDT
from ptq4snn.models.sew_resnet import SEWResNet, from_official, official_name, sew_resnet
from ptq4snn.models.spikformer import Spikformer
from ptq4snn.models.vgg import SpikingVGG

CIFAR, IMAGE = (3, 32, 32), (3, 224, 224)


@dataclass(frozen=True)
class Backbone:
    """`counts`: pairs, streams, bare neurons. `T`: time steps of the traced pass."""

    build: Callable[[int], nn.Module]
    counts: tuple[int, int, int]
    channels: int
    input: tuple[int, ...] = CIFAR
    T: int = 1
    frames: bool = False  # the input has a time axis
    stem: str | None = None  # a projection that runs once for a still image
    official: bool = False  # published under the names of the official SEW repository
    golden: tuple[str, ...] = ()

    @property
    def native(self) -> bool:
        return self.input == IMAGE

    def sample(self) -> Tensor:
        torch.manual_seed(0)
        return torch.randn(1, *([self.T] if self.frames else []), *self.input)


def sdt(counts: tuple[int, int, int], channels: int, arguments: dict[str, Any], **rest: Any) -> Backbone:
    return Backbone(lambda T: SDT(**arguments, T=T), counts, channels, **rest)


def sew(depth: int, n: int, channels: int, arguments: dict[str, Any], **rest: Any) -> Backbone:
    build = lambda T: sew_resnet(depth, T=T, **arguments)  # noqa: E731
    return Backbone(build, (n, 0, 0), channels, stem="conv1", **rest)


def vgg(n: int, channels: int, arguments: dict[str, Any], **rest: Any) -> Backbone:
    return Backbone(lambda T: SpikingVGG(T=T, **arguments), (n, 0, 0), channels, stem="features.0", **rest)


def spikformer(n: int, bare: int, channels: int, arguments: dict[str, Any], **rest: Any) -> Backbone:
    return Backbone(lambda T: Spikformer(T=T, **arguments), (n, 0, bare), channels, **rest)


def qkformer(n: int, bare: int, channels: int, arguments: dict[str, Any], **rest: Any) -> Backbone:
    build = lambda T: QKFormer(T=T, merged_state=True, **arguments)  # noqa: E731
    return Backbone(build, (n, 0, bare), channels, **rest)


SDT_IMAGE = {"depth": 8, "num_classes": 1000, "pooling": "1111"}
SPIK_IMAGE = {"depth": 8, "heads": 8, "num_classes": 1000, "pooling": "1111", "kind": "conv2d"}
SPIK_DVS = {
    "width": 256, "depth": 2, "heads": 16, "in_channels": 2, "pooling": "1111", "scale": 0.25,
    "kind": "conv1d", "tokens": 64,
}  # fmt: skip
QK_IMAGE = {"depths": (1, 2, 7), "num_classes": 1000, "layout": "imagenet"}
QK_DVS = {
    "width": 256, "depths": (1, 1), "heads": 16, "in_channels": 2, "mlp_ratio": 1, "layout": "events",
}  # fmt: skip
STOCK = {"head": "stock"}
ONE, BOTH = ("golden",), ("golden", "golden_other_batch")

BACKBONES: dict[str, Backbone] = {
    "sdt_2_256_cifar10": sdt((12, 5, 2), 5856, {}, T=4, golden=ONE),
    "sdt_2_256_cifar100": sdt((12, 5, 2), 5856, {"num_classes": 100}),
    "sdt_2_512_cifar10": sdt((12, 5, 2), 11712, {"width": 512}, T=4),
    "sdt_2_256_cifar10dvs": sdt(
        (12, 5, 2), 5856, {"in_channels": 2, "dvs": True}, input=(2, 64, 64), T=10, frames=True, golden=ONE
    ),
    "sdt_8_512_imagenet": sdt((36, 17, 8), 42432, {**SDT_IMAGE, "width": 512}, input=IMAGE, T=4),
    "sdt_8_768_imagenet": sdt((36, 17, 8), 63648, {**SDT_IMAGE, "width": 768}, input=IMAGE, T=4, golden=ONE),
    "sew_resnet18_cifar10": Backbone(
        lambda T: SEWResNet(T=T), (20, 0, 0), 4800, T=4, stem="conv1", golden=ONE
    ),
    "sew_resnet18_cifar100": sew(18, 20, 4800, {"num_classes": 100, "stem_kind": "cifar", "neuron": LIF}),
    "sew_resnet18_imagenet_official": sew(18, 20, 4800, {}, input=IMAGE, official=True, golden=ONE),
    "sew_resnet18_imagenet_spikingjelly": sew(18, 20, 4800, {}, input=IMAGE),
    "sew_resnet34_imagenet_official": sew(34, 36, 8512, {}, input=IMAGE, official=True),
    "sew_resnet50_imagenet_official": sew(50, 53, 26560, {}, input=IMAGE, official=True),
    "spiking_vgg16_bn_cifar10_linearhead": vgg(13, 4224, {}, golden=ONE),
    "spiking_vgg16_bn_cifar100_linearhead": vgg(13, 4224, {"num_classes": 100}),
    "spiking_vgg16_bn_spikingjelly_cifar10_stockhead": vgg(15, 12416, STOCK),
    "spiking_vgg16_bn_spikingjelly_imagenet": vgg(15, 12416, {**STOCK, "num_classes": 1000}, input=IMAGE),
    "spikformer_4_384_cifar10": spikformer(29, 4, 16464, {}, golden=ONE),
    "spikformer_4_384_cifar100": spikformer(29, 4, 16464, {"num_classes": 100}),
    "spikformer_2_256_cifar10dvs": spikformer(17, 2, 5856, SPIK_DVS, input=(2, 128, 128), frames=True),
    "spikformer_8_512_imagenet": spikformer(
        53, 8, 42432, {**SPIK_IMAGE, "width": 512}, input=IMAGE, golden=ONE
    ),
    "spikformer_8_768_imagenet": spikformer(53, 8, 63648, {**SPIK_IMAGE, "width": 768}, input=IMAGE),
    "qkformer_4_384_cifar10": qkformer(31, 4, 11968, {}, golden=BOTH),
    "qkformer_4_384_cifar100": qkformer(31, 4, 11968, {"num_classes": 100}),
    "qkformer_cifar10dvs": qkformer(19, 2, 3584, QK_DVS, input=(2, 128, 128), frames=True),
    "qkformer_10_384_imagenet": qkformer(67, 10, 32802, {**QK_IMAGE, "heads": 6}, input=IMAGE, golden=BOTH),
    "qkformer_10_512_imagenet": qkformer(67, 10, 43736, {**QK_IMAGE, "width": 512}, input=IMAGE),
    "qkformer_10_768_imagenet": qkformer(67, 10, 65604, {**QK_IMAGE, "width": 768, "heads": 12}, input=IMAGE),
}
HEAVY = {"spiking_vgg16_bn_spikingjelly_cifar10_stockhead"}  # 134 million weights

full = pytest.mark.skipif(
    os.environ.get("PTQ4SNN_FULL") != "1", reason="a network of native size; PTQ4SNN_FULL=1 runs it"
)


def slow(*values: Any) -> list[Any]:
    return [pytest.param(*v, marks=[full, pytest.mark.full]) for v in values]


def marked(names: Iterable[str]) -> list[Any]:
    """Networks of native size run only with PTQ4SNN_FULL=1."""
    heavy = [n for n in names if BACKBONES[n].native or n in HEAVY]
    return [n for n in names if n not in heavy] + slow(*((n,) for n in heavy))


@functools.cache
def published() -> dict[str, Any]:
    path = Path(__file__).parents[1] / "golden" / "backbones.json.gz"
    data: dict[str, Any] = json.loads(gzip.decompress(path.read_bytes()))
    return data


def shapes(model: nn.Module) -> dict[str, list[int]]:
    return {n: list(t.shape) for n, t in model.state_dict().items()}


@functools.cache
def discovered(name: str) -> Discovery:
    backbone = BACKBONES[name]
    torch.manual_seed(0)
    return discover(backbone.build(backbone.T), backbone.sample())


def ours(name: str, published_name: str) -> str:
    """Our name of a module of a published model."""
    return official_name(published_name) if BACKBONES[name].official else published_name


# golden vectors


def tensor(key: str, shape: list[int], keys: set[str], rule: dict[str, Any]) -> np.ndarray[Any, Any]:
    """The weight rule of the golden vectors."""
    if key.endswith("num_batches_tracked"):
        return np.zeros(shape, np.int64)
    n = np.random.default_rng(zlib.crc32(key.encode())).standard_normal(tuple(shape))
    prefix, leaf = key.rsplit(".", 1)
    c = dict(rule["default"])
    for text, change in rule["overrides"]:
        if text in key:
            c.update(change)
    if leaf == "running_mean":
        a = 0.1 * n
    elif leaf == "running_var":
        a = np.exp(0.2 * n)
    elif leaf == "weight":
        a = c["gain"] * np.sqrt(2 / np.prod(shape[1:])) * n if len(shape) > 1 else 1 + 0.1 * n
    elif leaf == "bias":
        a = c["bn_bias_offset"] + 0.2 * n if prefix + ".running_mean" in keys else c["bias_offset"] + 0.1 * n
    else:
        a = 0.02 * n
    return a.astype(np.float32)


def load_rule(name: str, model: nn.Module, golden: dict[str, Any]) -> None:
    """The golden weights, made under the published names and loaded by ours."""
    wanted = published()[name]["keys"]
    made = {k: tensor(k, s, set(wanted), golden["rule"]) for k, s in wanted.items()}
    crc = 0
    for k in sorted(made):
        if made[k].dtype == np.float32:
            crc = zlib.crc32(made[k].astype("<f4").tobytes(), crc)
    if crc != golden["weights_crc32"]:
        pytest.skip("numpy draws other random numbers than the version that made the golden vectors")
    state = {k: torch.from_numpy(a) for k, a in made.items()}
    model.load_state_dict(from_official(state) if BACKBONES[name].official else state)


def golden_input(name: str, golden: dict[str, Any]) -> Tensor:
    r = np.random.default_rng(zlib.crc32(f"input:{name}".encode()))
    shape = golden["input_shape"]
    a = (r.poisson(0.3, shape) if golden["poisson"] else r.standard_normal(shape)).astype(np.float32)
    assert zlib.crc32(a.astype("<f4").tobytes()) == golden["input_crc32"]
    return torch.from_numpy(a)


class Watch:
    """Spikes per step and the last state of every neuron, the state by the equation in its original form."""

    def __init__(self, model: nn.Module) -> None:
        self.spikes: dict[str, list[int]] = {}
        self.v_sum: dict[str, float] = {}
        self.elements: dict[str, int] = {}
        for name, m in model.named_modules():
            if isinstance(m, LIF):
                m.register_forward_hook(functools.partial(self.note, name))

    def note(self, name: str, m: nn.Module, args: tuple[Tensor], out: Tensor) -> None:
        assert isinstance(m, LIF)
        v = torch.zeros_like(args[0][0])
        for x, s in zip(args[0], out, strict=True):
            v = v + x if m.leak == 1.0 else v + (x - v) / m.tau
            v = torch.where(s > 0, 0.0, v)
            assert bool(((s == 0) | (s == 1)).all())
        self.spikes[name] = [int(s.sum()) for s in out]
        self.v_sum[name], self.elements[name] = float(v.sum()), v.numel()
