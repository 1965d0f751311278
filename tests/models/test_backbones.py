"""The built-in backbones against the published ones: parameter names, golden vectors and the table of pairs.

tests/golden/backbones.json.gz holds, for every model, the names and shapes of its parameters, what feeds each
of its neurons, and outputs of the original code on weights that anybody can make from names and shapes.
"""

from __future__ import annotations

import functools
import gzip
import json
import os
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from ptq4snn.discovery.discover import Discovery, discover
from ptq4snn.discovery.folding import fold, verify
from ptq4snn.models.neuron import LIF
from ptq4snn.models.sdt import SpikeDrivenTransformer
from ptq4snn.models.sew_resnet import SEWResNet

SDT = SpikeDrivenTransformer
BUILD: dict[str, Callable[[], nn.Module]] = {
    "sdt_2_256_cifar10": SDT,
    "sdt_2_512_cifar10": lambda: SDT(512),
    "sdt_2_256_cifar10dvs": lambda: SDT(in_channels=2, T=10, dvs=True),
    "sdt_8_512_imagenet": lambda: SDT(512, 8, num_classes=1000, pooling="1111"),
    "sdt_8_768_imagenet": lambda: SDT(768, 8, num_classes=1000, pooling="1111"),
    "sew_resnet18_cifar10": SEWResNet,
}
INPUT = {
    "sdt_2_256_cifar10dvs": (1, 10, 2, 64, 64),
    "sdt_8_512_imagenet": (1, 3, 224, 224),
    "sdt_8_768_imagenet": (1, 3, 224, 224),
}
COUNTS = {  # pairs, streams, bare
    "sdt_2_256_cifar10": (12, 5, 2),
    "sdt_2_512_cifar10": (12, 5, 2),
    "sdt_2_256_cifar10dvs": (12, 5, 2),
    "sdt_8_512_imagenet": (36, 17, 8),
    "sdt_8_768_imagenet": (36, 17, 8),
    "sew_resnet18_cifar10": (20, 0, 0),
}
full = pytest.mark.skipif(
    os.environ.get("PTQ4SNN_FULL") != "1", reason="a network of native size; PTQ4SNN_FULL=1 runs it"
)


def slow(*names: str) -> Any:
    return [pytest.param(n, marks=[full, pytest.mark.full]) for n in names]


@functools.cache
def published() -> dict[str, Any]:
    path = Path(__file__).parents[1] / "golden" / "backbones.json.gz"
    data: dict[str, Any] = json.loads(gzip.decompress(path.read_bytes()))
    return data


def shapes(model: nn.Module) -> dict[str, list[int]]:
    return {n: list(t.shape) for n, t in model.state_dict().items()}


@pytest.mark.parametrize("name", BUILD)
def test_parameters_have_the_published_names_and_shapes(name: str) -> None:
    with torch.device("meta"):
        model = BUILD[name]()
    entry = published()[name]
    assert shapes(model) == entry["keys"]
    assert sum(p.numel() for p in model.parameters()) == entry["pairs"]["params"]


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


def load_rule(model: nn.Module, golden: dict[str, Any]) -> None:
    wanted = shapes(model)
    made = {k: tensor(k, s, set(wanted), golden["rule"]) for k, s in wanted.items()}
    crc = 0
    for k in sorted(made):
        if made[k].dtype == np.float32:
            crc = zlib.crc32(made[k].astype("<f4").tobytes(), crc)
    if crc != golden["weights_crc32"]:
        pytest.skip("numpy draws other random numbers than the version that made the golden vectors")
    model.load_state_dict({k: torch.from_numpy(a) for k, a in made.items()})


def golden_input(name: str, golden: dict[str, Any]) -> Tensor:
    r = np.random.default_rng(zlib.crc32(f"input:{name}".encode()))
    shape = golden["input_shape"]
    a = (r.poisson(0.3, shape) if golden["poisson"] else r.standard_normal(shape)).astype(np.float32)
    assert zlib.crc32(a.astype("<f4").tobytes()) == golden["input_crc32"]
    return torch.from_numpy(a)


