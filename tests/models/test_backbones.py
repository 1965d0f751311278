"""The built-in backbones against the published ones: parameter names, golden vectors, table of pairs."""

from __future__ import annotations

from math import prod
from typing import Any

import pytest
import torch
from oracles.backbones import (
    BACKBONES,
    FACTS,
    Watch,
    discovered,
    golden_input,
    load_rule,
    marked,
    ours,
    published,
    shapes,
    slow,
)
from torch import nn

from ptq4snn.discovery.discover import discover
from ptq4snn.discovery.folding import fold
from ptq4snn.discovery.proof import verify
from ptq4snn.models.sew_resnet import from_official

GOLDEN = [(n, run) for n, b in BACKBONES.items() for run in b.golden]


@pytest.mark.parametrize("name", BACKBONES)
def test_parameters_have_the_published_names_and_shapes(name: str) -> None:
    with torch.device("meta"):
        model = BACKBONES[name].build(4)
    entry = published()[name]
    assert shapes(model) == (from_official(entry["keys"]) if BACKBONES[name].official else entry["keys"])
    assert sum(p.numel() for p in model.parameters()) == entry["pairs"]["params"] == FACTS[name].parameters
    assert len(entry["keys"]) == FACTS[name].keys


@pytest.mark.parametrize(
    ("name", "run"),
    [g for g in GOLDEN if not BACKBONES[g[0]].native] + slow(*(g for g in GOLDEN if BACKBONES[g[0]].native)),
)
def test_golden_vectors(name: str, run: str) -> None:
    golden = published()[name][run]
    model = BACKBONES[name].build(golden["T"])
    load_rule(name, model, golden)
    model.double().eval()
    x = golden_input(name, golden).double()
    watch = Watch(model)
    with torch.no_grad():
        logits = model(x)
    expected = torch.tensor(golden["logits"], dtype=torch.float64).reshape(-1, *logits.shape).mean(0)
    tolerance = golden["tolerance"]
    for n in golden["neurons"]:
        neuron = ours(name, n["name"])
        assert watch.spikes[neuron] == n["spikes_per_step"], neuron
        allowed = tolerance["v_sum_abs_per_element"] * watch.elements[neuron]
        assert abs(watch.v_sum[neuron] - n["v_sum"]) <= allowed, neuron
    assert set(watch.spikes) == {ours(name, n["name"]) for n in golden["neurons"]}
    assert float((logits - expected).abs().max()) <= tolerance["logits_max_abs"]


@pytest.mark.parametrize("name", ["sdt_2_256_cifar10", "qkformer_4_384_cifar10"])
def test_golden_model_folds_without_a_flip(name: str) -> None:
    golden = published()[name]["golden"]
    model = BACKBONES[name].build(golden["T"])
    load_rule(name, model, golden)
    x = golden_input(name, golden)
    discovery = discover(model, x[:1])
    verify(model, discovery, x[:1])
    norms = nn.modules.batchnorm._BatchNorm
    assert not any(isinstance(m, norms) for m in fold(model, discovery).model.modules())


def state_shape(entry: dict[str, Any]) -> list[int]:
    """Of one sample; neurons that see time and batch on one axis are published without a batch axis."""
    shape: list[int] = entry["state_shape"]
    return shape[1:] if shape[0] == 1 else shape


@pytest.mark.parametrize("name", marked(BACKBONES))
def test_every_neuron_is_found_as_published(name: str) -> None:
    d, table = discovered(name), published()[name]["pairs"]
    assert list(d.neurons) == [ours(name, e["lif"]) for e in table["lifs"]]
    for e in table["lifs"]:
        n = d.neurons[ours(name, e["lif"])]
        spec = d.specs[n.name]
        assert n.kind == {"no_projection": "bare"}.get(e["kind"], e["kind"]), n.name
        assert list(n.layout.shape) == state_shape(e), n.name
        assert list(n.spike_sources) == e["spike_sources"], n.name
        sources = {
            ours(name, p["proj"]): [ours(name, c[3:]) for c in p["chain"] if c.startswith("BN:")]
            for p in e["projections"]
        }
        assert {p: [m.name for m in d.projections[p].norms] for p in n.projections} == sources, n.name
        pooled = any(c.startswith("POOL:") for p in e["projections"] for c in p["chain"])
        assert ("max_pool" in n.ops) == pooled, n.name
        assert ("mean" in n.ops) == any("mean" in p["chain"] for p in e["projections"]), n.name
        assert float(spec.theta) == e["v_threshold"] - e["v_reset"]
        leak, gain = (1 - 1 / e["tau"], 1 / e["tau"]) if e["tau"] else (1.0, 1.0)  # IF has no tau
        assert (float(spec.leak), float(spec.gain)) == (leak, gain)


@pytest.mark.parametrize("name", marked(BACKBONES))
def test_totals_are_as_published(name: str) -> None:
    d, table, backbone = discovered(name), published()[name]["pairs"], BACKBONES[name]
    kinds = [n.kind for n in d.neurons.values()]
    facts = FACTS[name]
    assert (kinds.count("pair"), kinds.count("stream"), kinds.count("bare")) == facts.kinds
    assert sum(n.layout.channels for n in d.neurons.values()) == facts.channels
    assert table["state_total"] == facts.states and len(d.specs) == facts.neurons
    assert sum(n.layout.channels * n.layout.elements for n in d.neurons.values()) == table["state_total"]
    assert list(d.unused_neurons) == table["unused_lif"]
    assert list(d.unused_projections) == table["unused_projections"]
    macs = {n: p.macs for n, p in d.projections.items()}
    if backbone.stem:  # a still image's stem is computed once and shown at every step
        macs[backbone.stem] *= backbone.T
    if name.startswith(("spikformer", "qkformer")):  # the head reads the mean over time
        macs["head"] *= backbone.T
    assert sum(macs.values()) == backbone.T * table["macs_per_timestep"]
    products = [n for n in d.graph.nodes if n.op == "bmm"]
    size = sum(
        prod(d.graph.values[n.outputs[0]].shape) * d.graph.values[n.inputs[0]].shape[-1] for n in products
    )
    assert size == backbone.T * table.get("attn_matmul_macs_per_timestep", 0)
