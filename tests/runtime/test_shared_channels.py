"""Threads that share the channels of one image: the same bits as NumPy."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from runtime.native_tools import levels
from runtime.test_large_images import STEPS, neuron, projection

from ptq4snn.network.index import Window, identity
from ptq4snn.network.program import Combine, Input, Neuron, Output, Program, Project, Quantize, Value
from ptq4snn.runtime.loading import build
from ptq4snn.runtime.native import NativeExecutor
from ptq4snn.runtime.parameters import Model
from ptq4snn.runtime.reference import NumpyExecutor
from ptq4snn.runtime.state import State

SIDE, CHANNELS = 6, 256


def residual_model(bits: int = 8, odd: int = 0) -> Model:
    """Two convolutions with neurons of four words of channels, and a reader of the sum of their spikes. The
    states of `odd` channels have 8 bits, the others `bits`."""
    rng = np.random.default_rng(0)
    same = Window((SIDE, SIDE), (3, 3), (1, 1), (1, 1), (1, 1), (1, 1))
    n = SIDE * SIDE
    operations = (
        Quantize(0, (), "stem", identity(n)),
        Project(1, (0,), "stem", same, 1),
        Neuron(2, (1,), "first", 1, None, None, False, None),
        Project(3, (2,), "conv", same, 1),
        Neuron(4, (3,), "second", 1, None, None, False, None),
        Combine(5, (2, 4), "sum", (1, 1), 0),
        Project(6, (5,), "last", same, 1),
    )
    channels = (1, *[CHANNELS] * 5, 10)
    values = tuple(Value(n, c, time=v > 1) for v, c in enumerate(channels))
    out = Output(6, "count", None, -1, identity(n * 10), (n, 10), 0, 1, "float32", ())
    projections = {
        "stem": projection(rng, CHANNELS, 1, (3, 3), data=True),
        "conv": projection(rng, CHANNELS, CHANNELS, (3, 3)),
        "last": projection(rng, 10, CHANNELS, (3, 3)),
    }
    widths = np.array([8] * odd + [bits] * (CHANNELS - odd))
    first = replace(neuron(CHANNELS, n), bits=widths, low=-(2 ** (widths - 1)), high=2 ** (widths - 1) - 1)
    neurons = {"first": first, "second": replace(first, theta=np.full(CHANNELS, 10))}
    return build(
        Program(STEPS, Input((1, SIDE, SIDE), 0, None), values, operations, (out,)), projections, neurons, {}
    )


@pytest.mark.parametrize("batch", [1, 3])
def test_threads_that_share_channels(batch: int) -> None:
    model = residual_model()
    x = np.random.default_rng(1).uniform(0, 2.5, (1, batch, SIDE * SIDE)).astype(np.float32)
    want = NumpyExecutor(model).execute(x, STEPS, None, [6, 4], 1)
    assert 0.02 < want[4].mean() < 0.9
    for level in levels():
        executor = NativeExecutor(model, level)
        for path in ("auto", "event", "dense"):
            executor.path = path
            for threads in (1, 2, 4):
                found = executor.execute(x, STEPS, None, [6], threads)[6]
                np.testing.assert_array_equal(found, want[6], err_msg=f"{level}, {path}, {threads} threads")


@pytest.mark.parametrize(("bits", "odd"), [(16, 0), (8, 0), (4, 0), (2, 0), (4, 3)])
@pytest.mark.parametrize("threads", [1, 2, 4])
def test_states_of_shared_channels(bits: int, odd: int, threads: int) -> None:
    """Step by step, in place and into other memory, where the states before a step stay."""
    model = residual_model(bits, odd)
    x = np.random.default_rng(1).uniform(0, 2.5, (1, 1, SIDE * SIDE)).astype(np.float32)
    for level in levels():
        executor, reference = NativeExecutor(model, level), NumpyExecutor(model)
        want, here = State.new(model, 1), State.new(model, 1)
        apart = here.copy()
        for _ in range(STEPS):
            expected = reference.execute(x, 1, want, [6], 1)[6]
            before, into = apart.copy(), apart.beside()
            for row in into.rows.values():
                row.fill(0xAA)
            found = [
                executor.execute(x, 1, here, [6], threads)[6],
                executor.execute(x, 1, apart, [6], threads, into)[6],
            ]
            assert all(np.array_equal(y, expected) for y in found), level
            for v, rows in want.rows.items():
                assert np.array_equal(rows, here.rows[v]) and np.array_equal(rows, into.rows[v]), level
                assert np.array_equal(before.rows[v], apart.rows[v])
            apart = into
        assert any(rows.any() for rows in want.rows.values())
