"""Images of many blocks: the same bits as NumPy, and nothing stored that grows with the image."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from runtime.native_tools import levels

from ptq4snn.network.index import Index, Window, identity
from ptq4snn.network.program import (
    Gather,
    Input,
    Neuron,
    Output,
    Pool,
    PoolAxis,
    Program,
    Project,
    Quantize,
    Value,
)
from ptq4snn.runtime.loading import build
from ptq4snn.runtime.native import NativeExecutor
from ptq4snn.runtime.native.index_fields import index_fields
from ptq4snn.runtime.parameters import InputGrid, Model, NeuronNumbers, ProjectionNumbers
from ptq4snn.runtime.reference import NumpyExecutor
from ptq4snn.runtime.state import State

STEPS = 4
WIDE = 70  # channels: two tiles


def projection(
    rng: Any, cout: int, cin: int, kernel: tuple[int, ...], data: bool = False
) -> ProjectionNumbers:
    weight = rng.integers(-8, 8, (cout, cin, *kernel)).astype(np.int8)
    grid = InputGrid(np.full(1, 0.01), np.zeros(1, dtype=np.int64)) if data else None
    bias, unit = rng.integers(-50, 50, cout), np.full(cout, 0.01)
    return ProjectionNumbers(weight, 4, bias, 0, False, grid, None, unit, "pair")


def neuron(channels: int, positions: int) -> NeuronNumbers:
    def all_of(x: int) -> Any:
        return np.full(channels, x, dtype=np.int64)

    return NeuronNumbers(
        0, False, all_of(8), all_of(0), all_of(-128), all_of(127), all_of(2500), all_of(0), all_of(64),
        all_of(1), all_of(1), all_of(6), "hard", "even", np.full(channels, 0.01), 0.0, (positions, channels),
    )  # fmt: skip


def image_model(side: int) -> Model:
    """Convolutions with stride 1 and 2, depthwise, a maximum, an upsampling and repeated rows."""
    rng = np.random.default_rng(0)
    full, half = side * side, (side // 2) ** 2
    same = Window((side, side), (3, 3), (1, 1), (1, 1), (1, 1), (1, 1))
    down = Window((side, side), (3, 3), (2, 2), (1, 1), (0, 0), (1, 1))
    small = side // 2
    taps = tuple(int(i) for o in range(side) for i in (o // 2, min(small - 1, o // 2 + 1)))
    axis = PoolAxis(small, 2, taps, (3, 1) * side)
    rows = Index((small, 2, small, 2, WIDE), (small * WIDE, 0, WIDE, 0, 1))
    sizes = [
        (full, 1),
        (full, 64),
        (full, 64),
        (half, WIDE),
        (full, 64),
        (half, 64),
        (full, WIDE),
        (full, WIDE),
    ]
    operations = (
        Quantize(0, (), "stem", identity(full)),
        Project(1, (0,), "stem", same, 1),
        Neuron(2, (1,), "lif", 1, None, None, False, None),
        Project(3, (2,), "down", down, 1),
        Project(4, (2,), "depthwise", same, 64),
        Pool(5, (2,), "pool", "max", down, None, None),
        Pool(6, (3,), "up", "sum", None, None, None, (axis, axis)),
        Gather(7, (3,), "again", "sum", 1, rows),
    )
    outputs = tuple(
        Output(v, "count", None, -1, identity(n * c), (n, c), 0, 1, "float32", ())
        for v, (n, c) in enumerate(sizes) if v > 1
    )  # fmt: skip
    program = Program(
        STEPS, Input((1, side, side), 0, None), tuple(Value(*s, time=v > 1) for v, s in enumerate(sizes)),
        operations, outputs,
    )  # fmt: skip
    projections = {
        "stem": projection(rng, 64, 1, (3, 3), data=True), "down": projection(rng, WIDE, 64, (3, 3)),
        "depthwise": projection(rng, 64, 1, (3, 3)),
    }  # fmt: skip
    return build(program, projections, {"lif": neuron(64, full)}, {})


@pytest.mark.parametrize("threads", [1, 3])
def test_blocks_of_an_image(threads: int) -> None:
    model = image_model(64)
    x = np.random.default_rng(1).uniform(0, 2.5, (1, 2, 64 * 64)).astype(np.float32)
    outs = [o.value for o in model.program.outputs]
    want = NumpyExecutor(model).execute(x, STEPS, None, outs, 1)
    assert 0.05 < want[2].mean() < 0.6
    for level in levels():
        executor = NativeExecutor(model, level, outs)
        for path in ("event", "dense"):
            executor.path = path
            for v, a in executor.execute(x, STEPS, State.new(model, 2), outs, threads).items():
                np.testing.assert_array_equal(a, want[v], err_msg=f"{level}, {path}, value {v}")


def test_nothing_stored_grows_with_the_image() -> None:
    """Two lists of an upsampling's axes apart: they grow with its sides."""

    def stored(side: int) -> int:
        executor, x = (
            NativeExecutor(image_model(side), levels()[-1], []),
            np.zeros((1, 1, side * side), np.float32),
        )
        executor.execute(x, STEPS, None, [], 1)
        return executor.statistics().weights_bytes

    small, large = stored(16), stored(96)
    assert large - small <= 2 * 2 * 4 * 2 * (96 - 16) + 64


@pytest.mark.parametrize(
    ("index", "positions", "row", "strides"),
    [
        (Index((6,), (1,)), 2, 3, [[2, 3]]),
        (Index((4, 3), (1, 4)), 4, 3, [[4, 1]]),
        (Index((2, 2, 3), (0, 5, 1), 2), 4, 3, [[2, 0], [2, 5]]),
        (Index((4,), (7,), 1, (0, 2)), 4, 2, [[4, 7]]),
        (Index((4,), (-1,), 3), 4, 1, None),
        (Index((4, 3), (1, 4)), 6, 2, None),
        (Index(numbers=(3, 1, -1, 0)), 2, 2, None),
    ],
)
def test_index_by_rows(index: Index, positions: int, row: int, strides: list[list[int]] | None) -> None:
    fields = index_fields(index, positions, row)
    if strides is None:
        assert "index_strides" not in fields and fields["index"].tolist() == index.array().tolist()
        return
    assert fields["index_strides"].tolist() == strides
    moved = np.zeros(1, dtype=np.int64)
    for n, s in strides:
        moved = (moved[:, None] + np.arange(n) * s).reshape(-1)
    np.testing.assert_array_equal((moved[:, None] + fields["index"]).reshape(-1), index.array())
