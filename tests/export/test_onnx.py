"""The ONNX forms in onnxruntime and in onnx's own evaluator: outputs and states bit for bit the runtime's."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from export.trained import inputs, trained_bundle
from hypothesis import assume, given
from hypothesis import settings as examples
from hypothesis import strategies as st
from runtime.programs import finishing, models, placed, random_input, random_model

from ptq4snn.errors import PTQ4SNNError
from ptq4snn.network.program import Delay, Neuron, TimeSum
from ptq4snn.numerics.finishing import FINISHES
from ptq4snn.runtime.engine import Runtime, is_causal
from ptq4snn.runtime.loading import load_model_file
from ptq4snn.runtime.parameters import Model
from ptq4snn.runtime.reference import NumpyExecutor
from ptq4snn.runtime.state import State

pytest.importorskip("onnx")
ort = pytest.importorskip("onnxruntime")

from ptq4snn import export  # noqa: E402  # needs onnx
from ptq4snn.export.onnx_form.export import OPSETS, onnx_model  # noqa: E402

BATCH = 3


def session(model: Any) -> Any:
    options = ort.SessionOptions()
    options.log_severity_level = 3
    options.intra_op_num_threads = 1
    return ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])


def batch_first(model: Model, x: Any) -> Any:
    """[B, T, ...] or [B, ...]."""
    own = model.program.input
    if own.time_axis is None:
        return np.ascontiguousarray(np.moveaxis(x, own.batch_axis, 0))
    return np.ascontiguousarray(np.moveaxis(x, (own.batch_axis, own.time_axis), (0, 1)))


def wanted(model: Model, y: Any) -> list[Any]:
    """The runtime's outputs with the batch first, then time."""
    outputs = y if isinstance(y, tuple) else (y,)
    moved = []
    for array, out in zip(outputs, model.program.outputs, strict=True):
        batch_axis, time_axis = out.given_axes
        if time_axis is None:
            moved.append(np.moveaxis(array, batch_axis, 0))
        else:
            moved.append(np.moveaxis(array, (batch_axis, time_axis), (0, 1)))
    return moved


def same(found: Any, expected: list[Any]) -> None:
    for a, b in zip(found, expected, strict=True):
        np.testing.assert_array_equal(a, b)
        assert a.dtype == b.dtype


def kept(model: Model) -> list[Any]:
    operations = model.program.operations
    return [
        op
        for op in operations
        if isinstance(op, (Delay, TimeSum)) or (isinstance(op, Neuron) and not op.once)
    ]


@examples(max_examples=30)
@given(models(operations=6), st.integers(0, 2))
def test_sequences(model: Model, more: int) -> None:
    """Unrolled and by a Scan, at the T of calibration and at others."""
    assume(is_causal(model.program))
    rt = Runtime(model, "numpy")
    steps = model.program.steps + more
    x = random_input(model, 1, BATCH, steps)
    timed = model.program.input.time_axis is not None
    try:
        expected = wanted(model, rt(x) if timed else rt(x, steps=steps))
    except PTQ4SNNError:  # a model of one T only
        assume(False)
    for form in ("unrolled", "scan"):
        made = onnx_model(model, form, steps)
        same(session(made).run(None, {"x": batch_first(model, x)}), expected)


@pytest.mark.parametrize("opset", OPSETS)
def test_every_opset(opset: int) -> None:
    """The same bits with the operators of other versions."""
    for seed in range(6):
        model = random_model(seed)
        if not is_causal(model.program):
            continue
        x = random_input(model, seed, BATCH, model.program.steps)
        made = onnx_model(model, "scan", opset=opset)
        assert [o.version for o in made.opset_import] == [opset]
        same(session(made).run(None, {"x": batch_first(model, x)}), wanted(model, Runtime(model, "numpy")(x)))


def test_opsets_that_are_not_tried_are_refused() -> None:
    for opset in (20, 27):
        with pytest.raises(PTQ4SNNError, match="give one from 21 to 26"):
            onnx_model(random_model(0), opset=opset)


