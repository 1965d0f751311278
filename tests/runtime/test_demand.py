"""Small files that describe large networks: told and refused before anything is taken; real ones fit."""

from __future__ import annotations

import json
import tracemalloc
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from runtime.bundles import planned_models, write_model
from runtime.handmade import base
from runtime.programs import random_input

import ptq4snn
from ptq4snn.bundle.format import IntegerArray, read_bundle, write_bundle
from ptq4snn.cli.main import main
from ptq4snn.cli.options import build_parser
from ptq4snn.errors import BundleError
from ptq4snn.network.index import Window, identity
from ptq4snn.network.program import Delay, Output, Program, Project, Quantize, Value
from ptq4snn.runtime import Limits, Runtime, estimate, load
from ptq4snn.runtime.demand import GIB, Demand, demand_of, most_alive
from ptq4snn.runtime.loading import build
from ptq4snn.runtime.native import available
from ptq4snn.runtime.numpy_project import tapped
from ptq4snn.runtime.operation_check import Numbers
from ptq4snn.runtime.state import State

Parts = dict[str, Any]


def large_kernel(size: int, again: int = 0) -> Parts:
    """A `size` x `size` kernel over as many positions, read `again` times more: few numbers, many taps."""
    parts = base()
    program: Program = parts["program"]
    before = size // 2
    window = Window((size,) * 2, (size,) * 2, (1, 1), (before,) * 2, (size - 1 - before,) * 2, (1, 1))
    values = [Value(size * size, 2, False)] + [Value(size * size, 3, False)] * (again + 1)
    quantize = Quantize(0, (), "conv", identity(2 * size * size))
    projects = [Project(i + 1, (0,), "conv", window, 1) for i in range(again + 1)]
    weight = np.ones((3, 2, size, size), np.int8)
    index, shape = identity(3 * size * size), (size * size, 3)
    out = Output(again + 1, "current", "conv", -1, index, shape, 0, None, "float32", ())
    return {
        "program": Program(
            4, replace(program.input, shape=(2 * size * size,)), tuple(values), (quantize, *projects), (out,)
        ),
        "projections": {"conv": replace(parts["projections"]["conv"], weight=weight)},
        "neurons": {}, "mirrors": {},
    }  # fmt: skip


def demand(parts: Parts) -> Demand:
    return demand_of(parts["program"], Numbers(parts["projections"], parts["neurons"], parts["mirrors"]))


def test_a_large_kernel_is_refused_before_it_is_unfolded() -> None:
    parts = large_kernel(90, again=16)
    tracemalloc.start()
    try:
        with pytest.raises(BundleError, match=r"asks for \d+\.\d GiB of memory .*tables .* raise the limit"):
            build(**parts, limits=Limits())
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 2**24 < demand(parts).memory // 100


def test_additions_have_a_limit_of_their_own() -> None:
    parts = large_kernel(8)
    wanted = 64 * 3 * 2 * 64 + 128  # positions x weights, and the input
    assert demand(parts).additions == wanted
    steps = parts["program"].steps
    build(**parts, limits=Limits(additions=wanted * steps))
    with pytest.raises(BundleError, match=rf"additions a sample \(.* at each of {steps} steps\), more than"):
        build(**parts, limits=Limits(additions=wanted * steps - 1))


def test_few_additions_a_step_are_many_over_all_steps() -> None:
    """65,536 steps of what one step may ask for are hours of work."""
    parts = large_kernel(8)
    long = demand(parts | {"program": replace(parts["program"], steps=65_536)})
    replace(long, additions=10**8).check(Limits())
    with pytest.raises(BundleError, match=r"6.6e\+16 additions a sample"):
        replace(long, additions=10**12).check(Limits())


def test_the_time_to_load_has_a_limit() -> None:
    """A layer that is read many times costs no memory, but every time it is proven anew."""
    few, many = demand(large_kernel(2, again=9)), demand(large_kernel(2, again=29_998))
    assert (few.operations, many.operations) == (11, 30_000)
    assert many.memory < 2**26 and many.loading > 1000 * few.loading
    few.check(Limits())
    with pytest.raises(
        BundleError, match=r"asks for 1\d\.\d s to be loaded \(30,000 operations\), more than the 10 s"
    ):
        many.check(Limits())
    many.check(Limits(loading=60))
    assert "time to load:     seconds for 30,000 operations" in many.summary()
    with pytest.raises(BundleError, match="to be loaded"):
        build(**large_kernel(2, again=999), limits=Limits(loading=0.1))


