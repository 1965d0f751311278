"""The native kernels for tests, built once from the sources as they are; runners of plans from files."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ptq4snn.network.program import Neuron
from ptq4snn.runtime.native import available, build
from ptq4snn.runtime.native.binding import library
from ptq4snn.runtime.native.planner import NativePlan, plan_model
from ptq4snn.runtime.parameters import Model
from ptq4snn.runtime.state import State

ARM_COMPILER, ARM_EMULATOR, ARM_LIBRARIES = "aarch64-linux-gnu-g++", "qemu-aarch64", "/usr/aarch64-linux-gnu"


@cache
def _build_once() -> str:
    """Build the library in its place if it is not of these sources; what went wrong."""
    try:
        if not build.is_fresh(build.LIBRARY):
            build.build(build.LIBRARY, build.Options(build.find_compiler()))
    except build.BuildError as why:
        return str(why)
    library.cache_clear()
    return ""


def levels() -> tuple[str, ...]:
    """Instruction sets of the library; without a compiler the test is skipped."""
    try:
        build.find_compiler()
    except build.BuildError as why:
        pytest.skip(f"the native kernels are not tested: {why}")
    assert not _build_once()
    found = available()
    assert found, "the library was built and cannot be used"
    return found


def program(folder: Path, name: str, options: build.Options) -> Path:
    """A runner, kept in `folder` from one run of the tests to the next while the sources are the same."""
    out = folder / name
    if not build.is_fresh(out):
        build.build(out, options)
    return out


def sanitized(folder: Path) -> list[str]:
    """The command of a runner with address and undefined-behaviour sanitizers."""
    both = tuple(dict.fromkeys(("scalar", levels()[-1])))
    options = build.Options(build.find_compiler(), sanitize=True, runner=True, levels=both)
    try:
        return [str(program(folder, "runner-sanitized", options))]
    except build.BuildError as why:
        if "sanitize" not in str(why) and "asan" not in str(why):
            raise
        pytest.skip(f"the compiler has no sanitizers: {why}")


def for_arm(folder: Path) -> list[str]:
    """The command of a runner for 64-bit ARM, under an emulator."""
    for tool in (ARM_COMPILER, ARM_EMULATOR):
        if shutil.which(tool) is None:
            pytest.skip(f"{tool} is not installed: 64-bit ARM is not checked")
    options = build.Options((ARM_COMPILER,), runner=True, levels=("scalar",))
    return [ARM_EMULATOR, "-L", ARM_LIBRARIES, str(program(folder, "runner-arm", options))]


def run(command: Sequence[str]) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "ASAN_OPTIONS": "allocator_may_return_null=1:detect_leaks=1"}
    return subprocess.run(command, capture_output=True, text=True, timeout=300, env=environment, check=False)


def kept_values(model: Model) -> list[int]:
    spikes = {op.output for op in model.program.operations if isinstance(op, Neuron)}
    return sorted(spikes | {out.value for out in model.program.outputs})


def samples(model: Model, seed: int, batch: int, steps: int) -> np.ndarray[Any, Any]:
    """[T or 1, B, N], some of them outside of the input grid."""
    x = model.program.input
    shape = (1 if x.time_axis is None else steps, batch, int(np.prod(x.shape)))
    return np.random.default_rng(seed).uniform(-3, 5, shape).astype(np.float32)


def state_arrays(plan: NativePlan, state: State) -> list[np.ndarray[Any, Any]]:
    return [state.rows[v] if v in state.rows else state.sums[v] for v in plan.states]


def write_case(
    folder: Path, model: Model, x: np.ndarray[Any, Any], steps: int, path: int
) -> tuple[NativePlan, State]:
    """PLAN and INPUT of the runner (csrc/runner.cpp), two threads, and the state that it begins with."""
    plan, state = plan_model(model, kept_values(model)), State.new(model, x.shape[1])
    (folder / "plan").write_bytes(plan.block.tobytes())
    head = np.array([x.shape[1], steps, x.shape[0], 0, 2, path, 1], dtype="<i8")
    states = b"".join(a.tobytes() for a in state_arrays(plan, state))
    (folder / "input").write_bytes(head.tobytes() + x.astype("<f4").tobytes() + states)
    return plan, state
