"""Meta-SpikeFormer and its segmentation model against the published ones: names, golden vectors, pairs.

tests/golden/meta_spikeformer.json.gz holds, for the five published models, the names and shapes of their
parameters, what feeds each neuron, and outputs of the original code on weights made from names and shapes.
"""

from __future__ import annotations

import functools
import gzip
import json
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from oracles.backbones import FACTS, Watch, entry_of, full, golden_input, shapes, tensor
from torch import nn

from ptq4snn.discovery.discover import discover
from ptq4snn.discovery.proof import verify
from ptq4snn.models.zoo import MODELS

NAMES = [n for n in FACTS if n.startswith("metaspikeformer")]
GOLDEN = ("metaspikeformer_8_512_kd_imagenet", "metaspikeformer_fpn_15M_voc2012")


def build(name: str) -> nn.Module:
    return MODELS[entry_of(name)].make()


@functools.cache
def published() -> dict[str, Any]:
    path = Path(__file__).parents[1] / "golden" / "meta_spikeformer.json.gz"
    data: dict[str, Any] = json.loads(gzip.decompress(path.read_bytes()))
    return data


@pytest.mark.parametrize("name", NAMES)
def test_parameters_have_the_published_names_and_shapes(name: str) -> None:
    with torch.device("meta"):
        model = build(name)
    entry = published()[name]
    assert shapes(model) == entry["keys"]
    assert sum(p.numel() for p in model.parameters()) == entry["pairs"]["params"] == FACTS[name].parameters
    assert len(entry["keys"]) == FACTS[name].keys


def golden_model(name: str) -> nn.Module:
    golden, model = published()[name]["golden"], build(name)
    made = {k: tensor(k, s, set(shapes(model)), golden["rule"]) for k, s in shapes(model).items()}
    crc = 0
    for k in sorted(made):
        if made[k].dtype == np.float32:
            crc = zlib.crc32(made[k].astype("<f4").tobytes(), crc)
    if crc != golden["weights_crc32"]:
        pytest.skip("numpy draws other random numbers than the version that made the golden vectors")
    model.load_state_dict({k: torch.from_numpy(a) for k, a in made.items()})
    return model.eval()


@full
@pytest.mark.full
@pytest.mark.parametrize("name", GOLDEN)
def test_golden_vectors(name: str) -> None:
    golden, model = published()[name]["golden"], golden_model(name).double()
    watch = Watch(model)
    with torch.no_grad():
        logits = model(golden_input(name, golden).double())
    tolerance = golden["tolerance"]
    assert list(watch.spikes) == [n["name"] for n in golden["neurons"]]
    for n in golden["neurons"]:
        assert watch.spikes[n["name"]] == n["spikes_per_step"], n["name"]
        allowed = tolerance["v_sum_abs_per_element"] * watch.elements[n["name"]]
        assert abs(watch.v_sum[n["name"]] - n["v_sum"]) <= allowed, n["name"]
    part = logits[:, ::10, ::9, ::9] if logits.dim() == 4 else logits
    expected = torch.tensor(golden["logits"], dtype=torch.float64).reshape(part.shape)
    assert float((part - expected).abs().max()) <= tolerance["logits_max_abs"]
    found = (float(logits.mean()), float(logits.std(correction=0)), float(logits.abs().max()))
    assert found == pytest.approx((golden["mean"], golden["std"], golden["abs_max"]), abs=1e-7)


@full
@pytest.mark.full
@pytest.mark.parametrize("name", GOLDEN)
def test_golden_model_folds_without_a_flip(name: str) -> None:
    model, x = golden_model(name), golden_input(name, published()[name]["golden"])
    verify(model, discover(model, x), x)


@full
@pytest.mark.full
@pytest.mark.parametrize("name", NAMES)
def test_every_neuron_is_found_as_published(name: str) -> None:
    torch.manual_seed(0)
    segments, table = "fpn" in name, published()[name]["pairs"]
    d = discover(build(name), torch.randn(1, 3, *[512 if segments else 224] * 2))
    assert list(d.neurons) == [e["lif"] for e in table["lifs"]]
    for e in table["lifs"]:
        n, spec = d.neurons[e["lif"]], d.specs[e["lif"]]
        assert n.kind == {"no_projection": "bare"}.get(e["kind"], e["kind"]), n.name
        assert list(n.layout.shape) == e["state_shape"][1:] and n.layout.dims == (0,), n.name
        assert list(n.spike_sources) == e["spike_sources"], n.name
        sources = {p["proj"]: [c[3:] for c in p["chain"] if c.startswith("BN:")] for p in e["projections"]}
        assert {p: [m.name for m in d.projections[p].norms] for p in n.projections} == sources, n.name
        assert ("mean" in n.ops) == any("mean" in p["chain"] for p in e["projections"]), n.name
        assert float(spec.theta) == e["v_threshold"] and float(spec.leak) == float(spec.gain) == 0.5
    kinds = [n.kind for n in d.neurons.values()]
    assert (kinds.count("pair"), kinds.count("stream"), kinds.count("bare")) == FACTS[name].kinds
    assert sum(n.layout.channels * n.layout.elements for n in d.neurons.values()) == table["state_total"]
    assert list(d.unused_neurons) == table["unused_lif"]
    assert list(d.unused_projections) == table["unused_projections"]
    repeated = ("backbone.",) if segments else ("",)  # neck and head of the FPN run once
    macs = sum(p.macs // (4 if n.startswith(repeated) else 1) for n, p in d.projections.items())
    assert macs == table["macs_per_timestep"]
