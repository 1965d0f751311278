"""Random programs in C against the NumPy executor: levels, spikes, states, sums and outputs, bit for bit."""

from __future__ import annotations

import shutil
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from export.cases import random_case
from export.harness import SANITIZED, build, case, compare, has_sanitizers, results, run
from export.test_boards import BOARDS
from runtime.programs import finishing, placed, random_input, random_model

from ptq4snn.errors import PTQ4SNNError
from ptq4snn.export.c99.source import fixed_steps
from ptq4snn.network.program import OPERATIONS, Clip, Neuron, Project
from ptq4snn.numerics.finishing import FINISHES
from ptq4snn.runtime.decode import late_heads
from ptq4snn.runtime.loading import build as build_model
from ptq4snn.runtime.parameters import Model
from ptq4snn.runtime.reference import NumpyExecutor
from ptq4snn.runtime.state import State

COMPILERS = {"gcc": (*range(12), 42, 69), "clang": (*range(12, 22), 53)}


@pytest.mark.parametrize("compiler", COMPILERS)
def test_random_programs(compiler: str, tmp_path: Path) -> None:
    if shutil.which(compiler) is None:
        pytest.skip(f"there is no {compiler} here")
    cases, sanitized = [random_case(seed) for seed in COMPILERS[compiler]], has_sanitizers(compiler, tmp_path)
    compare(cases, results(build(cases, tmp_path, compiler, SANITIZED if sanitized else ["-O1"]), cases))
    if not sanitized:
        pytest.skip(f"{compiler} has no sanitizers here: its programs were compared without them")


def odd(model: Model) -> Model:
    """The model with weights of -3, -1, 1 and 3 wherever its own reach as far."""
    numbers = {
        name: replace(n, weight=2 * n.weight.clip(-2, 1) + 1, bits=3) if n.bits > 2 else n
        for name, n in model.projections.items()
    }
    return build_model(model.program, numbers, model.neurons, model.mirrors)


@pytest.mark.parametrize("compiler", ["gcc", "clang"])
def test_odd_weights_take_one_bit_less(compiler: str, tmp_path: Path) -> None:
    if shutil.which(compiler) is None:
        pytest.skip(f"there is no {compiler} here")
    cases = []
    for seed in range(8):
        model = odd(random_model(seed, operations=5, work=1500))
        x, path = random_input(model, seed, 1), "dense" if seed % 4 == 3 else "event"
        cases.append(case(model, f"m{seed}", x, model.program.steps, path=path))
    sanitizers = SANITIZED if has_sanitizers(compiler, tmp_path) else ("-O1",)
    compare(cases, results(build(cases, tmp_path, compiler, sanitizers), cases))
    written = b"".join(text for c in cases for text in c.source.files.values())
    assert written.count(b"2 bits, odd") > len(cases)


@pytest.mark.parametrize("compiler", ["gcc", "clang"])
def test_outputs_that_end_with_a_softmax_or_the_like(compiler: str, tmp_path: Path) -> None:
    if shutil.which(compiler) is None:
        pytest.skip(f"there is no {compiler} here")
    cases = []
    for n, (how, axis) in enumerate(product(FINISHES, (-1, -2))):
        model = finishing(random_model(30 + n, operations=3, work=800), how, axis)
        steps = model.program.steps
        cases.append(case(model, f"m{n}", random_input(model, n, 1), steps))
        there = placed(model, n)  # and a bias for each position
        cases.append(case(there, f"p{n}", random_input(there, n, 1), steps))
    sanitizers = SANITIZED[1:] if has_sanitizers(compiler, tmp_path) else ()
    compare(cases, results(build(cases, tmp_path, compiler, ("-O2", *sanitizers)), cases))


def test_two_ends_in_a_row_are_refused_by_name() -> None:
    model = finishing(random_model(3), "softmax", -1)
    then = (("softmax", -1), ("argmax", -1))
    outputs = tuple(replace(out, then=then) for out in model.program.outputs)
    both = replace(model, program=replace(model.program, outputs=outputs))
    with pytest.raises(PTQ4SNNError, match="softmax and argmax"):
        case(both, "net", random_input(both, 0, 1), 1)


