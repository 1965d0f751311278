"""The native kernels against the NumPy executor, value by value and bit by bit."""

from __future__ import annotations

import multiprocessing
import threading
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import settings as examples
from hypothesis import strategies as st
from runtime.native_tools import kept_values, levels, samples
from runtime.programs import Builder, models, placed, random_model

from ptq4snn.errors import DataError, PTQ4SNNError
from ptq4snn.network.program import Program
from ptq4snn.runtime import native
from ptq4snn.runtime.loading import build
from ptq4snn.runtime.native import NativeExecutor
from ptq4snn.runtime.native.binding import Engine, library
from ptq4snn.runtime.native.planner import plan_model
from ptq4snn.runtime.parameters import Model
from ptq4snn.runtime.reference import NumpyExecutor
from ptq4snn.runtime.state import State

BATCH = 3


@pytest.fixture(autouse=True)
def _built() -> None:
    levels()


def same(want: dict[int, Any], got: dict[int, Any]) -> None:
    assert want.keys() == got.keys()
    for v in want:
        np.testing.assert_array_equal(got[v], want[v], err_msg=f"value {v}")


def same_state(want: State, got: State) -> None:
    assert got.steps == want.steps
    same(want.rows, got.rows)
    same(want.sums, got.sums)


def compare(model: Model, executor: NativeExecutor, keep: list[int], steps: int) -> None:
    """A whole sequence, by every path, with one and two threads."""
    x = samples(model, 1, BATCH, steps)
    want = NumpyExecutor(model).execute(x, steps, None, keep, 1)
    for path in ("auto", "event", "dense"):
        executor.path = path
        for threads in (1, 2):
            same(want, executor.execute(x, steps, None, keep, threads))


@pytest.mark.parametrize("seed", range(12))
def test_biases_of_positions_and_inputs_that_the_model_normalises(seed: int) -> None:
    model = placed(random_model(seed), seed)
    for keep in (kept_values(model), list(range(len(model.program.values)))):
        for level in levels():
            compare(model, NativeExecutor(model, level, keep=keep), keep, model.program.steps)


@examples(max_examples=40)
@given(models(operations=8), st.integers(0, 2))
def test_sequences_and_every_value(model: Model, more: int) -> None:
    """Fused (only outputs and spikes are kept) and not (all values are), at T of calibration and others."""
    everything = list(range(len(model.program.values)))
    for level in levels():
        for keep in (kept_values(model), everything):
            compare(model, NativeExecutor(model, level, keep), keep, model.program.steps + more)


@examples(max_examples=25)
@given(models(operations=8))
def test_streaming_keeps_the_same_packed_state(model: Model) -> None:
    keep, reference = kept_values(model), NumpyExecutor(model)
    for level in levels():
        executor = NativeExecutor(model, level)
        want, got = State.new(model, BATCH), State.new(model, BATCH)
        for t, steps in enumerate((1, 1, 2)):
            x = samples(model, t, BATCH, steps)
            expected = reference.execute(x, steps, want, keep, 1)
            before, into = got.copy(), got.beside()
            same(expected, executor.execute(x, steps, got, keep, 1 + t % 2, into))
            same_state(before, got)
            same_state(want, into)
            got = into if t % 2 else got
            if got is not into:  # and in place
                same(expected, executor.execute(x, steps, got, keep, 1 + t % 2))
            same_state(want, got)


@examples(max_examples=15)
@given(models(operations=4, work=60_000))
def test_larger_layers(model: Model) -> None:
    keep = kept_values(model)
    for level in levels():
        compare(model, NativeExecutor(model, level), keep, model.program.steps)


def test_a_batch_of_many_tiles_gives_what_its_samples_give() -> None:
    model = random_model(3)
    executor, keep = NativeExecutor(model), kept_values(model)
    x = samples(model, 0, 9, 2)
    one = executor.execute(x, 2, None, keep, 2)
    for i in range(9):
        for v, a in executor.execute(x[:, i : i + 1], 2, None, keep, 1).items():
            np.testing.assert_array_equal(a[..., 0, :, :], one[v][..., i, :, :])


def test_more_threads_than_rows() -> None:
    model = random_model(5)
    keep = kept_values(model)
    x = samples(model, 0, 1, 1)
    same(
        NumpyExecutor(model).execute(x, 1, None, keep, 1), NativeExecutor(model).execute(x, 1, None, keep, 17)
    )


