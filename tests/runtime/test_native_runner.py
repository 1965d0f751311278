"""Plans outside of Python: on 64-bit ARM, under sanitizers, and broken ones."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from runtime.native_tools import for_arm, kept_values, run, samples, sanitized, state_arrays, write_case
from runtime.programs import random_model

from ptq4snn.runtime.reference import NumpyExecutor

ARM_SEEDS, SANITIZED_SEEDS, FUZZ_SEEDS = range(12), range(12), range(6)
BROKEN = 150  # copies of each plan


@pytest.fixture(scope="session")
def folder(pytestconfig: pytest.Config) -> Path:
    return pytestconfig.cache.mkdir("ptq4snn-native")


def agrees(command: list[str], folder: Path, seed: int) -> None:
    """The runner writes what the NumPy executor computes: kept values, then states."""
    model = random_model(seed, 8)
    steps = model.program.steps + seed % 2
    x = samples(model, seed, 2, steps)
    plan, state = write_case(folder, model, x, steps, path=seed % 3)
    done = run([*command, *(str(folder / name) for name in ("plan", "input", "output"))])
    assert done.returncode == 0, done.stderr
    want = NumpyExecutor(model).execute(x, steps, state, kept_values(model), 1)
    arrays = [*(want[v] for v in plan.kept), *state_arrays(plan, state)]
    assert (folder / "output").read_bytes() == b"".join(a.tobytes() for a in arrays)


@pytest.mark.parametrize(("build", "seeds"), [(for_arm, ARM_SEEDS), (sanitized, SANITIZED_SEEDS)])
def test_random_programs(
    build: Callable[[Path], list[str]], seeds: range, folder: Path, tmp_path: Path
) -> None:
    command = build(folder)
    for seed in seeds:
        agrees(command, tmp_path, seed)


def test_broken_plans_are_refused_or_run_cleanly(folder: Path, tmp_path: Path) -> None:
    command = sanitized(folder)
    ran = refused = 0
    for seed in FUZZ_SEEDS:
        model = random_model(100 + seed, 8)
        write_case(tmp_path, model, samples(model, seed, 2, 2), 2, path=0)
        done = run(
            [*command, "--fuzz", str(tmp_path / "plan"), str(tmp_path / "input"), str(seed), str(BROKEN)]
        )
        assert done.returncode == 0, done.stderr
        counts = done.stdout.split()
        ran, refused = ran + int(counts[0]), refused + int(counts[2])
    assert ran > 50 and refused > 50  # both happen


def test_a_file_that_is_no_plan_is_refused(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "plan").write_bytes(b"PTQPLAN1" + bytes(500))
    done = run([*sanitized(folder), *(str(tmp_path / "plan"),) * 2, str(tmp_path / "output")])
    assert done.returncode == 3
    assert done.stderr.strip() == "this is no plan of these kernels"
