"""Many at once: a thousand sessions in one process, and threads that share one runtime."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any

import numpy as np

from ptq4snn.runtime import Runtime, load, load_model_file
from soak_parts.network import frames
from soak_parts.streams import resident, same, same_state

__all__ = ["sessions", "sharing"]


def sessions(bundle: Path, count: int, steps: int, seed: int = 0) -> dict[str, Any]:
    """`count` sessions of one model, stepped in a random order; all outputs are those that NumPy gives the
    same sequences as one batch, [T, count, ...] from rest."""
    r, pool = np.random.default_rng(seed), frames(seed)[:, 0]
    chosen = r.integers(len(pool), size=(steps, count))
    whole: Any = load(bundle, "numpy")(pool[chosen])[0]  # [T, count, classes]
    before, model = resident(), load_model_file(bundle)
    all_of_them = [Runtime(model) for _ in range(count)]
    wrong = 0
    for t in range(steps):
        for i in r.permutation(count):
            y = all_of_them[i].step(pool[chosen[t, i]][None])[0]
            wrong += not same(y[0], whole[t, i])
    grown = (resident() - before) / count
    return {"sessions": count, "steps_each": steps, "wrong": wrong, "bytes_a_session": round(grown)}


def sharing(bundle: Path, threads: int, calls: int, seed: int = 0) -> dict[str, Any]:
    """Threads that call one runtime: whole sequences of mixed batches, each with 1 to 3 threads of its own,
    a private session of each thread on the same model, and one session that all of them step."""
    pool, model = frames(seed)[:, 0], load_model_file(bundle)
    shared, x = Runtime(model), pool[:32].reshape(8, 4, *pool.shape[1:])
    wanted = [shared(x[:, :b]) for b in range(1, 5)]
    wrong, errors = [0] * threads, [""] * threads

    def work(me: int) -> None:
        r, own, quiet = np.random.default_rng([seed, me]), Runtime(model), Runtime(model, "numpy")
        for _ in range(calls):
            b = int(r.integers(1, 5))
            wrong[me] += not same(shared(x[:, :b], threads=int(r.integers(1, 4))), wanted[b - 1])
            frame = pool[int(r.integers(len(pool)))][None]
            wrong[me] += not same(own.step(frame), quiet.step(frame))
            shared.step(pool[:1])

    def guarded(me: int) -> None:
        try:
            work(me)
        except Exception as why:
            errors[me] = repr(why)

    team = [threading.Thread(target=guarded, args=(me,)) for me in range(threads)]
    begin = time.monotonic()
    for one in team:
        one.start()
    for one in team:
        one.join()
    alone = Runtime(model)
    for _ in range(threads * calls):
        alone.step(pool[:1])
    lost = not same_state(shared.state, alone.state)
    return {
        "threads": threads, "calls": 3 * threads * calls, "wrong": sum(wrong) + lost,
        "errors": [e for e in errors if e], "seconds": round(time.monotonic() - begin, 1),
    }  # fmt: skip