class Watch:
    """Spikes per step and the last state of every LIF, the state by the equation in its original form."""

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
            v = v + (x - v) / m.tau
            v = torch.where(s > 0, 0.0, v)
        assert set(out.unique().tolist()) <= {0.0, 1.0}
        self.spikes[name] = [int(s.sum()) for s in out]
        self.v_sum[name], self.elements[name] = float(v.sum()), v.numel()


@pytest.mark.parametrize(
    "name",
    ["sdt_2_256_cifar10", "sdt_2_256_cifar10dvs", "sew_resnet18_cifar10", *slow("sdt_8_768_imagenet")],
)
def test_golden_vectors(name: str) -> None:
    golden = published()[name]["golden"]
    model = BUILD[name]()
    load_rule(model, golden)
    model.double().eval()
    x = golden_input(name, golden).double()
    watch = Watch(model)
    with torch.no_grad():
        logits = model(x)
    expected = torch.tensor(golden["logits"], dtype=torch.float64).reshape(-1, *logits.shape).mean(0)
    tolerance = golden["tolerance"]
    for n in golden["neurons"]:
        assert watch.spikes[n["name"]] == n["spikes_per_step"], n["name"]
        allowed = tolerance["v_sum_abs_per_element"] * watch.elements[n["name"]]
        assert abs(watch.v_sum[n["name"]] - n["v_sum"]) <= allowed, n["name"]
    assert set(watch.spikes) == {n["name"] for n in golden["neurons"]}
    assert float((logits - expected).abs().max()) <= tolerance["logits_max_abs"]


def test_golden_model_folds_without_a_flip() -> None:
    name = "sdt_2_256_cifar10"
    golden = published()[name]["golden"]
    model = BUILD[name]()
    load_rule(model, golden)
    x = golden_input(name, golden)
    discovery = discover(model, x[:1])
    verify(model, discovery, x[:1])
    assert not any(isinstance(m, nn.BatchNorm2d) for m in fold(model, discovery).model.modules())


# pairs


@functools.cache
def discovered(name: str) -> Discovery:
    torch.manual_seed(0)
    return discover(BUILD[name](), torch.randn(INPUT.get(name, (1, 3, 32, 32))))


PAIRS = [
    "sdt_2_256_cifar10", "sdt_2_512_cifar10", "sdt_2_256_cifar10dvs", "sew_resnet18_cifar10",
    *slow("sdt_8_512_imagenet", "sdt_8_768_imagenet"),
]  # fmt: skip


@pytest.mark.parametrize("name", PAIRS)
def test_every_neuron_is_found_as_published(name: str) -> None:
    d, table = discovered(name), published()[name]["pairs"]
    assert list(d.neurons) == [e["lif"] for e in table["lifs"]]
    for e in table["lifs"]:
        n, spec = d.neurons[e["lif"]], d.specs[e["lif"]]
        assert n.kind == {"no_projection": "bare"}.get(e["kind"], e["kind"]), n.name
        assert list(n.layout.shape) == e["state_shape"][1:], n.name
        assert list(n.spike_sources) == e["spike_sources"], n.name
        sources = {p["proj"]: [c[3:] for c in p["chain"] if c.startswith("BN:")] for p in e["projections"]}
        assert {p: [m.name for m in d.projections[p].norms] for p in n.projections} == sources, n.name
        pooled = any(c.startswith("POOL:") for p in e["projections"] for c in p["chain"])
        assert ("max_pool" in n.ops) == pooled, n.name
        assert ("mean" in n.ops) == any("mean" in p["chain"] for p in e["projections"]), n.name
        assert float(spec.theta) == e["v_threshold"] - e["v_reset"]
        assert float(spec.leak) == 1 - 1 / e["tau"] and float(spec.gain) == 1 / e["tau"]


