"""Bundles of strangers: a model, or one sentence; never anything else. And none of it needs torch."""

from __future__ import annotations

import copy
import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from runtime.bundles import parts_of, plan_of, planned_models, write_model
from runtime.programs import random_input
from runtime.test_state import same

from ptq4snn.bundle.format import Bundle, IntegerArray, write_bundle
from ptq4snn.errors import BundleError, DataError
from ptq4snn.runtime import Runtime, load, load_model_file, model_of
from ptq4snn.runtime.loading import Stored, contents_of
from ptq4snn.runtime.parameters import Model

ODD: tuple[Any, ...] = (
    None, True, -1, 0, 1, 2, 3, 17, 255, 2**31, 2**63, -(2**70), 0.5, 1e300, "", "max", "dither", [], {},
    [[]], [1, 2], [-1] * 20, {"$array": "biases/project1"}, {"$array": "nowhere"}, {"$array": []},
)  # fmt: skip


def hash_alike(read: Model, model: Model) -> bool:
    """Every number is the same but for the scales of rescales, which plans derive from the multipliers."""

    def bare(m: Model) -> str:
        projections = {
            n: p if p.rescale is None else replace(p, rescale=replace(p.rescale, scales=p.unit))
            for n, p in m.projections.items()
        }
        return replace(m, projections=projections).hash

    return bare(read) == bare(model)


def test_a_bundle_is_its_model(tmp_path: Path) -> None:
    for seed, model in enumerate(planned_models(12, 8)):
        write_model(model, tmp_path / "m.ptq")
        read = load_model_file(tmp_path / "m.ptq")
        assert hash_alike(read, model)
        assert read.bounds.values == model.bounds.values
        x = random_input(model, seed, 2)
        assert same(load(tmp_path / "m.ptq", "numpy")(x), Runtime(read, "numpy")(x))


def test_a_plan_and_its_integers_are_a_model() -> None:
    model = planned_models(3, 8)[2]
    parts = model.projections.items()
    integers = {n: Stored(p.weight.astype(float), p.bias.astype(float)) for n, p in parts}
    assert hash_alike(model_of(model.program, plan_of(model), integers), model)
    with pytest.raises(BundleError, match="is incomplete"):
        model_of(model.program, plan_of(model), {})


def test_bundles_without_a_program_or_a_model(tmp_path: Path) -> None:
    header, integers, floats = parts_of(planned_models(1)[0])
    write_bundle(tmp_path / "a", {"plan": header["plan"], "signature": {}}, integers, floats)
    write_bundle(
        tmp_path / "b",
        {**header, "program": None, "not_lowered": "'conv' is odd"},
        {name: a for name, a in integers.items() if not name.startswith("program/")},
        floats,
    )
    for name in "ab":
        with pytest.raises(
            BundleError, match="could not be lowered: 'conv' is odd" if name == "b" else "not exactly"
        ):
            load(tmp_path / name)
    write_bundle(tmp_path / "c", {"state": {}}, {}, {})
    with pytest.raises(BundleError, match="no quantized model"):
        load(tmp_path / "c")
    with pytest.raises(BundleError, match="not a file"):
        load(tmp_path / "d")


def test_an_array_is_not_unfolded_twice(tmp_path: Path) -> None:
    """A thousand references of twenty bytes to one large array would fill the memory."""
    header, integers, floats = parts_of(planned_models(1, 8)[0])
    big = {**integers, "big": IntegerArray(np.zeros(10**6, np.int8), 8)}
    header["program"]["outputs"] = [{"$array": "big"}] * 1000
    write_bundle(tmp_path / "m", header, big, floats)
    with pytest.raises(BundleError, match="twice"):
        load(tmp_path / "m")


def places(x: Any) -> list[tuple[Any, Any]]:
    """Every container with every key in it, the header's own included."""
    inside = list(x.items()) if isinstance(x, dict) else list(enumerate(x)) if isinstance(x, list) else []
    return [(x, key) for key, _ in inside] + [p for _, item in inside for p in places(item)]


