"""The public runtime: outputs as real numbers, step by step as all at once, and inputs that do not fit."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from runtime.oracle import Oracle
from runtime.programs import models, random_input, random_model
from runtime.test_state import frame, same

from ptq4snn.errors import DataError, PTQ4SNNError
from ptq4snn.network.program import Neuron, Output
from ptq4snn.runtime import Runtime
from ptq4snn.runtime.parameters import Model

seeds = st.integers(0, 999)


def worth(model: Model, out: Output, oracle: Oracle, t: int, b: int, e: int) -> Any:
    """Element e of one sample of an output, by the words of `Output`."""
    number = int(out.index.array()[e])
    channels = model.program.values[out.value].channels
    x: Any = oracle.at(out.value, t, b)[number]
    maker = next(
        o for o in model.program.operations if out.value in (o.output, getattr(o, "potential", None))
    )
    steps = model.program.steps
    p = model.projections.get(maker.name)
    if (
        maker.kind == "project"
        and p is not None
        and p.over_time
        and p.role == "output"
        and oracle.steps != steps
    ):
        bias = float(p.bias[number % channels])
        x = (float(x) - bias) * (steps / oracle.steps) + bias
    kind = np.dtype(out.dtype).type
    x = kind(x)
    for scaling in out.scalings:
        by = kind(scaling[1] if len(scaling) == 2 else oracle.steps)
        x = x * by if scaling[0] == "mul" else x / by
    if out.kind == "count":
        return x
    if out.kind == "current":
        q = model.projections[str(out.name)]
        unit = q.unit if q.rescale is None else q.rescale.scales
        return np.float32(np.float64(x) * unit[number % channels])
    assert isinstance(maker, Neuron)
    n = model.neurons[maker.name]
    c = number % channels if maker.channel is None else int(maker.channel.array()[number])
    return np.float32(np.float64(x) * n.unit[c] + n.v_rest)


@settings(max_examples=40)
@given(models(), seeds, st.integers(1, 4))
def test_outputs_are_what_their_description_says(model: Model, seed: int, steps: int) -> None:
    rt = Runtime(model, "numpy")
    x = random_input(model, seed, 2, steps)
    found = rt(x, steps)
    oracle = Oracle(model, rt._samples(x).tolist(), steps)
    for out, y in zip(model.program.outputs, found if isinstance(found, tuple) else (found,), strict=True):
        places = (out.batch_axis,) if out.time_axis is None else (out.time_axis, out.batch_axis)
        y = np.moveaxis(y, places, range(len(places)))
        y = y[None] if out.time_axis is None else y
        newest = steps - 1 if out.time_axis is None and model.program.values[out.value].time else 0
        assert y.dtype == (out.dtype if out.kind == "count" else "float32")
        assert y.shape == (steps if out.time_axis is not None else 1, 2, *out.shape)
        for t, b in np.ndindex(*y.shape[:2]):
            want = [worth(model, out, oracle, newest + t, b, e) for e in range(out.index.count)]
            assert y[t, b].reshape(-1).tolist() == want


@settings(max_examples=60)
@given(models(work=20000), seeds)
def test_step_by_step_is_the_whole_sequence_so_far(model: Model, seed: int) -> None:
    rt = Runtime(model, "numpy")
    still = model.program.input.time_axis is None
    x = random_input(model, seed, 2, 5)
    for t in range(5):
        stepped = rt.step(frame(model, x, t))
        part = x if still else np.take(x, range(t + 1), model.program.input.time_axis)
        whole = rt(part, steps=t + 1)
        last = [
            y if out.time_axis is None else np.take(y, -1, out.time_axis)
            for out, y in zip(
                model.program.outputs, whole if isinstance(whole, tuple) else (whole,), strict=True
            )
        ]
        assert same(stepped, tuple(last) if len(last) > 1 else last[0])
    rt.reset()
    assert rt.state is None


@settings(max_examples=40)
@given(models(), seeds)
def test_a_trace_is_in_the_models_own_order(model: Model, seed: int) -> None:
    rt = Runtime(model, "numpy")
    x = random_input(model, seed, 2)
    oracle = Oracle(model, rt._samples(x).tolist(), model.program.steps)
    trace = rt.trace(x)
    assert list(trace) == [op.name for op in model.program.operations if isinstance(op, Neuron)]
    for op in model.program.operations:
        if isinstance(op, Neuron):
            shape = model.neurons[op.name].shape
            number = np.arange(np.prod(shape)) if op.element is None else op.element.array()
            spikes = trace[op.name]["spikes"]
            assert spikes.shape == (1 if op.once else model.program.steps, 2, *shape)
            for t, b in np.ndindex(*spikes.shape[:2]):
                assert spikes[t, b].reshape(-1)[number].tolist() == oracle.at(op.output, t, b)
            assert ("state" in trace[op.name]) == (not op.once)
            if not op.once:
                state = trace[op.name]["state"].reshape(2, -1)
                assert state[:, number].tolist() == oracle.states[op.name]


class Like:
    """An array of another library."""

    def __init__(self, x: Any) -> None:
        self.x = x

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        return self.x


def test_any_kind_of_number_is_taken() -> None:
    model = random_model(4)
    rt = Runtime(model, "numpy")
    x = random_input(model, 0, 2).round()
    want = rt(x)
    for other in (x.astype(np.float64), x.astype(np.int16), Like(x), x.tolist(), x.astype(np.float16)):
        assert same(rt(other), want)


def test_what_does_not_fit_is_refused_in_one_sentence() -> None:
    model = next(m for m in map(random_model, range(50)) if m.program.input.time_axis is None)
    rt = Runtime(model, "numpy")
    x = random_input(model, 0, 2)
    size = list(x.shape)
    size[(model.program.input.batch_axis + 1) % x.ndim] += 1
    cases = [
        (x[0], "axes"),
        (np.zeros(size, np.float32), "was made for"),
        (np.full_like(x, np.nan), "NaN"),
        (x.astype(complex), "type complex"),
        (np.full(x.shape, "a"), "type"),
        (np.take(x, [], model.program.input.batch_axis), "no samples"),
    ]
    for bad, words in cases:
        with pytest.raises(DataError, match=words) as caught:
            rt(bad)
        assert "\n" not in str(caught.value)
    for steps in (0, -1, 2**16 + 1):
        with pytest.raises(DataError, match="steps"):
            rt(x, steps=steps)
    with pytest.raises(DataError, match="threads"):
        rt(x, threads=0)


def test_a_sequence_says_its_own_number_of_steps() -> None:
    model = next(m for m in map(random_model, range(50)) if m.program.input.time_axis is not None)
    rt = Runtime(model, "numpy")
    x = random_input(model, 0, 2, 3)
    assert same(rt(x), rt(x, steps=3))
    with pytest.raises(DataError, match="has 3 steps"):
        rt(x, steps=4)


def test_a_session_has_one_batch_size() -> None:
    model = random_model(4)
    rt = Runtime(model, "numpy")
    rt.step(frame(model, random_input(model, 0, 2), 0))
    with pytest.raises(DataError, match=r"rt\.reset"):
        rt.step(frame(model, random_input(model, 0, 3), 0))
    rt.reset()
    rt.step(frame(model, random_input(model, 0, 3), 0))


def test_infinite_inputs_saturate() -> None:
    model = random_model(4)
    rt = Runtime(model, "numpy")
    x = random_input(model, 0, 2)
    x[x > 0], x[x <= 0] = np.inf, -np.inf
    big = np.where(np.isinf(x), np.sign(x) * 1e6, x)
    assert same(rt(x), rt(big))


def test_kernels_are_chosen_by_name() -> None:
    model = random_model(4)
    assert Runtime(model, "numpy").kernels == "numpy"
    with pytest.raises(PTQ4SNNError, match="no kernels 'vax'"):
        Runtime(model, "vax")
    assert Runtime(model).kernels  # auto: whatever there is
