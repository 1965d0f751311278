"""The published backbones: where each is in the zoo, and what is known of it.

tests/golden/backbones.json.gz holds, for every model, the names and shapes of its parameters, what feeds each
of its neurons, and outputs of the original code on weights that anybody can make from names and shapes.
"""

from __future__ import annotations

import functools
import gzip
import json
import os
import zlib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from ptq4snn.discovery.discover import Discovery, discover
from ptq4snn.models.neuron import LIF
from ptq4snn.models.sew_resnet import from_official, official_name
from ptq4snn.models.zoo import MODELS, Entry, find

TABLE = """
sdt_2_256_cifar10                                 2567082 112 22 12  5  2  5856    541440    309.2   0.0
sdt_2_256_cifar100                                2590212 112 22 12  5  2  5856    541440    309.2   0.0
sdt_2_512_cifar10                                10233546 112 22 12  5  2 11712   1082880   1234.9   0.0
sdt_2_256_cifar10dvs                              2566794 112 22 12  5  2  5856   2163456   1235.5   0.0
sdt_8_512_imagenet                               29689896 352 70 36 17  8 42432  12950016   8256.7   0.0
sdt_8_768_imagenet                               66339144 352 70 36 17  8 63648  19425024  18512.1   0.0
metaspikeformer_8_384_imagenet                   31333864 825 77 45 24  8 38064  17160672  13951.0  65.9
metaspikeformer_8_512_imagenet                   55350248 825 77 45 24  8 50752  22880896  24699.5 117.2
metaspikeformer_8_512_kd_imagenet                55991248 827 77 45 24  8 50752  22880896  24700.1 117.2
metaspikeformer_fpn_15M_voc2012                  16470142 883 93 53 31  8 27976 100016128  66528.3 167.0
metaspikeformer_fpn_55M_voc2012                  61520022 883 93 53 31  8 54272 198311936 258022.0 612.4
sew_resnet18_imagenet_official                   11689512 122 20 20  0  0  4800   2483712   1814.1   0.0
sew_resnet18_imagenet_spikingjelly               11689512 122 20 20  0  0  4800   2483712   1814.1   0.0
sew_resnet34_imagenet_official                   21797672 218 36 36  0  0  8512   3738112   3663.8   0.0
sew_resnet50_imagenet_official                   25557032 320 53 53  0  0 26560  11113984   4089.2   0.0
sew_resnet18_cifar10                             11173962 122 20 20  0  0  4800    614400    555.4   0.0
sew_resnet18_cifar100                            11220132 122 20 20  0  0  4800    614400    555.5   0.0
spiking_vgg16_bn_cifar10_linearhead              14728266  93 13 13  0  0  4224    276480    313.2   0.0
spiking_vgg16_bn_cifar100_linearhead             14774436  93 13 13  0  0  4224    276480    313.2   0.0
spiking_vgg16_bn_spikingjelly_cifar10_stockhead 134309962  97 15 15  0  0 12416    284672    432.8   0.0
spiking_vgg16_bn_spikingjelly_imagenet          138365992  97 15 15  0  0 12416  13555712  15470.3   0.0
spikformer_4_384_cifar10                          9330874 216 33 29  0  4 16464   1449984    921.5  12.6
spikformer_4_384_cifar100                         9365524 216 33 29  0  4 16464   1449984    921.5  12.6
spikformer_2_256_cifar10dvs                       2585610 121 21 17  0  2  5856   1327104    374.3   4.2
spikformer_8_512_imagenet                        29705768 376 61 53  0  8 42432  14149632   8256.7 102.8
spikformer_8_768_imagenet                        66363208 376 61 53  0  8 63648  21224448  18512.1 231.2
qkformer_4_384_cifar10                            6706234 200 35 31  0  4 11968   2369536   1511.3   4.7
qkformer_4_384_cifar100                           6740884 200 35 31  0  4 11968   2369536   1511.3   4.7
qkformer_cifar10dvs                               1504138 122 21 19  0  2  3584    905216    507.0   0.5
qkformer_10_384_imagenet                         16473688 434 77 67  0 10 32802  12296256   5831.2  67.4
qkformer_10_512_imagenet                         29079336 434 77 67  0 10 43736  16395008  10337.6  89.9
qkformer_10_768_imagenet                         64962760 434 77 67  0 10 65604  24592512  23194.1 134.9
"""  # name, parameters, keys, neurons, pair, stream, bare, channels, states, million MACs, of attention


