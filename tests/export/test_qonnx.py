"""A step in QONNX: states and outputs bit for bit the runtime's, by a reading of the specification here, by
the package qonnx, and in the C++ that hls4ml makes of it; what is no plain chain is refused with its place.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from targets.nets import Dense, Rich, bundle, lively
from torch import Tensor, nn

from ptq4snn import export
from ptq4snn.cli.main import main
from ptq4snn.errors import PTQ4SNNError
from ptq4snn.models.neuron import IF, LIF
from ptq4snn.network.program import Neuron, Project, Quantize
from ptq4snn.runtime.loading import load_model_file
from ptq4snn.runtime.parameters import Model
from ptq4snn.runtime.reference import NumpyExecutor
from ptq4snn.runtime.state import State, rows_of, unpack_rows

library = pytest.importorskip("onnx")

from onnx.reference import ReferenceEvaluator  # noqa: E402
from onnx.reference.op_run import OpRun  # noqa: E402

ROOT = Path(__file__).parents[2]
DOMAIN = "qonnx.custom_op.general"
STEPS = 4


class Quant(OpRun):
    """As the specification has it: scale, zero point, clamp, round, and back."""

    op_domain = DOMAIN

    def _run(self, x: Any, scale: Any, zero: Any, bits: Any, **how: Any) -> tuple[Any]:
        assert how["rounding_mode"] == "ROUND" and how["narrow"] == 0
        low, high = (-(2.0 ** (bits - 1)), 2.0 ** (bits - 1) - 1) if how["signed"] else (0.0, 2.0**bits - 1)
        return (((np.rint(np.clip(x / scale + zero, low, high)) - zero) * scale).astype(np.float32),)


class BipolarQuant(OpRun):
    op_domain = DOMAIN

    def _run(self, x: Any, scale: Any) -> tuple[Any]:
        return (np.where(x >= 0, scale, -scale).astype(np.float32),)


class Image(nn.Module):
    """[B, 1, 6, 6] to logits [B, 3]."""

    def __init__(self, neuron: Callable[[], nn.Module]) -> None:
        super().__init__()
        self.conv, self.n1 = nn.Conv2d(1, 4, 3, padding=1), neuron()
        self.deep, self.n2 = nn.Conv2d(4, 4, 3, stride=2, padding=1), neuron()
        self.head = nn.Linear(36, 3)
        lively(self)

    def forward(self, x: Tensor) -> Tensor:
        y = self.n1(torch.stack([self.conv(x)] * STEPS))
        y = self.n2(torch.stack([self.deep(z) for z in y]))
        logits: Tensor = self.head(y.flatten(2)).mean(0)
        return logits


LEAKY, SOFT = partial(LIF, tau=2.0), partial(IF, v_reset=None)
NETS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "fully connected": (lambda: Dense(LEAKY, head=True), (6,)),
    "ends in spikes": (lambda: Dense(SOFT), (6,)),
    "convolutional": (lambda: Image(LEAKY), (1, 6, 6)),
}


@pytest.fixture(scope="module", params=NETS)
def written(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[str, Path, Model]:
    make, shape = NETS[request.param]
    folder = tmp_path_factory.mktemp("qonnx")
    options = {"zero_point": "none", "first_membrane": 8, "first_bits": 4}
    path = bundle(folder / "m.ptq", make(), "nearest+uniform+w4m4", *shape, **options)
    export.onnx(path, folder / "m.onnx", qonnx=True)
    return request.param, folder / "m.onnx", load_model_file(path)


def steps_of(model: Model, x: Any) -> list[tuple[Any, list[Any], Any]]:
    """The NumPy executor: levels, states and last layer of every step, channels first."""
    program = model.program
    levels = next(op for op in program.operations if isinstance(op, Quantize))
    neurons = [op for op in program.operations if isinstance(op, Neuron)]
    last = [op for op in program.operations if isinstance(op, (Project, Neuron))][-1]
    executor, state, out = NumpyExecutor(model), State.new(model, 1), []
    for _ in range(STEPS):
        values = executor.execute(x.reshape(1, 1, -1), 1, state, [levels.output, last.output], 1)
        states = [_first(unpack_rows(rows_of(model, op), state.rows[op.output])) for op in neurons]
        out.append((_first(values[levels.output]), states, _first(values[last.output])))
    return out


def _first(x: Any) -> Any:
    """[..., positions, channels] as numbers with the channels first."""
    return np.moveaxis(x.reshape(x.shape[-2:]), 0, 1).reshape(-1).astype(np.float32)


def inputs_of(made: Any, levels: Any, states: list[Any]) -> dict[str, Any]:
    """Of a graph, in its order: the levels, then the states."""
    shapes = {i.name: [d.dim_value for d in i.type.tensor_type.shape.dim] for i in made.graph.input}
    numbers = iter(states)
    return {n: (levels if n == "x" else next(numbers)).reshape(s) for n, s in shapes.items()}


Runs = Callable[[list[dict[str, Any]]], list[list[Any]]]  # inputs of many calls to their outputs


def compared(written: tuple[str, Path, Model], run: Runs, named: bool = True) -> None:
    """Three samples, step behind step: states and outputs; not `named`: in any order."""
    _, file, model = written
    made, rng = library.load(file), np.random.default_rng(0)
    calls, wanted = [], []
    for _ in range(3):
        x = (rng.random(model.program.input.shape) * 2).astype(np.float32)
        before = [np.zeros(int(np.prod(n.shape)), np.float32) for n in model.neurons.values()]
        for levels, states, y in steps_of(model, x):
            calls.append(inputs_of(made, levels, before))
            wanted.append({"y0": y} | {f"state{i}_after": v for i, v in enumerate(states)})
            before = states
    assert sum(float(np.abs(w["y0"]).sum()) for w in wanted) > 0
    names = [o.name for o in made.graph.output]
    for outputs, expected in zip(run(calls), wanted, strict=True):
        found = [np.asarray(value).reshape(-1) for value in outputs]
        if named:
            for name, value in zip(names, found, strict=True):
                np.testing.assert_array_equal(value, expected[name])
        else:
            assert sorted(v.tolist() for v in found) == sorted(v.tolist() for v in expected.values())


def test_by_the_specification(written: tuple[str, Path, Model]) -> None:
    run = ReferenceEvaluator(str(written[1]), new_ops=[Quant, BipolarQuant])
    compared(written, lambda calls: [list(run.run(None, given)) for given in calls])


def other(who: str, file: Path) -> Runs:
    """A reader in a process of its own."""
    folder = os.environ.get("PTQ4SNN_QONNX")
    if not folder or not Path(folder, who).is_dir():
        pytest.skip(f"PTQ4SNN_QONNX names no folder with {who} in it: `make test` installs it there")
    path = os.pathsep.join(filter(None, [folder, os.environ.get("PYTHONPATH")]))

    def run(calls: list[dict[str, Any]]) -> list[list[Any]]:
        stacked = {str(i): np.stack([c[n] for c in calls]) for i, n in enumerate(calls[0])}
        given, out = file.with_name("in.npz"), file.with_name("out.npz")
        np.savez(given, **stacked)  # type: ignore[arg-type]
        command = [
            sys.executable,
            str(ROOT / "tests/export/qonnx_reader.py"),
            who,
            *map(str, (file, given, out)),
        ]
        env = {**os.environ, "PYTHONPATH": path}
        done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr[-3000:]
        with np.load(out) as kept:
            return [list(row) for row in zip(*(kept[str(i)] for i in range(len(kept.files))), strict=True)]

    return run


def test_by_qonnx(written: tuple[str, Path, Model]) -> None:
    compared(written, other("qonnx", written[1]))


@pytest.mark.full
@pytest.mark.skipif(
    os.environ.get("PTQ4SNN_FULL") != "1", reason="PTQ4SNN_FULL=1 compiles what hls4ml writes"
)
def test_by_hls4ml(written: tuple[str, Path, Model]) -> None:
    """Its C++, compiled and run, with fixed-point numbers that are wide enough."""
    if written[0] == "convolutional":
        pytest.skip("hls4ml 1.3.0 stops at constants that are broadcast over an image")
    compared(written, other("hls4ml", written[1]), named=False)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"state_rounding": "dither"}, "is rounded by dither"),
        ({"zero_point": "channel", "objective": "replay"}, "has a zero point"),
        ({"coupling": "none", "zero_point": "none"}, "float32 holds whole numbers to 2^24"),
    ],
)
def test_what_a_recipe_mends_is_said(options: dict[str, Any], sentence: str, tmp_path: Path) -> None:
    path = bundle(tmp_path / "m.ptq", Dense(LEAKY), "nearest+uniform+w4m4", **options)
    with pytest.raises(PTQ4SNNError, match=re.escape(sentence)):
        export.onnx(path, tmp_path / "m.onnx", qonnx=True)
    assert not (tmp_path / "m.onnx").exists()


def test_what_is_no_chain_is_refused_with_its_place(tmp_path: Path) -> None:
    options = {"zero_point": "none", "first_membrane": 8}
    path = bundle(tmp_path / "m.ptq", Rich(), "nearest+uniform+w4m4", 2, 6, 6, **options)
    with pytest.raises(PTQ4SNNError, match=r"'pool' \(pool\) cannot be written as QONNX"):
        export.onnx(path, tmp_path / "m.onnx", qonnx=True)
    with pytest.raises(PTQ4SNNError, match="of one step"):
        export.onnx(path, tmp_path / "m.onnx", qonnx=True, form="scan")


def test_the_command_line(written: tuple[str, Path, Model], tmp_path: Path) -> None:
    bundle_file = str(written[1].with_name("m.ptq"))
    assert main(["export", bundle_file, "--to", "onnx", "--qonnx", "--out", str(tmp_path / "q.onnx")]) == 0
    assert (tmp_path / "q.onnx").read_bytes() == written[1].read_bytes()
    assert main(["export", bundle_file, "--to", "nir", "--qonnx", "--out", str(tmp_path / "q.nir")]) == 2
