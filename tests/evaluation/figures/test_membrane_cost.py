"""The motivation figure, from the published sizes of SDT-8-768 by hand, and from models that ran."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import nn

from ptq4snn.cli.counts import known_counts
from ptq4snn.discovery.discover import discover
from ptq4snn.models.sdt import SpikeDrivenTransformer
from ptq4snn.report.figures import membrane_cost
from ptq4snn.report.figures.membrane_cost import ideal_rows
from ptq4snn.schema.figure_types import MembraneCostData

BATCHES, STEPS = (1, 2, 4, 8, 16, 32, 64), (1, 2, 4, 8, 16, 32)


@dataclass
class SDT:
    """A Spike-Driven Transformer with four poolings, by its layer sizes."""

    width: int
    depth: int
    size: int
    classes: int
    heads: int = 8

    @property
    def weights(self) -> int:
        w = self.width
        embedding = 9 * (3 * w // 8 + w // 8 * w // 4 + w // 4 * w // 2 + w // 2 * w + w * w)
        return embedding + self.depth * (4 * w * w + 2 * 4 * w * w) + w * self.classes

    @property
    def parameters(self) -> int:
        w = self.width
        norms = 2 * (w // 8 + w // 4 + w // 2 + w + w) + self.depth * 2 * (4 * w + 4 * w + w)
        biases = self.depth * (w + 4 * w + w) + self.classes  # of proj, fc1, fc2 and the head
        return self.weights + norms + biases + self.depth * self.heads**2  # talking_heads, which never runs

    @property
    def tokens(self) -> int:
        return (self.size // 16) ** 2

    @property
    def states(self) -> int:
        w, s = self.width, self.size
        embedding = w // 8 * s**2 + w // 4 * (s // 2) ** 2 + w // 2 * (s // 4) ** 2 + w * self.tokens
        attention = 4 * w * self.tokens + w  # shortcut, q, k, v; the sum of k * v
        mlp = w * self.tokens + 4 * w * self.tokens
        return embedding + self.depth * (attention + mlp) + w

    @property
    def carried(self) -> int:
        return self.states - self.depth * self.width  # the neuron behind k * v never keeps anything


PAPER = SDT(768, 8, 224, 1000)


def curves(weights: int, states: int) -> dict[tuple[str, int], tuple[float, float]]:
    """M32 and M4 bytes at each batch size and T."""
    found = {}
    for b in BATCHES:
        found["batch", b] = (weights / 2 + 4 * states * b, weights / 2 + states * b / 2)
    for t in STEPS:
        found["T", t] = (t * (4 * states + 4 * states), t * (states / 2 + states / 2))
    return found


def test_numbers_of_sdt_8_768() -> None:
    counts = known_counts()["sdt-8-768-imagenet"]
    assert (PAPER.parameters, PAPER.states) == (66_339_144, 19_425_024)
    assert (counts.parameters, counts.states) == (66_339_144, 19_425_024)


def test_curves_of_sdt_8_768() -> None:
    rows = ideal_rows(PAPER.weights, PAPER.states)
    assert {(r["axis"], r["value"]): (r["m32"], r["m4"]) for r in rows} == curves(PAPER.weights, PAPER.states)
    assert PAPER.weights == 66_185_760
    at = {(r["axis"], r["value"]): r for r in rows}
    assert at["batch", 1]["weights"] == 33_092_880 and at["T", 1]["weights"] is None
    # at B = 1 the 32-bit states outweigh the weights already; 4 bits make states 8 times smaller
    assert at["batch", 1]["m32"] - 33_092_880 == 8 * (at["batch", 1]["m4"] - 33_092_880) == 77_700_096
    assert all(r["m32"] == 8 * r["m4"] for r in rows if r["axis"] == "T")


def made(sizes: SDT) -> MembraneCostData:
    with torch.device("meta"):
        model = SpikeDrivenTransformer(
            sizes.width, sizes.depth, sizes.heads, sizes.classes, T=4, pooling="1111"
        )
        sample = torch.empty(2, 3, sizes.size, sizes.size)
    found = discover(model, sample)
    assert sum(p.numel() for p in model.parameters()) == sizes.parameters
    modules: dict[str, Any] = dict(model.named_modules())
    return membrane_cost.data(found, sum(modules[n].weight.numel() for n in found.projections))


@pytest.mark.parametrize(
    "sizes",
    [
        SDT(32, 1, 32, 7),
        pytest.param(
            PAPER,
            marks=[
                pytest.mark.full,
                pytest.mark.skipif("PTQ4SNN_FULL" not in os.environ, reason="PTQ4SNN_FULL=1 runs it"),
            ],
        ),
    ],
    ids=["small", "SDT-8-768"],
)
def test_a_model_that_ran(sizes: SDT) -> None:
    data = made(sizes)
    assert (data["weights"], data["states"], data["carried_states"]) == (
        sizes.weights,
        sizes.states,
        sizes.carried,
    )
    assert data["stream_bytes"] == 2 * sizes.width * sizes.tokens  # one residual stream of 16 bits
    assert data["rows"] == ideal_rows(sizes.weights, sizes.states)
    assert "weight_bytes" not in data


def test_the_curve_of_a_plan(summed: Any) -> None:
    """Weights and metadata once, states and streams for each sample; words of four bytes per step."""
    s, data = summed.model.report["summary"], summed.model.report["figures"]["membrane-cost"]
    weights = sum(m.weight.numel() for m in summed.prepared.model.modules() if isinstance(m, nn.Linear))
    assert data["weights"] == weights and data["states"] == 8 + 5
    w, b = s["weight_bytes"], s["state_bytes"]
    assert data["weight_bytes"] == w["quantized"] + w["scales"] + w["biases"]
    for r in data["rows"]:
        if r["axis"] == "batch":
            each = b["payload"] + s["stream_bytes"]
            assert r["this"] == data["weight_bytes"] + b["metadata"] + r["value"] * each
            assert r["this"] - r["logical"] == r["value"] * (b["payload"] - b["logical"])
        else:
            assert r["logical"] == 2 * r["value"] * b["logical"]
            assert r["this"] == 2 * r["value"] * 4 * s["state_words"]["packed"]