@pytest.mark.parametrize("name", PAIRS)
def test_totals_are_as_published(name: str) -> None:
    d, table = discovered(name), published()[name]["pairs"]
    kinds = [n.kind for n in d.neurons.values()]
    assert (kinds.count("pair"), kinds.count("stream"), kinds.count("bare")) == COUNTS[name]
    assert sum(n.layout.channels * n.layout.elements for n in d.neurons.values()) == table["state_total"]
    assert list(d.unused_neurons) == table["unused_lif"]
    assert list(d.unused_projections) == table["unused_projections"]
    steps = 10 if name.endswith("dvs") else 4
    macs = {n: p.macs for n, p in d.projections.items()}
    if name.startswith("sew"):  # a still image's stem is computed once and shown at every step
        macs["conv1"] *= steps
    assert sum(macs.values()) == steps * table["macs_per_timestep"]


def test_the_attention_neuron_of_sdt_never_holds_a_state() -> None:
    neurons = discovered("sdt_2_256_cifar10").neurons
    zero = [n.name for n in neurons.values() if n.zero_state]
    assert zero == ["block.0.attn.talking_heads_lif", "block.1.attn.talking_heads_lif"]
    bare = neurons[zero[0]]
    assert (bare.factor, bare.lo, bare.hi, bare.layout.dims) == (1.0, 0.0, 64.0, (0, 2))
    assert not bare.carries_state and neurons["head_lif"].carries_state


def test_the_stream_of_sdt_is_one() -> None:
    d = discovered("sdt_2_256_cifar10")
    writers = [n for n, p in d.projections.items() if p.stream is not None]
    assert {d.projections[n].stream for n in writers} == {0}
    assert writers == [
        "patch_embed.proj_conv3", "patch_embed.rpe_conv", "block.0.attn.proj_conv", "block.0.mlp.fc2_conv",
        "block.1.attn.proj_conv", "block.1.mlp.fc2_conv",
    ]  # fmt: skip
    readers = [n.name for n in d.neurons.values() if n.stream == 0]
    assert readers[0] == "patch_embed.proj_lif3" and d.neurons[readers[0]].kind == "pair"
    head = d.neurons["head_lif"]
    assert (head.factor, head.span) == (1 / 64, 1.0)
    assert d.outputs[0].projection == "head" and d.projections["head"].role == "output"


def small_sdt(dvs: bool = False) -> nn.Module:
    torch.manual_seed(1)
    return SDT(32, 1, heads=4, in_channels=2 if dvs else 3, T=3, dvs=dvs).eval()


def test_event_frames_come_batch_first() -> None:
    model = small_sdt(dvs=True)
    x = torch.randn(2, 5, 2, 16, 16)
    with torch.no_grad():
        both, one = model(x), model(x[:1])
    assert both.shape == (2, 10)
    torch.testing.assert_close(both[:1], one)


def test_eroding_pools_keep_the_channels_of_the_attention() -> None:
    d = discover(small_sdt(dvs=True), torch.randn(1, 3, 2, 16, 16))
    bare = d.neurons["block.0.attn.talking_heads_lif"]
    assert bare.kind == "bare" and bare.layout.shape == (4, 1, 8) and bare.layout.dims == (0, 2)
    assert bare.spike_sources == ("block.0.attn.k_lif", "block.0.attn.v_lif")


def test_a_still_image_is_a_constant_sequence() -> None:
    model = small_sdt()
    x = torch.randn(2, 3, 16, 16)
    with torch.no_grad():
        torch.testing.assert_close(model(x), model(x.unsqueeze(1).repeat(1, 3, 1, 1, 1)))


@pytest.mark.parametrize(
    ("arguments", "word"),
    [({"width": 20}, "multiple of 8"), ({"pooling": "01"}, "pooling"), ({"heads": 3}, "heads")],
)
def test_bad_arguments(arguments: dict[str, Any], word: str) -> None:
    with pytest.raises(ValueError, match=word):
        SDT(**arguments)