def test_calls_from_several_threads_at_once() -> None:
    model = random_model(11)
    executor, keep = NativeExecutor(model), kept_values(model)
    inputs = [samples(model, i, 2, 2) for i in range(4)]
    want = [executor.execute(x, 2, None, keep, 1) for x in inputs]
    got: list[Any] = [None] * 4

    def call(i: int) -> None:
        for _ in range(20):
            got[i] = executor.execute(inputs[i], 2, None, keep, 2)

    callers = [threading.Thread(target=call, args=(i,)) for i in range(4)]
    for c in callers:
        c.start()
    for c in callers:
        c.join()
    for a, b in zip(want, got, strict=True):
        same(a, b)


def test_after_a_fork() -> None:
    """The threads of the parent are not there in the child."""
    model = random_model(11)
    executor, keep, x = NativeExecutor(model), kept_values(model), samples(model, 0, 2, 2)
    want = executor.execute(x, 2, None, keep, 2)
    with multiprocessing.get_context("fork").Pool(1, _inherit, (executor,)) as pool:
        same(want, pool.apply_async(_run_inherited, (x, keep)).get(timeout=60))


_inherited: list[NativeExecutor] = []


def _inherit(executor: NativeExecutor) -> None:
    _inherited.append(executor)


def _run_inherited(x: Any, keep: list[int]) -> dict[int, Any]:
    return _inherited[0].execute(x, 2, None, keep, 2)


def test_statistics_count_what_happens() -> None:
    """Synaptic operations and densities against a count by hand on the reference's values."""
    model = random_model(21, 10)
    executor = NativeExecutor(model, keep=range(len(model.program.values)))
    executor.profile = True
    x, steps = samples(model, 2, BATCH, 2), 2
    values = NumpyExecutor(model).execute(x, steps, None, range(len(model.program.values)), 1)
    executor.execute(x, steps, None, [], 2)
    found = executor.statistics()
    assert (found.samples, found.steps, found.kernels) == (BATCH, steps, levels()[-1])
    assert found.state_bytes == State.new(model, 1).nbytes
    assert found.weights_bytes > 0 and found.arena_bytes > 0
    by_name = {o.name: o for o in found.operations if o.kind in ("project", "project_rows", "matmul")}
    assert by_name
    for op in model.program.operations:
        if op.kind in ("project", "matmul"):
            a = values[op.inputs[0]]
            assert by_name[op.name].density == pytest.approx(np.count_nonzero(a) / a.size)
            assert 0 <= by_name[op.name].synops <= by_name[op.name].macs


@pytest.mark.parametrize("path", ["event", "dense"])
def test_statistics_name_the_path(path: str) -> None:
    """Of a projection that reads spikes; one that reads bytes is always dense."""
    b = Builder(4, 3000)
    spikes = b.neuron(b.project(b.quantize(), grid=True))
    b.one = lambda *items: items[0]  # type: ignore[method-assign]  # one group, no rescale
    out = b.project(spikes)
    program = Program(b.steps, b.input, tuple(b.values), tuple(b.operations), (b.output(out),))
    model = build(program, b.projections, b.neurons, b.mirrors)
    executor = NativeExecutor(model)
    executor.profile, executor.path = True, path
    executor.execute(samples(model, 0, 2, 2), 2, None, [], 1)
    found = {o.name: o.path for o in executor.statistics().operations if o.kind.startswith("project")}
    assert found[program.operations[-1].name] == path
    assert found[program.operations[1].name] in ("dense", "")


def test_synops_of_a_matmul() -> None:
    model = next(
        m for m in map(random_model, range(200)) if any(o.kind == "matmul" for o in m.program.operations)
    )
    op = next(o for o in model.program.operations if o.kind == "matmul")
    executor = NativeExecutor(model)
    executor.profile = True
    x = samples(model, 0, BATCH, 2)
    left = NumpyExecutor(model).execute(x, 2, None, [op.inputs[0]], 1)[op.inputs[0]]
    executor.execute(x, 2, None, [], 1)
    found = next(o for o in executor.statistics().operations if o.name == op.name and o.kind == "matmul")
    out = model.program.values[op.output]
    repeat = 2 if out.time and not model.program.values[op.inputs[0]].time else 1
    assert found.synops == np.count_nonzero(left) * out.channels * repeat


