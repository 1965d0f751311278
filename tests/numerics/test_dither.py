"""One dither in many forms: integers of Python, NumPy and torch, the simulation's floats, both executors."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from modules.test_integer_neuron import core_of, make
from runtime.native_tools import levels

import ptq4snn
from ptq4snn.bridge.replay import offsets
from ptq4snn.network.index import identity
from ptq4snn.network.program import Input, Neuron, Output, Program, Project, Quantize, Value
from ptq4snn.network.state_layout import Layout
from ptq4snn.numerics.dither import (
    PHASE_BITS,
    PHASES,
    bit_reverse4,
    dither_offset,
    dither_phase,
    rshift_dither,
)
from ptq4snn.runtime.loading import build
from ptq4snn.runtime.native import NativeExecutor
from ptq4snn.runtime.parameters import InputGrid, Model, NeuronNumbers, ProjectionNumbers
from ptq4snn.runtime.reference import NumpyExecutor

A = st.one_of(st.integers(-300, 300), st.integers(-(2**46), 2**46))
STEPS, POSITIONS, CHANNELS = 19, 5, PHASE_BITS + 1
WEIGHT = 100  # so that large shifts leave something
SHIFTS = np.arange(CHANNELS)  # channel c shifts by c: all shifts there are


def reversed_bits(t: int) -> int:
    return int(f"{t % 16:04b}"[::-1], 2)


def phase_by_hand(p: int, t: int) -> int:
    """As docs/format.md writes it."""
    return (40503 * p + (reversed_bits(t) << 12) + 2048) % 2**16


def dithered(a: int, n: int, p: int, t: int) -> int:
    return (a + (phase_by_hand(p, t) >> (16 - n))) >> n


def test_bit_reverse4() -> None:
    assert [bit_reverse4(t) for t in range(40)] == [reversed_bits(t) for t in range(40)]


@given(A, st.integers(0, 16), st.integers(0, 2**24), st.integers(0, 100))
def test_integers_of_python_numpy_and_torch(a: int, n: int, p: int, t: int) -> None:
    want = dithered(a, n, p, t)
    assert rshift_dither(a, n, p, t) == want
    assert rshift_dither(np.array([a]), np.array([n]), np.array([p]), t).tolist() == [want]
    assert rshift_dither(torch.tensor([a]), torch.tensor([n]), torch.tensor([p]), t).tolist() == [want]


@given(st.integers(-1000, 1000), st.integers(0, 10), st.integers(0, 1000))
def test_dither_is_nearly_unbiased_over_16_steps(a: int, n: int, p: int) -> None:
    """Sixteen steps visit sixteen offsets a sixteenth apart: their mean is a / 2^n within a sixteenth
    and what cutting the offset to n bits loses."""
    mean = sum(rshift_dither(a, n, p, t) for t in range(16)) / 16
    assert abs(mean - a / 2**n) <= 1 / 16 + 2.0**-n * (n > 0)


def test_an_offset_is_below_the_step() -> None:
    phase = dither_phase(np.arange(5000), 3)
    assert phase.min() >= 0 and phase.max() < PHASES
    for n in (0, 1, 5, 16):
        d = dither_offset(phase, np.array(n))
        assert d.min() >= 0 and d.max() < max(1, 2**n)


def test_replay_takes_the_phase_as_a_part_of_a_step() -> None:
    places = torch.arange(500).view(5, 100)
    for t in range(20):
        want = torch.tensor([phase_by_hand(p, t) / 2**16 for p in range(500)]).view(5, 100)
        assert torch.equal(offsets(places, t), want)


def pixels() -> Any:
    """[positions, channels]; a projection multiplies them by WEIGHT."""
    return np.random.default_rng(3).integers(0, 256, (POSITIONS, CHANNELS))


def potentials_by_hand(x: Any, element: Any) -> Any:
    """A[t] = x + Vq[t - 1], Vq = clip((A + d) >> n), number by number: [STEPS, positions, channels]."""
    out = np.zeros((STEPS, POSITIONS, CHANNELS), np.int64)
    for p in range(POSITIONS):
        for c in range(CHANNELS):
            v = 0
            for t in range(STEPS):
                out[t, p, c] = int(x[p, c]) + v
                kept = dithered(int(out[t, p, c]), c, int(element[p, c]), t)
                v = max(-(2**15), min(2**15 - 1, kept))
    return out


def one_neuron(form: str) -> Model:
    """A projection by WEIGHT and a neuron that never fires: in 32 bits, with products of 64 or in general
    form. Its state is that of a model with the channels first."""
    ones, zeros = np.ones(CHANNELS, np.int64), np.zeros(CHANNELS, np.int64)
    size, one = POSITIONS * CHANNELS, 15 if form == "wide" else 0  # 2^15 / 2^15: the product leaves int32
    weight = WEIGHT * np.eye(CHANNELS, dtype=np.int8)
    projection = ProjectionNumbers(
        weight, 8, zeros, 0, False, InputGrid(np.ones(CHANNELS), zeros), None, np.ones(CHANNELS), "pair"
    )
    neuron = NeuronNumbers(
        0, False, 16 * ones, zeros, -(2**15) * ones, (2**15 - 1) * ones, 2**30 * ones, zeros, ones << one,
        one * ones, ones, SHIFTS, "none", "dither", np.ones(CHANNELS), 0.0, (CHANNELS, POSITIONS),
    )  # fmt: skip
    element = replace(identity(size), sizes=(POSITIONS, CHANNELS), strides=(1, POSITIONS))
    channel = replace(identity(size), sizes=(POSITIONS, CHANNELS), strides=(0, 1))
    values = (Value(POSITIONS, CHANNELS, False),) * 2 + (Value(POSITIONS, CHANNELS, True),) * 2
    operations = (
        Quantize(0, (), "conv", identity(size)),
        Project(1, (0,), "conv", None, 1),
        Neuron(2, (1,), "n", 1, channel if form == "general" else None, element, False, 3),
    )
    shape = (POSITIONS, CHANNELS)
    out = Output(3, "potential", "n", -1, identity(size), shape, 1, 0, "float32", ())
    program = Program(STEPS, Input((size,), 0, None), values, operations, (out,))
    return build(program, {"conv": projection}, {"n": neuron}, {})


@pytest.mark.parametrize("form", ["narrow", "wide", "general"])
def test_the_executors(form: str) -> None:
    model, x = one_neuron(form), pixels()
    element = np.arange(CHANNELS) * POSITIONS + np.arange(POSITIONS)[:, None]
    want = potentials_by_hand(WEIGHT * x, element)
    other = potentials_by_hand(WEIGHT * x, element + 1)
    assert (want != other).any((0, 1)).tolist() == [n > 0 for n in SHIFTS]  # offsets show, at every shift
    flat = x.reshape(1, 1, -1).astype(np.float32)
    got = NumpyExecutor(model).execute(flat, STEPS, None, [3], 1)[3]
    np.testing.assert_array_equal(got.reshape(want.shape), want)
    for level in levels():
        got = NativeExecutor(model, level, [3]).execute(flat, STEPS, None, [3], 1)[3]
        np.testing.assert_array_equal(got.reshape(want.shape), want, err_msg=level)


def test_the_simulation() -> None:
    layout, x = Layout((POSITIONS, CHANNELS), (1,)), WEIGHT * pixels()
    plan = make(
        layout, 0, [16] * CHANNELS, [(1, n) for n in range(CHANNELS)], [2**30] * CHANNELS, 2**15,
        [*range(CHANNELS)], rounding="dither", reset="none", steps=STEPS,
    )  # fmt: skip
    core, v = core_of(plan), None
    found = []
    for t in range(STEPS):
        _, v, h = core.step(torch.from_numpy(x).float()[None], v, t)
        found.append(h[0])
    want = potentials_by_hand(x, np.arange(POSITIONS * CHANNELS).reshape(POSITIONS, CHANNELS))
    np.testing.assert_array_equal(torch.stack(found).numpy(), want)


def test_the_number_stands_in_one_python_file_and_one_header() -> None:
    source = Path(ptq4snn.__file__).parent
    files = [p for p in source.rglob("*") if p.suffix in (".py", ".h", ".cpp")]
    assert sorted(p.name for p in files if "40503" in p.read_text(encoding="utf-8")) == [
        "dither.py",
        "layout.h",  # written by runtime/native/header.py
    ]
