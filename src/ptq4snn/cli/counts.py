"""How large a model is: measured by following one sample through it, or read from assets/models.json.

All counts are of one sample and one time step, as the papers give them:

    states            values of the membranes of all neurons that run, also of those that never hold any
    macs              multiply-accumulates of convolutions and linear layers
    attention_macs    those of products of spikes with spikes

At T = 1 everything runs once, so one pass measures them. In a segmentation model that averages over
time, neck and head run once whatever T is; they are counted with the one step.
"""

from __future__ import annotations

import functools
import json
from dataclasses import dataclass
from importlib.resources import files
from math import prod

import torch

from ptq4snn.discovery.discover import Discovery, discover
from ptq4snn.models.entry import Entry

__all__ = ["Counts", "known_counts", "measure"]

FILE = "models.json"


@dataclass(frozen=True)
class Counts:
    parameters: int
    pair: int
    stream: int
    bare: int
    channels: int
    states: int
    macs: int
    attention_macs: int


@functools.cache
def known_counts() -> dict[str, Counts]:
    """The measured counts, by name."""
    text = (files("ptq4snn") / "assets" / FILE).read_text(encoding="utf-8")
    return {name: Counts(**values) for name, values in json.loads(text).items()}


def measure(entry: Entry) -> Counts:
    """Count one step of the model, on tensors that have a shape but no memory."""
    shape = entry.input if len(entry.input) == 3 else (1, *entry.input[1:])
    with torch.device("meta"):
        model, sample = entry.make(T=1), torch.empty(1, *shape)
    found = discover(model, sample)
    neurons = found.neurons.values()
    kinds = [n.kind for n in neurons]
    return Counts(
        parameters=sum(p.numel() for p in model.parameters()),
        pair=kinds.count("pair"),
        stream=kinds.count("stream"),
        bare=kinds.count("bare"),
        channels=sum(n.layout.channels for n in neurons),
        states=sum(n.layout.channels * n.layout.elements for n in neurons),
        macs=sum(p.macs for p in found.projections.values()),
        attention_macs=products(found),
    )


def products(found: Discovery) -> int:
    """Multiply-accumulates of the matrix products [.., n, k] @ [.., k, m] in the forward pass."""
    values = found.graph.values
    return sum(
        prod(values[n.outputs[0]].shape) * values[n.inputs[0]].shape[-1]
        for n in found.graph.nodes
        if n.op == "bmm"
    )
