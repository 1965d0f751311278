"""Packed states: their bits, sessions that are saved and go on, and states that belong elsewhere."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from runtime.programs import models, random_input, random_model

from ptq4snn.errors import BundleError
from ptq4snn.network.program import Neuron
from ptq4snn.runtime import Runtime, State
from ptq4snn.runtime.parameters import Model
from ptq4snn.runtime.state import pack_rows, rows_of, unpack_rows


def bits_of(model: Model, op: Neuron, v: Any) -> bytes:
    """All rows of one sample, bit by bit, from the words of the format."""
    n, value = model.neurons[op.name], model.program.values[op.output]
    elements = [
        (
            p,
            c if op.channel is None else int(op.channel.array()[p * value.channels + c]),
            p * value.channels + c,
        )
        for p in range(value.positions)
        for c in range(value.channels)
    ]
    rows = [elements] if op.channel is not None else [
        [e for e in elements if e[0] == p] for p in range(value.positions)
    ]  # fmt: skip
    out = b""
    for row in rows:
        text = ""
        for width in (32, 16, 8, 7, 6, 5, 4, 3, 2):
            for _, c, e in row:
                if n.bits[c] == width:
                    field = (int(v[e]) - int(n.zero[c])) % 2**width
                    text += f"{field:0{width}b}"[::-1]
        text += "0" * (-len(text) % 8)
        out += bytes(int(text[i : i + 8][::-1], 2) for i in range(0, len(text), 8))
    return out


@settings(max_examples=60)
@given(models(), st.integers(0, 999))
def test_rows_hold_the_bits_of_the_format(model: Model, seed: int) -> None:
    rng = np.random.default_rng(seed)
    for op in model.program.operations:
        if isinstance(op, Neuron):
            n, rows = model.neurons[op.name], rows_of(model, op)
            value = model.program.values[op.output]
            shape = (value.positions, value.channels)
            channel = np.arange(value.channels) if op.channel is None else op.channel.array().reshape(shape)
            low, high = (np.broadcast_to(x[channel], shape) for x in (n.low, n.high))
            v = rng.integers(low, high + 1, size=(2, *shape))
            v[0, 0, 0], v[1, 0, 0] = low[0, 0], high[0, 0]
            packed = pack_rows(rows, v)
            assert packed.shape == (2, rows.count, rows.size)
            assert [p.tobytes() for p in packed] == [bits_of(model, op, x.reshape(-1)) for x in v]
            np.testing.assert_array_equal(unpack_rows(rows, packed).reshape(v.shape), v)


def frame(model: Model, x: Any, t: int) -> Any:
    axis = model.program.input.time_axis
    return x if axis is None else np.take(x, t, axis)


def session(model: Model, seed: int) -> tuple[Runtime, Any]:
    return Runtime(model, "numpy"), random_input(model, seed, 2, 4)


def same(a: Any, b: Any) -> bool:
    pairs = zip(a, b, strict=True) if isinstance(a, tuple) else [(a, b)]
    return all(x.dtype == y.dtype and np.array_equal(x, y) for x, y in pairs)


@settings(max_examples=40)
@given(models(), st.integers(0, 999), st.integers(1, 3))
def test_a_saved_session_goes_on_elsewhere(tmp_path_factory: Any, model: Model, seed: int, cut: int) -> None:
    path = tmp_path_factory.mktemp("session") / "state"
    rt, x = session(model, seed)
    for t in range(cut):
        rt.step(frame(model, x, t))
    state = rt.state
    assert state is not None and state.steps == cut
    state.save(path)
    other = Runtime(model, "numpy")
    other.restore(State.load(path))
    for t in range(cut, 4):
        assert same(rt.step(frame(model, x, t)), other.step(frame(model, x, t)))
    a, b = rt.state, other.state
    assert a is not None and b is not None
    assert all(np.array_equal(a.rows[v], b.rows[v]) for v in a.rows)
    assert all(np.array_equal(a.sums[v], b.sums[v]) for v in a.sums)


def test_the_same_state_gives_the_same_file_and_reading_does_not_change_it(tmp_path: Path) -> None:
    rt, x = session(random_model(5), 0)
    rt.step(frame(rt.model, x, 0))
    first = rt.state
    assert first is not None
    first.save(tmp_path / "a")
    State.load(tmp_path / "a", rt.model).save(tmp_path / "b")
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()
    rt.step(frame(rt.model, x, 1))
    assert first.steps == 1  # what was handed out is a copy
    assert [p.name for p in tmp_path.iterdir() if p.name not in "ab"] == []


def test_sums_larger_than_32_bits_survive(tmp_path: Path) -> None:
    model = next(m for m in map(random_model, range(99)) if State.new(m, 1).sums)
    state = State.new(model, 1)
    v = next(iter(state.sums))
    state.sums[v][:] = 2**40 + 7
    state.save(tmp_path / "s")
    assert (State.load(tmp_path / "s").sums[v] == 2**40 + 7).all()


def test_states_of_others_are_refused(tmp_path: Path) -> None:
    model, other = random_model(5), random_model(6)
    rt = Runtime(model, "numpy")
    with pytest.raises(BundleError, match="another model"):
        rt.restore(State.new(other, 2))
    good = State.new(model, 2)
    rt.restore(good)
    changes: tuple[dict[str, Any], ...] = (
        {"batch": 3},
        {"batch": 0},
        {"steps": -1},
        {"steps": model.bounds.steps + 1},
        {"rows": {}},
        {"batch": 2**40},
    )
    for change in changes:
        bad = State(**{**vars(good), **change})
        with pytest.raises(BundleError, match="does not fit"):
            rt.restore(bad)
    (tmp_path / "x").write_bytes(b"no state")
    with pytest.raises(BundleError):
        State.load(tmp_path / "x")


def test_a_sum_that_no_steps_can_reach_is_refused() -> None:
    model = next(m for m in map(random_model, range(99)) if State.new(m, 1).sums)
    state = State.new(model, 1)
    state.sums[next(iter(state.sums))][:] = 2**60
    with pytest.raises(BundleError, match="does not fit"):
        Runtime(model, "numpy").restore(state)


def test_the_hash_of_a_model_is_of_every_number() -> None:
    hashes = {random_model(5).hash for _ in range(2)}
    assert len(hashes) == 1
    model = random_model(5)
    name, n = next(iter(model.neurons.items()))
    n.theta[0] += 1
    changed = Model(model.program, model.projections, {**model.neurons, name: n}, model.mirrors, model.bounds)
    assert changed.hash not in hashes


def test_sums_that_so_few_steps_cannot_reach_are_refused() -> None:
    """Bounds are proven for the most steps: more to come would leave them."""
    made = ((m, State.new(m, 1)) for m in map(random_model, range(200)))
    model, state = next((m, s) for m, s in made if s.sums)
    state.check(model)
    next(iter(state.sums.values()))[:] = 1
    with pytest.raises(BundleError, match="does not fit"):
        state.check(model)
