"""Every built-in family, recurrent and two-state networks: C and ONNX give the bits of the runtime."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import numpy as np
import pytest
from export.families import FAMILIES, family
from export.harness import build, case, compare, results
from export.test_onnx import batch_first, same, session, wanted
from export.trained import inputs, trained_model
from onnx.reference import ReferenceEvaluator

from ptq4snn.export.onnx_form.export import onnx_model
from ptq4snn.models.trained import TRAINED
from ptq4snn.network.program import Delay, Neuron
from ptq4snn.runtime.engine import Runtime
from ptq4snn.runtime.parameters import Model

FULL = os.environ.get("PTQ4SNN_FULL") == "1"
LARGE = ("FPN", "Meta-SpikeFormer")  # onnxruntime takes seconds to read their steps one by one


@pytest.mark.parametrize("name", FAMILIES)
def test_in_onnxruntime(name: str) -> None:
    """Both forms of the sequence; of two networks one, but where all is tested."""
    model, x = family(name)
    expected = wanted(model, Runtime(model)(x))
    assert any(np.ptp(y) > 0 for y in expected)
    for form in ("scan", "unrolled") if FULL or name not in LARGE else ("scan",):
        same(session(onnx_model(model, form)).run(None, {"x": batch_first(model, x)}), expected)


@pytest.mark.parametrize("name", FAMILIES)
def test_in_onnxruntime_step_by_step(name: str) -> None:
    """State in, state out: after the last step the outputs are those of the sequence."""
    model, x = family(name)
    run, frames = session(onnx_model(model, "step")), batch_first(model, x)
    given = {
        i.name: np.zeros([len(x) if s == "batch" else s for s in i.shape], _TYPES[i.type])
        for i in run.get_inputs()
    }
    names = [o.name for o in run.get_outputs()]
    rows = []
    for t in range(model.program.steps):
        given["x"] = frames if model.program.input.time_axis is None else frames[:, t]
        found = dict(zip(names, run.run(None, given), strict=True))
        rows.append([found[f"y{i}"] for i in range(len(model.program.outputs))])
        given = {k: found.get(f"{k}_after", v) for k, v in given.items()}
    found_now = [
        rows[-1][i] if out.time_axis is None else np.stack([r[i] for r in rows], 1)
        for i, out in enumerate(model.program.outputs)
    ]
    same(found_now, wanted(model, Runtime(model)(x)))


_TYPES = {"tensor(float)": np.float32, "tensor(int64)": np.int64, "tensor(int32)": np.int32}


@pytest.mark.parametrize("name", FAMILIES)
def test_in_the_evaluator_of_onnx(name: str) -> None:
    """One sample: it is slow."""
    model, x = family(name)
    made, x = onnx_model(model, "unrolled"), x.take([0], model.program.input.batch_axis)
    same(ReferenceEvaluator(made).run(None, {"x": batch_first(model, x)}), wanted(model, Runtime(model)(x)))


def test_in_c(tmp_path: Path) -> None:
    if shutil.which("gcc") is None:
        pytest.skip("there is no gcc here")
    cases = []
    for i, name in enumerate(FAMILIES):
        model, x = family(name)
        batch = model.program.input.batch_axis
        cases.append(case(model, f"net{i}", x.take([0], batch), model.program.steps))
    compare(cases, results(build(cases, tmp_path, "gcc", ["-O1"]), cases))


def test_the_networks_are_of_those_kinds() -> None:
    def kinds(model: Model) -> set[str]:
        found = model.program.operations
        two = any(isinstance(op, Neuron) and model.neurons[op.name].reset == "none" for op in found)
        return ({"recurrent"} if any(isinstance(op, Delay) for op in found) else set()) | (
            {"two states"} if two else set()
        )

    assert kinds(family("recurrent")[0]) == {"recurrent"} and kinds(family("two states")[0]) == {"two states"}
    assert kinds(family("recurrent, two states")[0]) == {"recurrent", "two states"}


@pytest.mark.full
@pytest.mark.skipif(not FULL, reason="PTQ4SNN_FULL=1 runs the trained networks")
@pytest.mark.parametrize("form", ["scan", "unrolled"])
@pytest.mark.parametrize("name", TRAINED)
def test_trained_networks_in_onnxruntime(name: str, form: str) -> None:
    if TRAINED[name].weights() is None:
        pytest.skip(f"the weights of {name} are not here")
    model, x = trained_model(name), inputs(name, 1, 1).numpy()
    found = session(onnx_model(model, form)).run(None, {"x": batch_first(model, x)})
    same(found, wanted(model, Runtime(model)(x)))