@examples(max_examples=30)
@given(models(operations=6))
def test_steps(model: Model) -> None:
    """State in, state out: outputs and every state, three steps behind each other."""
    assume(is_causal(model.program) and Runtime(model, "numpy")._fixed is None)
    rt, reference = Runtime(model, "numpy"), NumpyExecutor(model)
    run = session(onnx_model(model, "step"))
    states = {
        f"state{i}": np.zeros(
            (BATCH, model.program.values[op.output].positions, model.program.values[op.output].channels),
            np.int64 if isinstance(op, TimeSum) else np.int32,
        )
        for i, op in enumerate(kept(model))
    }
    packed, axis = State.new(model, BATCH), model.program.input.time_axis
    for t in range(3):
        x = random_input(model, t, BATCH, 1)
        frame = x if axis is None else x.take(0, axis)
        expected = rt.step(frame)
        frames = batch_first(model, x)
        given = {"x": frames if axis is None else frames[:, 0], "step": np.array(t, np.int64), **states}
        names = [o.name for o in run.get_outputs()]
        found = dict(
            zip(names, run.run(None, {k: v for k, v in given.items() if k in _inputs(run)}), strict=True)
        )
        outputs = expected if isinstance(expected, tuple) else (expected,)
        for i, (y, out) in enumerate(zip(outputs, model.program.outputs, strict=True)):
            axis_now = out.batch_axis
            if out.time_axis is not None and out.time_axis < out.batch_axis:
                axis_now -= 1
            np.testing.assert_array_equal(found[f"y{i}"], np.moveaxis(y, axis_now, 0))
        states = {f"state{i}": found[f"state{i}_after"] for i in range(len(states))}
        assert found["step_after"] == t + 1
        samples = np.ascontiguousarray(frames.reshape(BATCH, -1)[None], np.float32)
        reference.execute(samples, 1, packed, [], 1)
        for i, op in enumerate(kept(model)):
            if isinstance(op, TimeSum):
                np.testing.assert_array_equal(states[f"state{i}"], packed.sums[op.output])


@pytest.mark.parametrize("how", FINISHES)
def test_outputs_that_end_with_a_softmax_or_the_like(how: str) -> None:
    for seed in range(12):
        model = placed(finishing(random_model(seed, 4), how, -1 - seed % 2), seed)
        if not is_causal(model.program):
            continue
        x = random_input(model, 1, BATCH)
        for form in ("unrolled", "scan"):
            made = onnx_model(model, form, model.program.steps)
            found = session(made).run(None, {"x": batch_first(model, x)})
            same(found, wanted(model, Runtime(model, "numpy")(x)))


def _inputs(run: Any) -> set[str]:
    return {i.name for i in run.get_inputs()}


def test_onnxs_own_evaluator() -> None:
    """Not only one runtime reads it so."""
    from onnx.reference import ReferenceEvaluator

    seen = 0
    for seed in range(40):
        model = random_model(seed, 4, 600)
        if not is_causal(model.program):
            continue
        x = random_input(model, 1, 2, model.program.steps)
        expected = wanted(model, Runtime(model, "numpy")(x))
        made = onnx_model(model, "unrolled")
        same(ReferenceEvaluator(made).run(None, {"x": batch_first(model, x)}), expected)
        seen += 1
        if seen == 6:
            break
    assert seen == 6


def test_a_file(tmp_path: Path) -> None:
    model = next(m for m in (random_model(s, 4) for s in range(20)) if is_causal(m.program))
    export.onnx(model, tmp_path / "m.onnx", form="scan")
    run = ort.InferenceSession(str(tmp_path / "m.onnx"), providers=["CPUExecutionProvider"])
    x = random_input(model, 1, BATCH, model.program.steps)
    same(run.run(None, {"x": batch_first(model, x)}), wanted(model, Runtime(model, "numpy")(x)))
    with pytest.raises(PTQ4SNNError, match="give one of step, scan, unrolled"):
        export.onnx(model, tmp_path / "n.onnx", form="loop")
    assert not (tmp_path / "n.onnx").exists()


@pytest.mark.parametrize("steps", [0, -1, True, 2**63, 1.5, "4"])
def test_a_number_of_steps_that_cannot_be(steps: Any) -> None:
    model = next(m for m in (random_model(s, 4) for s in range(20)) if is_causal(m.program))
    with pytest.raises(PTQ4SNNError, match="give a whole number from 1 to"):
        onnx_model(model, "scan", steps)


def test_sizes_are_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of what is written out, and of all numbers."""
    models = (random_model(s, 4) for s in range(50))
    model = next(m for m in models if is_causal(m.program) and m.bounds.steps > 20_000)
    with pytest.raises(PTQ4SNNError, match="take the form scan"):
        onnx_model(model, "unrolled", 20_000)
    monkeypatch.setattr("ptq4snn.export.onnx_form.graph.MAX_BYTES", 1000)
    with pytest.raises(PTQ4SNNError, match="more than 2 GiB"):
        onnx_model(model, "scan")


@pytest.mark.parametrize("form", ["scan", "unrolled"])
def test_the_embedded_default(form: str, tmp_path: Path) -> None:
    """The trained network that the package has, as users would export it."""
    path, x = trained_bundle("default"), inputs("default", 4, 1).numpy()
    export.onnx(path, tmp_path / "q.onnx", form=form)
    run = ort.InferenceSession(str(tmp_path / "q.onnx"), providers=["CPUExecutionProvider"])
    model = load_model_file(path)
    same(run.run(None, {"x": x}), wanted(model, Runtime(model)(x)))
    weights = sum(p.weight.size for p in model.projections.values())
    assert (tmp_path / "q.onnx").stat().st_size < 2 * weights  # it is not float32 on disk
