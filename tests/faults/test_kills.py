"""Whole runs killed at random moments: what goes on ends with the same bytes, and leaves nothing else."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from faults.nursery import Nursery
from faults.places import new_place

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="needs fork and SIGKILL")

SIGNALS = (signal.SIGKILL, signal.SIGTERM, signal.SIGINT)
QUANTIZE = (
    "quantize --model net:net --data x.npy --recipe brecq+w4m4 --iterations 60 --work work --out model.ptq"
)
COMPARE = (
    "compare net:net --data xy.npz --methods gptq+w4m32 uniform+w4m4 w3m2 --seeds 0 1 --calibration 48 "
    "--out runs --csv table.csv --json"
)
TRAIN = "train small.toml --data xy.npz --test xy.npz --out run"


def bundle(place: Path) -> dict[str, bytes]:
    return {"model.ptq": (place / "model.ptq").read_bytes()}


def scores(place: Path) -> dict[str, bytes]:
    """Every finished run but for when it was made and how long it took."""
    found = {}
    for path in (place / "runs").glob("*.json"):
        held = json.loads(path.read_text("utf-8"))
        if "setting" in held:
            for name in ("seconds", "date"):
                del held["result"][name]
            found[path.name] = json.dumps(held, sort_keys=True).encode()
    return found


def weights(place: Path) -> dict[str, bytes]:
    """The tensors' bytes; the header tells how long it took."""
    content = (place / "run" / "net.trained.safetensors").read_bytes()
    return {"tensors": content[8 + int.from_bytes(content[:8], "little") :]}


def names(place: Path) -> set[str]:
    """What is there, but for the hashes of data files, which are kept under when these were changed."""
    found = {p.relative_to(place) for p in place.rglob("*")}
    return {str(p) for p in found if not {"__pycache__", "data"} & set(p.parts)}


RUNS: dict[str, tuple[str, Callable[[Path], dict[str, bytes]]]] = {
    "quantize": (QUANTIZE, bundle),
    "compare": (COMPARE, scores),
    "train": (TRAIN, weights),
}


def kill_and_go_on(nursery: Nursery, name: str, folder: Path, trials: int, seed: int) -> dict[int, int]:
    """Kill a run up to three times at random moments and let it finish; how often each exit code was met."""
    words, content = RUNS[name][0].split(), RUNS[name][1]
    whole = new_place(folder / "whole")
    began = time.monotonic()
    assert nursery.run(whole, words) == 0, (whole / "log").read_text()
    duration = time.monotonic() - began
    wanted, left = content(whole), names(whole)
    assert wanted
    chance, met = random.Random(seed), dict.fromkeys((0, 130, -signal.SIGKILL, -signal.SIGTERM), 0)
    for trial in range(trials):
        place = new_place(folder / str(trial))
        for _ in range(chance.randint(1, 3)):
            code = nursery.run(place, words, chance.choice(SIGNALS), chance.uniform(0, duration))
            assert code in met, (code, (place / "log").read_text())
            met[code] += 1
        assert nursery.run(place, words) == 0, (place / "log").read_text()
        assert content(place) == wanted
        assert names(place) == left
        shutil.rmtree(place)
    return met


@pytest.mark.parametrize("name", RUNS)
def test_a_killed_run_goes_on_to_the_same_bytes(nursery: Nursery, name: str, tmp_path: Path) -> None:
    kill_and_go_on(nursery, name, tmp_path, trials=2, seed=int.from_bytes(name.encode(), "little"))


@pytest.mark.full
@pytest.mark.skipif(os.environ.get("PTQ4SNN_FULL") != "1", reason="PTQ4SNN_FULL=1 kills hundreds")
@pytest.mark.parametrize("name", RUNS)
def test_hundreds_of_killed_runs(nursery: Nursery, name: str, tmp_path: Path) -> None:
    trials = int(os.environ.get("PTQ4SNN_KILLS", "60"))
    met = kill_and_go_on(nursery, name, tmp_path, trials, seed=1)
    print(name, {str(code): n for code, n in met.items()})
    assert all(met[code] for code in met if code)  # of each kind one at least hit a living run
