"""Sessions: a step is made whole or not at all, and no number of steps ends one."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from runtime.native_tools import levels, samples
from runtime.programs import random_input, random_model
from runtime.test_state import frame, same

from ptq4snn.errors import Cancelled, DataError, PTQ4SNNError
from ptq4snn.network.program import TimeSum
from ptq4snn.runtime import Runtime, State
from ptq4snn.runtime.engine import is_causal
from ptq4snn.runtime.native import NativeExecutor
from ptq4snn.runtime.parameters import Model
from ptq4snn.runtime.state import MAX_SESSION

OLD_LIMIT = 2**16
UNTOUCHED = -(2**40)  # no value of a small model


def found(wanted: Callable[[Model], bool]) -> Model:
    return next(m for m in map(random_model, range(500)) if is_causal(m.program) and wanted(m))


def summed(model: Model) -> bool:
    return any(isinstance(op, TimeSum) for op in model.program.operations)


def dithered(model: Model) -> bool:
    return any(n.rounding == "dither" and (n.settle_n > 2).any() for n in model.neurons.values())


def runtime(model: Model, kernels: str) -> Runtime:
    if kernels == "native":
        levels()
    return Runtime(model, kernels)


def same_state(a: State | None, b: State | None) -> bool:
    assert a is not None and b is not None
    parts = ((a.rows, b.rows), (a.sums, b.sums))
    return a.steps == b.steps and all(np.array_equal(x[v], y[v]) for x, y in parts for v in x)


@pytest.mark.parametrize("kernels", ["numpy", "native"])
@pytest.mark.parametrize("where", ["_executor.execute", "_decode"])
def test_a_step_that_raises_was_not_made(kernels: str, where: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model = found(lambda m: summed(m) and bool(State.new(m, 1).rows))
    x = random_input(model, 0, 2, 4)
    rt, other = runtime(model, kernels), runtime(model, kernels)
    for t in range(2):
        rt.step(frame(model, x, t)), other.step(frame(model, x, t))
    before = rt.state
    owner: Any = rt._executor if where.startswith("_executor") else rt
    name = where.split(".")[-1]
    real = getattr(owner, name)

    def interrupted(*args: Any, **kwargs: Any) -> Any:
        real(*args, **kwargs)  # states are written by then
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(owner, name, interrupted)
        for _ in range(2):
            with pytest.raises(KeyboardInterrupt):
                rt.step(frame(model, x, 2))
    assert same_state(rt.state, before)
    for t in (2, 3):
        assert same(rt.step(frame(model, x, t)), other.step(frame(model, x, t)))
    assert same_state(rt.state, other.state)


def test_a_first_step_that_raises_leaves_no_session(monkeypatch: pytest.MonkeyPatch) -> None:
    model = found(summed)
    rt, x = Runtime(model, "numpy"), random_input(model, 0, 2)

    def interrupted(*_: Any, **__: Any) -> Any:
        raise KeyboardInterrupt

    monkeypatch.setattr(rt, "_decode", interrupted)
    for call in (rt.step, rt):
        with pytest.raises(KeyboardInterrupt):
            call(frame(model, x, 0) if call == rt.step else x)
        assert rt.state is None


class Rang(Exception):
    """What the handler of a signal raises."""


@pytest.fixture
def alarm() -> Iterator[Callable[[Callable[[], None]], None]]:
    """Sends this process a signal in a moment; its handler calls the function given."""
    before = signal.getsignal(signal.SIGALRM)

    def ring(handle: Callable[[], None]) -> None:
        signal.signal(signal.SIGALRM, lambda *_: handle())
        signal.setitimer(signal.ITIMER_REAL, 0.02)

    yield ring
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, before)


def rang() -> None:
    raise Rang


def long_call(executor: NativeExecutor, model: Model) -> tuple[Any, int]:
    """Samples that take long enough, and their number."""
    batch = 64
    while True:
        x = samples(model, 0, batch, 4)
        begin = time.perf_counter()
        executor.execute(x, 4, None, [model.program.outputs[0].value], 1)
        if time.perf_counter() - begin > 0.4:
            return x, batch
        batch *= 2


@pytest.mark.parametrize("threads", [1, 2])
def test_a_signal_ends_a_native_call_before_its_end(
    threads: int, alarm: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    levels()
    model = random_model(5, work=20000)
    executor = NativeExecutor(model)
    x, batch = long_call(executor, model)
    v = model.program.outputs[0].value
    value = model.program.values[v]
    shape = (batch, value.positions, value.channels)
    written = np.full((4, *shape) if value.time else shape, UNTOUCHED)
    monkeypatch.setattr(executor, "_blank", lambda *_: written)
    alarm(rang)
    with pytest.raises(Rang):
        executor.execute(x, 4, None, [v], threads)
    last = np.moveaxis(written, -3, 0)[batch - 1]
    assert (last == UNTOUCHED).all()  # the last sample was not come to
    monkeypatch.undo()
    few = x[:, :3]
    again = executor.execute(few, 4, None, [v], threads)[v]  # and the engine goes on
    assert np.array_equal(again, NativeExecutor(model).execute(few, 4, None, [v], 1)[v])


def test_a_handler_that_returns_lets_the_call_finish_and_cannot_run_the_model(alarm: Any) -> None:
    levels()
    model = random_model(5, work=20000)
    executor, told = NativeExecutor(model), []
    x, _ = long_call(executor, model)
    v = model.program.outputs[0].value
    want = executor.execute(x, 4, None, [v], 1)[v]

    def handle() -> None:
        try:
            executor.execute(x[:, :1], 4, None, [v], 1)
        except PTQ4SNNError as why:
            told.append(str(why))

    alarm(handle)
    assert np.array_equal(executor.execute(x, 4, None, [v], 1)[v], want)
    assert len(told) == 1 and "signal handler" in told[0]


@pytest.mark.parametrize("ended", [False, True])
def test_a_handler_that_steps_does_not_write_what_the_step_below_it_reads(
    ended: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """NumPy's executor can run inside of itself; memory of states swaps at every step."""
    model = found(lambda m: summed(m) and bool(State.new(m, 1).rows))
    x = random_input(model, 0, 2, 8)
    rt, other = Runtime(model, "numpy"), Runtime(model, "numpy")
    for t in range(3):
        rt.step(frame(model, x, t)), other.step(frame(model, x, t))
    real = rt._executor.execute
    handled: list[bool] = []

    def interrupted(*args: Any, **kwargs: Any) -> Any:
        if not handled:
            handled.append(True)
            if ended:
                rt.reset()
            for t in (4, 5, 6):
                rt.step(frame(model, x, t))
        return real(*args, **kwargs)

    monkeypatch.setattr(rt._executor, "execute", interrupted)
    assert same(rt.step(frame(model, x, 3)), other.step(frame(model, x, 3)))
    assert same_state(rt.state, other.state)
    for t in (4, 5, 6):
        assert same(rt.step(frame(model, x, t)), other.step(frame(model, x, t)))
    assert same_state(rt.state, other.state)