def test_four_bit_weights_take_four_bits() -> None:
    """All weights of a wide model at 4 bits: less than 5 bits each with everything else."""
    model = max((random_model(s, 4, 400_000) for s in range(30)), key=_weights)
    for p in model.projections.values():
        object.__setattr__(p, "bits", 4)
        p.weight.clip(-8, 7, out=p.weight)
    size = NativeExecutor(model, keep=[]).statistics().weights_bytes
    padding = 64 * 64  # of channels to whole tiles
    assert size < _weights(model) * 5 / 8 + padding * len(model.projections) + 64 * _channels(model)


def _weights(model: Model) -> int:
    return sum(p.weight.size for p in model.projections.values())


def _channels(model: Model) -> int:
    return sum(v.channels + v.positions for v in model.program.values)


def test_a_value_that_was_not_planned_is_refused() -> None:
    model = random_model(0)
    executor = NativeExecutor(model, keep=[])
    with pytest.raises(DataError, match="is not kept"):
        executor.execute(samples(model, 0, 1, 1), 1, None, [0], 1)


def test_an_unknown_level_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(PTQ4SNNError, match="no native kernels 'mmx' here"):
        NativeExecutor(random_model(0), "mmx")
    monkeypatch.setenv("PTQ4SNN_KERNELS", "scalar")
    assert NativeExecutor(random_model(0)).kernels == "scalar"


def test_a_threshold_that_counts_is_divided_by_and_hence_positive() -> None:
    drawn = (random_model(seed, 8) for seed in range(100))
    model = next(m for m in drawn if any(n.most > 1 for n in m.neurons.values()))
    zero = {name: replace(n, theta=0 * n.theta) for name, n in model.neurons.items()}
    block = plan_model(replace(model, neurons=zero), kept_values(model)).block
    kernels = library()
    assert kernels is not None
    with pytest.raises(PTQ4SNNError, match="threshold that is not positive"):
        Engine(kernels, block, "scalar")


def test_calls_that_do_not_fit_are_refused() -> None:
    model = random_model(0)
    executor, x = NativeExecutor(model), samples(model, 0, 2, 2)
    with pytest.raises(PTQ4SNNError, match="another size"):
        executor.execute(x[..., :-1] if x.shape[2] > 1 else np.repeat(x, 2, 2), 2, None, [], 1)
    with pytest.raises(PTQ4SNNError, match="state has another size"):
        executor.execute(x, 2, State.new(model, 3), [], 1)
    with pytest.raises(PTQ4SNNError, match="threads"):
        executor.execute(x, 2, None, [], 0)


def test_peaks_are_positive() -> None:
    for kind in (0, 1, 3):
        found = native.peak(kind, 1)
        assert found is not None and found > 0


def test_the_weights_live_only_in_the_kernels() -> None:
    """Packed there; the arrays that they were made from are gone."""
    import gc
    import weakref

    from ptq4snn.runtime.engine import Runtime

    model = next(m for m in map(random_model, range(50)) if m.projections)
    arrays = [weakref.ref(p.weight) for p in model.projections.values()]
    before = model.hash
    rt = Runtime(model, "native")
    del model
    gc.collect()
    assert all(a() is None for a in arrays)
    assert rt.model.hash == before


@pytest.mark.parametrize("seed", range(8))
def test_expanded_weights_give_the_same_bits_and_are_counted(seed: int) -> None:
    model = random_model(seed)
    keep = kept_values(model)
    for level in levels():
        packed, expanded = (NativeExecutor(model, level, keep, expanded=e) for e in (False, True))
        compare(model, expanded, keep, 3)
        x = samples(model, 1, 1, 2)
        for executor in (packed, expanded):
            executor.execute(x, 2, None, keep, 1)
        assert expanded.statistics().weights_bytes >= packed.statistics().weights_bytes


def test_a_state_that_was_given_other_arrays_is_written_there() -> None:
    """Addresses are kept with a state: they must not outlive its arrays."""
    model = next(m for m in map(random_model, range(100)) if State.new(m, 1).rows)
    executor, x = NativeExecutor(model), samples(model, 1, 1, 4)
    state, want = State.new(model, 1), State.new(model, 1)
    for t in range(4):
        state.rows = {v: a.copy() for v, a in state.rows.items()}
        held = dict(state.rows)
        executor.execute(x[min(t, len(x) - 1)][None], 1, state, [], 1)
        NumpyExecutor(model).execute(x[min(t, len(x) - 1)][None], 1, want, [], 1)
        assert all(state.rows[v] is held[v] for v in held)
        same_state(want, state)
