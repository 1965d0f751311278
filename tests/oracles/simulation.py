"""Runs a program and the simulation side by side: spikes and states of every neuron, and the outputs."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from oracles.program import Interpreter
from torch import Tensor
from torch.utils._pytree import tree_flatten

from ptq4snn.modules.quantized import QuantizedModel
from ptq4snn.network.program import Neuron, Program
from ptq4snn.network.program_json import program_from_json, program_to_json


@dataclass(frozen=True)
class Trace:
    """Of every neuron spikes, states and potentials [T, B, elements], and the outputs."""

    spikes: dict[str, np.ndarray[Any, Any]]
    states: dict[str, np.ndarray[Any, Any]]
    outputs: list[np.ndarray[Any, Any]]


def simulate(q: QuantizedModel, x: Tensor) -> Trace:
    seen: dict[str, list[tuple[Tensor, Tensor]]] = {n: [] for n in q.plan.neurons}
    for name in seen:
        q.core(name).probe = lambda _x, _h, s, v, _t, n=name: seen[n].append((s.clone(), v.clone()))
    q.reset_state()
    try:
        with torch.no_grad():
            out = q(x)
    finally:
        q.reset_state()
        for name in seen:
            q.core(name).probe = None

    def stacked(which: int) -> dict[str, np.ndarray[Any, Any]]:
        return {
            n: torch.stack([step[which] for step in steps]).flatten(2).numpy() for n, steps in seen.items()
        }

    return Trace(stacked(0), stacked(1), [o.numpy() for o in tree_flatten(out)[0] if isinstance(o, Tensor)])


def interpreter(q: QuantizedModel, program: Program) -> Interpreter:
    integers = {n: (i.weight.numpy(), i.bias.numpy()) for n, i in q.integers.items()}
    return Interpreter(program, q.plan, integers)


def check_same(q: QuantizedModel, program: Program, x: Tensor, steps: int | None = None) -> Trace:
    """The program gives the simulation's spikes, states and outputs, and comes back from JSON as it was."""
    assert program_from_json(json.loads(json.dumps(program_to_json(program)))) == program
    expected, run = simulate(q, x), interpreter(q, program)
    outputs = run(x.numpy(), steps)
    neurons = [o for o in program.operations if isinstance(o, Neuron)]
    assert {o.name for o in neurons} == set(q.plan.neurons)
    for o in neurons:
        spikes = run.values[o.output][None] if o.once else run.values[o.output]
        spikes = spikes.reshape(*spikes.shape[:2], -1)
        order = np.arange(spikes.shape[-1]) if o.element is None else np.argsort(o.element.array())
        assert np.array_equal(spikes[..., order], expected.spikes[o.name]), o.name
        assert np.array_equal(run.states[o.name], expected.states[o.name]), o.name
    assert len(outputs) == len(expected.outputs)
    for found, wanted in zip(outputs, expected.outputs, strict=True):
        assert found.dtype == wanted.dtype
        assert np.array_equal(found, wanted)
    return expected