def test_a_mean_over_time_that_more_than_the_output_reads(tmp_path: Path) -> None:
    """It runs the steps of its calibration, and has outputs behind the last."""
    if shutil.which("gcc") is None:
        pytest.skip("there is no gcc here")
    model, head = next(
        (m, op)
        for m in (random_model(seed, operations=3, work=500) for seed in range(100))
        for op in late_heads(m)
        if m.program.steps > 2
    )
    program, v = model.program, len(model.program.values)
    clip = Clip(v, (head.output,), "clip", -100, 100)
    outputs = tuple(
        replace(out, value=v, kind="count", name=None) for out in program.outputs if out.value == head.output
    )
    values = (*program.values, program.values[head.output])
    more = replace(program, values=values, operations=(*program.operations, clip), outputs=outputs)
    fixed = build_model(more, model.projections, model.neurons, model.mirrors)
    cases = [case(fixed, "net", random_input(model, 0, 1), program.steps)]
    assert fixed_steps(cases[0].model)
    compare(cases, results(build(cases, tmp_path, "gcc", SANITIZED), cases))


def test_the_programs_have_everything() -> None:
    """Every operation, width, rounding and reset stands in one of the programs of this suite."""
    chosen = [*COMPILERS.values(), *(board.seeds for board in BOARDS.values())]
    models = [random_case(seed).model for seeds in chosen for seed in seeds]
    found = {type(op) for m in models for op in m.program.operations}
    assert found == set(OPERATIONS.values())
    neurons = [
        (op, m.neurons[op.name]) for m in models for op in m.program.operations if isinstance(op, Neuron)
    ]
    assert {(n.reset, n.rounding) for _, n in neurons} == set(
        product(("hard", "soft", "none"), ("even", "dither"))
    )
    assert {n.reset for _, n in neurons if n.most > 1} == {"hard", "soft", "none"}  # they count
    assert {w for _, n in neurons for w in n.bits.tolist()} == {2, 3, 4, 5, 6, 7, 8, 16, 32}
    assert {p.bits for m in models for p in m.projections.values()} == set(range(2, 9))
    for holds in (
        any(op.carried for op, _ in neurons),
        any(op.once and n.over_time for op, n in neurons),
        any(op.channel is not None and not op.once for op, _ in neurons),
        any(p.rescale is not None for m in models for p in m.projections.values()),
        any(p.over_time and p.role != "output" for m in models for p in m.projections.values()),
        any(len(m.program.outputs) > 1 for m in models),
        any(m.program.input.time_axis is None for m in models),
    ):
        assert holds


def test_loops_chosen_by_what_was_measured(tmp_path: Path) -> None:
    """Dense where most inputs are not zero, events elsewhere; in one program, and the same bits."""
    if shutil.which("gcc") is None:
        pytest.skip("there is no gcc here")
    cases, kinds = [], set()
    for seed in range(6):
        x = random_input(random_model(seed, operations=5, work=1500), seed, 2)
        cases.append(random_case(seed, path="auto", samples=x))
        densities = measured_densities(cases[-1].model, x)
        for op in cases[-1].model.program.operations:
            if isinstance(op, Project):
                chosen = cases[-1].source.paths[op.name]
                assert chosen == ("dense" if densities[op.name] >= 0.5 else "event")
                kinds.add(chosen)
    assert kinds == {"event", "dense"}
    compare(cases, results(build(cases, tmp_path, "gcc", ["-O1"]), cases))


def measured_densities(model: Model, x: Any) -> dict[str, float]:
    """Shares of inputs that are not zero, counted on the values of the NumPy executor."""
    program = model.program
    layers = [op for op in program.operations if isinstance(op, Project)]
    read = sorted({op.inputs[0] for op in layers})
    axes: tuple[int, ...] = (program.input.batch_axis,)
    if program.input.time_axis is not None:
        axes = (program.input.time_axis, *axes)
    frames = np.moveaxis(x, axes, tuple(range(len(axes))))
    frames = frames if program.input.time_axis is not None else frames[None]
    flat = np.ascontiguousarray(frames.reshape(*frames.shape[:2], -1), np.float32)
    batch = flat.shape[1]
    values = NumpyExecutor(model).execute(flat, program.steps, State.new(model, batch), read, batch)
    return {op.name: float((values[op.inputs[0]] != 0).mean()) for op in layers}


def test_weights_from_a_file_beside_it(tmp_path: Path) -> None:
    """NAME.bin, linked as the words that the source names: the same bits."""
    if shutil.which("gcc") is None:
        pytest.skip("there is no gcc here")
    one = random_case(3, weights="bin")
    words = np.frombuffer(one.source.files["m3.bin"], "<u4")
    text = ", ".join(f"0x{w:08x}U" for w in words.tolist())
    (tmp_path / "w.c").write_text(
        "#include <stdint.h>\nextern const uint32_t m3_weights[];\n"
        f"const uint32_t m3_weights[] = {{{text}}};\n"
    )
    run(["gcc", "-c", "w.c"], tmp_path)
    compare([one], results(build([one], tmp_path, "gcc", ["-O1", "-Wl,w.o"]), [one]))