def spoil(draw: Any, header: dict[str, Any], arrays: dict[str, IntegerArray]) -> None:
    """One change at a random place of the header or of an array."""
    if draw(st.booleans()) and draw(st.booleans()):
        name = draw(st.sampled_from(sorted(arrays)))
        old = arrays[name]
        values = draw(
            st.sampled_from((old.values[:-1], old.values.reshape(-1), old.values * 0 - 1, old.values[:0]))
        )
        arrays[name] = IntegerArray(values, old.bits)
        return
    held = header["program" if draw(st.booleans()) else "plan"]
    owner, key = draw(st.sampled_from(places(held)))
    how = draw(st.sampled_from(("replace", "drop", "next", "double")))
    if how == "drop":
        del owner[key]
    elif how == "next" and isinstance(owner[key], int):
        owner[key] += draw(st.sampled_from((-1, 1)))
    elif how == "double" and isinstance(owner[key], list):
        owner[key] = owner[key] * 2
    else:
        owner[key] = copy.deepcopy(draw(st.sampled_from(ODD)))


def runs(model: Model) -> None:
    """What was accepted runs."""
    program = model.program
    size = sum(v.positions * v.channels for v in program.values)
    if size > 10**5 or program.steps > 50 or np.prod(program.input.shape) > 10**5:
        return
    results: list[Any] = []
    for kernels in ("numpy", "auto"):  # auto: native where they are built
        try:
            results.append(Runtime(model, kernels)(random_input(model, 0, 1)))
        except DataError as why:
            results.append(str(why))
            assert "\n" not in str(why)
    found, native = (r if isinstance(r, tuple) else (r,) for r in results)
    assert all(np.array_equal(a, b) for a, b in zip(found, native, strict=True))


@settings(max_examples=120, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(st.data(), st.integers(0, 15))
def test_a_spoilt_bundle_is_refused_or_runs(data: Any, seed: int) -> None:
    header, arrays, floats = copy.deepcopy(parts_of(planned_models(16, 4, 300)[seed]))
    for _ in range(data.draw(st.integers(1, 2))):
        spoil(data.draw, header, arrays)
    try:
        model = contents_of(Bundle(json.loads(json.dumps(header)), arrays, floats)).model
    except BundleError as why:
        assert "\n" not in str(why) and len(str(why)) < 1000
        return
    if model is not None:
        runs(model)


WITHOUT_TORCH = """
import sys

class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ("torch", "jinja2", "rich"):
            raise ModuleNotFoundError(f"{name} is blocked", name=name.split(".")[0])

sys.meta_path.insert(0, Refuse())
import numpy as np
import ptq4snn.runtime

rt = ptq4snn.runtime.load(sys.argv[1], kernels="numpy")
x = np.load(sys.argv[2])
np.save(sys.argv[3], rt(x))
rt.step(x)
rt.state.save(sys.argv[3] + ".state")
assert "torch" not in sys.modules
"""


def run_without_torch(bundle: Path, x: Any, folder: Path) -> Any:
    np.save(folder / "x.npy", x)
    command = [sys.executable, "-c", WITHOUT_TORCH, str(bundle), str(folder / "x.npy"), str(folder / "y.npy")]
    paths = {"PYTHONPATH": str(Path(__file__).parents[2] / "src"), "PATH": ""}
    done = subprocess.run(command, capture_output=True, text=True, env=paths, check=False)
    assert done.returncode == 0, done.stderr
    return np.load(folder / "y.npy")


def test_a_bundle_runs_where_torch_cannot_be_imported(tmp_path: Path) -> None:
    model = next(
        m for m in planned_models(20) if len(m.program.outputs) == 1 and not m.program.input.time_axis
    )
    write_model(model, tmp_path / "m.ptq")
    x = random_input(model, 0, 3)
    found = run_without_torch(tmp_path / "m.ptq", x, tmp_path)
    assert same(found, load(tmp_path / "m.ptq", "numpy")(x))