@dataclass(frozen=True)
class Facts:
    """A line of the table: what was measured on the authors' programs, at one sample and one time step."""

    parameters: int
    keys: int
    neurons: int  # also those that never run
    kinds: tuple[int, int, int]  # pairs, streams, bare neurons
    channels: int
    states: int
    macs: float  # millions, rounded to 0.1
    attention_macs: float


def read_table() -> dict[str, Facts]:
    facts = {}
    for line in TABLE.strip().splitlines():
        name, *numbers = line.split()
        parameters, keys, neurons, pair, stream, bare, channels, states = map(int, numbers[:8])
        macs, attention = map(float, numbers[8:])
        kinds = (pair, stream, bare)
        facts[name] = Facts(parameters, keys, neurons, kinds, channels, states, macs, attention)
    return facts


FACTS = read_table()
ENTRIES = {
    "sew_resnet18_imagenet_official": "sew-resnet18-imagenet",
    "sew_resnet18_imagenet_spikingjelly": "sew-resnet18-imagenet",
    "sew_resnet34_imagenet_official": "sew-resnet34-imagenet",
    "sew_resnet50_imagenet_official": "sew-resnet50-imagenet",
    "spiking_vgg16_bn_cifar10_linearhead": "vgg16-cifar10",
    "spiking_vgg16_bn_cifar100_linearhead": "vgg16-cifar100",
    "spiking_vgg16_bn_spikingjelly_cifar10_stockhead": "vgg16-stock-cifar10",
    "spiking_vgg16_bn_spikingjelly_imagenet": "vgg16-imagenet",
    "qkformer_cifar10dvs": "qkformer-2-256-cifar10-dvs",
}


def entry_of(name: str) -> str:
    """The name here of a published model."""
    return find(ENTRIES.get(name, name))[0]


@dataclass(frozen=True)
class Backbone:
    """A published model; `T`: time steps of the traced pass."""

    name: str
    T: int = 1
    golden: tuple[str, ...] = ()

    @property
    def entry(self) -> Entry:
        return MODELS[entry_of(self.name)]

    @property
    def stem(self) -> str | None:
        """A projection that runs once for a still image."""
        return "conv1" if self.name.startswith("sew") else "features.0" if "vgg" in self.name else None

    @property
    def official(self) -> bool:
        """Published under the names of the official SEW repository."""
        return self.name.endswith("_official")

    @property
    def native(self) -> bool:
        return self.entry.data == "imagenet"

    def build(self, T: int) -> nn.Module:
        merged = {"merged_state": True} if self.name.startswith("qkformer") else {}  # as its authors have it
        return self.entry.make(T=T, **merged)

    def sample(self) -> Tensor:
        torch.manual_seed(0)
        shape = self.entry.input
        return torch.randn(1, *shape) if len(shape) == 3 else torch.randn(1, self.T, *shape[1:])


TRACED_STEPS = {  # 1 for all others
    "sdt_2_256_cifar10": 4,
    "sdt_2_512_cifar10": 4,
    "sdt_2_256_cifar10dvs": 10,
    "sdt_8_512_imagenet": 4,
    "sdt_8_768_imagenet": 4,
    "sew_resnet18_cifar10": 4,
}
ONE, BOTH = ("golden",), ("golden", "golden_other_batch")
GOLDEN = {
    **dict.fromkeys(
        (
            "sdt_2_256_cifar10", "sdt_2_256_cifar10dvs", "sdt_8_768_imagenet", "sew_resnet18_cifar10",
            "sew_resnet18_imagenet_official", "spiking_vgg16_bn_cifar10_linearhead",
            "spikformer_4_384_cifar10", "spikformer_8_512_imagenet",
        ),
        ONE,
    ),
    **dict.fromkeys(("qkformer_4_384_cifar10", "qkformer_10_384_imagenet"), BOTH),
}  # fmt: skip
BACKBONES: dict[str, Backbone] = {
    name: Backbone(name, TRACED_STEPS.get(name, 1), GOLDEN.get(name, ()))
    for name in FACTS
    if not name.startswith("metaspikeformer")  # oracles of their own
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