@pytest.mark.parametrize("kernels", ["numpy", "native"])
def test_threads_that_share_a_session_lose_no_step(kernels: str) -> None:
    model = found(summed)
    rt, other = runtime(model, kernels), runtime(model, kernels)
    x = frame(model, random_input(model, 0, 1, 1), 0)
    threads = [threading.Thread(target=lambda: [rt.step(x) for _ in range(20)]) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for _ in range(60):
        other.step(x)
    assert same_state(rt.state, other.state)


def test_a_process_forked_during_a_call_can_run_the_model() -> None:
    """The thread that runs the call, and holds its lock, is not there in the child."""
    levels()
    model = random_model(5, work=20000)
    executor = NativeExecutor(model)
    x, _ = long_call(executor, model)
    v, few = model.program.outputs[0].value, x[:, :2]
    want = executor.execute(few, 4, None, [v], 1)[v]
    busy = threading.Thread(target=lambda: executor.execute(x, 4, None, [v], 2))
    busy.start()
    time.sleep(0.1)  # it is inside by then
    child = os.fork()
    if child == 0:
        signal.alarm(60)
        same_bits = False
        try:
            same_bits = np.array_equal(executor.execute(few, 4, None, [v], 2)[v], want)
        finally:
            os._exit(0 if same_bits else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    busy.join()


def at_step(model: Model, steps: int, rows: dict[int, Any] | None = None) -> State:
    """A state after so many steps; nothing was summed."""
    state = State.new(model, 2)
    return State(state.model_hash, 2, steps, state.rows if rows is None else rows, state.sums)


@pytest.mark.parametrize("wanted", [summed, dithered])
def test_sessions_go_on_past_65536_steps(wanted: Any, tmp_path: Path) -> None:
    levels()
    model = found(wanted)
    assert model.bounds.steps > OLD_LIMIT + 8
    both = [Runtime(model, kernels) for kernels in ("numpy", "native")]
    x = random_input(model, 0, 2, 8)
    for rt in both:
        rt.restore(at_step(model, OLD_LIMIT - 3))
    for t in range(8):
        a, b = (rt.step(frame(model, x, t)) for rt in both)
        assert same(a, b)
        state = both[0].state
        assert state is not None and state.steps == OLD_LIMIT - 2 + t and same_state(state, both[1].state)
        state.save(tmp_path / "s")
        both[0].restore(State.load(tmp_path / "s", model))


def rows_after(rt: Runtime, begin: int) -> list[bytes]:
    """All states after each of 20 steps of a session that had made `begin` before."""
    x, out = random_input(rt.model, 0, 2, 20), []
    rt.restore(at_step(rt.model, begin))
    for t in range(20):
        rt.step(frame(rt.model, x, t))
        state = rt.state
        assert state is not None and state.steps == begin + t + 1
        out.append(b"".join(a.tobytes() for a in state.rows.values()))
    return out


def phase_matters(model: Model) -> bool:
    if not dithered(model) or summed(model):
        return False
    rt = Runtime(model, "numpy")
    return rows_after(rt, 5) != rows_after(rt, 6)


@pytest.mark.parametrize("kernels", ["numpy", "native"])
def test_dither_repeats_after_16_steps_however_many_there_were(kernels: str) -> None:
    model = found(phase_matters)
    assert model.bounds.steps == MAX_SESSION  # nothing is summed: no end
    rt = runtime(model, kernels)
    first = rows_after(rt, 5)
    for more in (16, 2**20, 2**40, 2**61):
        assert rows_after(rt, 5 + more) == first


def test_where_a_sum_could_leave_53_bits_one_sentence_says_so() -> None:
    model = found(summed)
    rt, x = Runtime(model, "numpy"), random_input(model, 0, 2, 1)
    assert OLD_LIMIT <= model.bounds.steps < MAX_SESSION
    rt.restore(at_step(model, model.bounds.steps - 1))
    rt.step(frame(model, x, 0))
    with pytest.raises(DataError, match=r"53 bits: call rt.reset\(\)"):
        rt.step(frame(model, x, 0))


@pytest.mark.parametrize("kernels", ["numpy", "native"])
@pytest.mark.parametrize("threads", [1, 2])
def test_another_thread_cancels_a_call_and_the_runtime_goes_on(kernels: str, threads: int) -> None:
    model = found(lambda m: summed(m) and bool(State.new(m, 1).rows))
    rt, other = runtime(model, kernels), runtime(model, kernels)
    x = random_input(model, 0, 2, 4)
    rt.step(frame(model, x, 0)), other.step(frame(model, x, 0))
    many = np.repeat(x, 2**15, model.program.input.batch_axis)  # seconds
    ended, done = [], threading.Event()

    def call() -> None:
        try:
            rt(many, threads=threads)
        except Cancelled as why:
            ended.append(str(why))
        done.set()

    thread = threading.Thread(target=call)
    thread.start()
    while not done.wait(0.01):
        rt.cancel()
    thread.join()
    assert ended == ["the call was cancelled"]
    for t in (1, 2, 3):
        assert same(rt.step(frame(model, x, t)), other.step(frame(model, x, t)))
    assert same(rt(x), other(x)) and same_state(rt.state, other.state)


FORKS = 25


@pytest.mark.parametrize("kernels", ["numpy", "native"])
def test_forks_at_any_moment_of_calls_of_changing_size_leave_a_child_that_runs(kernels: str) -> None:
    """Memory is exchanged at every call and the session's lock is held most of the time: the child, with two
    threads of its own, steps and calls as if nothing had been."""
    model = found(lambda m: summed(m) and bool(State.new(m, 1).rows))
    rt, x, end = runtime(model, kernels), random_input(model, 0, 6, 2), threading.Event()
    axis = model.program.input.batch_axis
    parts = [x.take(range(b), axis) for b in (1, 6, 2, 5)]
    wanted = [rt(part) for part in parts]

    def busy() -> None:
        while not end.is_set():
            for part in parts:
                rt(part, threads=2)
                rt.step(frame(model, x, 0))

    def child() -> bool:
        right: list[bool] = []

        def run() -> None:
            right.extend(same(rt(part, threads=2), y) for part, y in zip(parts, wanted, strict=True))
            rt.step(frame(model, x, 0))

        steps = (rt.state or State.new(model, 1)).steps
        team = [threading.Thread(target=run) for _ in range(2)]
        for thread in team:
            thread.start()
        for thread in team:
            thread.join()
        return all(right) and len(right) == 8 and rt.state is not None and rt.state.steps == steps + 2

    thread = threading.Thread(target=busy)
    thread.start()
    codes = []
    for i in range(FORKS):
        time.sleep(0.001 * (i % 7))
        pid = os.fork()
        if pid == 0:
            signal.alarm(60)  # a hung child dies of it
            right = False
            try:
                right = child()
            finally:
                os._exit(0 if right else 1)
        codes.append(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
    end.set()
    thread.join()
    assert codes == [0] * FORKS