def test_a_program_that_goes_round_is_proven_more_often() -> None:
    parts = large_kernel(2)
    program: Program = parts["program"]
    value = Value(4, 3, True)
    round_and_round = replace(
        program,
        values=(*program.values, value),
        operations=(*program.operations, Delay(len(program.values), (1,), "again")),
    )
    assert demand(parts | {"program": round_and_round}).loading > 8 * demand(parts).loading


@pytest.mark.parametrize("kernels", ["numpy", "auto"])
def test_what_is_taken_stays_below_what_was_told(kernels: str) -> None:
    """Also the memory of NumPy and Python while a model is made and run: the figures are upper bounds. NumPy
    unfolds the taps; for the kernels Python does not."""
    parts = large_kernel(24, again=2)
    told = demand(parts)
    x = np.zeros((1, 2 * 24 * 24), np.float32)
    Runtime(build(**parts), kernels)(x)  # imports
    tracemalloc.start()
    try:
        Runtime(build(**parts), kernels)(x)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    unfolds = kernels == "numpy" or not available()
    assert peak < told.memory and (peak > 2**20) == unfolds


def test_random_models_fit_their_estimate(tmp_path: Path) -> None:
    for seed, model in enumerate(planned_models(12, 8)):
        write_model(model, tmp_path / "m.ptq")
        told = estimate(tmp_path / "m.ptq")
        assert State.new(model, 1).nbytes <= told.state + 8
        held = sum(p.weight.size for p in model.projections.values())
        assert told.weights >= held and told.steps == model.program.steps
        exact = Limits(memory=max(told.memory, 2**22), additions=told.additions * told.steps)
        load(tmp_path / "m.ptq", "numpy", limits=exact)(random_input(model, seed, 1))
        with pytest.raises(BundleError, match=r"m.ptq: it asks for .* additions a sample"):
            load(tmp_path / "m.ptq", limits=replace(exact, additions=exact.additions - 1))


def test_values_alive_at_once_against_a_plain_count() -> None:
    for model in planned_models(8, 8):
        program = model.program
        last = {o.value: 10**9 for o in program.outputs}
        for i, op in enumerate(program.operations):
            for v in op.inputs:
                last[v] = max(last.get(v, 0), i)
        made = {op.output: i for i, op in enumerate(program.operations)}
        sizes = {
            v: program.values[v].positions * program.values[v].channels * (3 if program.values[v].time else 1)
            for v in made
        }
        counts = [
            sum(n for v, n in sizes.items() if made[v] == i or made[v] < i <= last.get(v, made[v]))
            for i in range(len(program.operations))
        ]
        assert most_alive(program, 3) == max(counts)


def test_packed_arrays_are_refused_before_they_are_unpacked(tmp_path: Path) -> None:
    path = tmp_path / "bits.ptq"
    write_bundle(path, {}, {"a": IntegerArray(np.zeros(2**22, np.int8), 1)}, {})
    assert path.stat().st_size < 2**20
    tracemalloc.start()
    try:
        with pytest.raises(BundleError, match=r"bits.ptq: reading it takes 2\d,\d{3},\d{3} bytes of memory"):
            read_bundle(path, 2**24)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.reset_peak()
        assert read_bundle(path, 2**25).integers["a"].values.shape == (2**22,)
        whole = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 2**22 and whole < 2**25
    with pytest.raises(BundleError, match="reading it takes"):
        read_bundle(path, 1000)  # not even the file


def test_numbers_that_become_lists_have_a_limit(tmp_path: Path) -> None:
    model = planned_models(1, 8)[0]
    write_model(model, tmp_path / "m.ptq")
    found = read_bundle(tmp_path / "m.ptq")
    count = 2**17
    found.plan["plan"]["recipe"] = {"$array": "many"}
    arrays = {**found.integers, "many": IntegerArray(np.zeros(count, np.int8), 1)}
    write_bundle(tmp_path / "m.ptq", found.plan, arrays, found.floats)
    with pytest.raises(BundleError, match=r"it refers to more than .* numbers"):
        load(tmp_path / "m.ptq", limits=Limits(memory=4 * 2**20))


def test_inspect_tells_and_refuses(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_model(planned_models(1, 8)[0], tmp_path / "m.ptq")
    bundle = str(tmp_path / "m.ptq")
    assert main(["inspect", bundle]) == 0
    out = capsys.readouterr().out
    assert "memory, at most:" in out and "additions a step:" in out and "time a sample:" in out
    assert "time to load:" in out
    assert main(["inspect", bundle, "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told == estimate(bundle).to_dict() and told["memory_bytes"] > 0
    for words in (["inspect", bundle], ["run", bundle, "none.npy"]):
        assert main([*words, "--max-additions", "1"]) == 2
        err = capsys.readouterr().err
        assert err.count("\n") == 1 and "m.ptq: it asks for" in err and "allowed" in err


def test_every_command_that_opens_a_bundle_has_the_limits(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_model(planned_models(1, 8)[0], tmp_path / "m.ptq")
    bundle, out = str(tmp_path / "m.ptq"), str(tmp_path / "out")
    commands = [
        ["inspect", bundle], ["run", bundle, "none.npy"], ["bench", bundle],
        ["check", bundle, "--target", "loihi2"], ["evaluate", bundle, "--data", "default"],
        *(["export", bundle, "--to", way, "--out", out] for way in ("c", "onnx", "nir")),
    ]  # fmt: skip
    for words in commands:
        assert main([*words, "--max-additions", "1", "--max-memory", "999", "--max-loading", "9"]) == 2
        err = capsys.readouterr().err
        assert err.count("\n") == 1 and "m.ptq: it asks for" in err and "additions" in err, words
    for words in (["summary", bundle], ["report", bundle]):
        assert build_parser().parse_args([*words, "--max-loading", "9"]).max_loading == 9


def test_loading_into_a_model_takes_limits_as_well(tmp_path: Path) -> None:
    write_model(planned_models(1, 8)[0], tmp_path / "m.ptq")
    with pytest.raises(BundleError, match=r"m.ptq: it asks for .* additions a sample"):
        ptq4snn.load(tmp_path / "m.ptq", torch.nn.Linear(1, 1), limits=Limits(additions=1))


def test_the_default_lets_large_networks_through() -> None:
    """66 million weights, a 3 x 3 window at 224 x 224 and 100 MB of values are nothing odd."""
    common = Demand(weights=24 * 66_000_000, tables=64 * 9 * 224**2, values=10**8, state=10**7,
                    additions=2 * 10**10, steps=4, operations=400, loading=2.0)  # fmt: skip
    common.check(Limits())
    assert common.memory < 2 * GIB and common.time == "minutes"
    replace(common, additions=3 * 10**8, steps=300).check(Limits())  # a VGG of many steps


def test_a_large_sample_in_numpy_is_taken_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same sums when only a few positions are unfolded at a time."""
    parts = large_kernel(6)
    x = np.random.default_rng(0).integers(0, 200, (2, 72)).astype(np.float32)
    whole = Runtime(build(**parts), "numpy")(x)
    monkeypatch.setattr("ptq4snn.runtime.numpy_project.MOST", 5 * 72)
    assert np.array_equal(Runtime(build(**parts), "numpy")(x), whole)
    assert tapped(np.ones((1, 2)), np.array([0, -1])).tolist() == [[1, 1], [0, 0]]


def test_a_saved_state_has_a_limit_as_well(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "large.state"
    head: dict[str, Any] = {"state": {"model": "x", "batch": 1, "steps": 1}}
    write_bundle(path, head, {"rows/0": IntegerArray(np.zeros((1, 2**22), np.int8), 1)}, {})
    monkeypatch.setattr("ptq4snn.runtime.state.MOST_BYTES", 2**24)
    with pytest.raises(BundleError, match=r"large.state: reading it takes 2\d,\d{3},\d{3} bytes of memory"):
        State.load(path)
