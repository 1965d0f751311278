"""Bundles that somebody changed and signed again: both loaders take them alike, or both say one sentence.

What is left to them: a change of the program's own operations (a coefficient, which value is read) is another
program, and names and shapes that only the model can tell wrong are refused by `ptq4snn.load` alone.
"""

from __future__ import annotations

import copy
import random
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import ptq4snn
from ptq4snn.bundle.format import Bundle, IntegerArray, read_bundle, write_bundle
from ptq4snn.errors import BundleError
from ptq4snn.models.neuron import LIF

CASES = 60  # of each seed
ODD: tuple[Any, ...] = (
    0, 1, -1, 2, 7, 16, 33, 64, 65536, 2**24, 2**31, -(2**31), 2**34, 2**40, 2**63, 10**30, 0.5, -0.0, 1e-300,
    1e300, 5e-324, True, None, "", "x", "a" * 5000, "a\nb", "../..", [], {}, [1], [[1]], {"$array": "nope"},
    {"$array": 3}, {"$array": []}, {"a": 1},
)  # fmt: skip


class Net(nn.Module):
    """Convolution, sum of spikes, pooling, groups, BatchNorm, a head over the mean: T = 3, 6 x 6 images."""

    def __init__(self) -> None:
        super().__init__()
        self.c1, self.b1, self.n1 = nn.Conv2d(2, 4, 3, 1, 1), nn.BatchNorm2d(4), LIF()
        self.c2, self.n2 = nn.Conv2d(4, 4, 3, 1, 1, groups=2), LIF()
        self.pool, self.fc = nn.AvgPool2d(2), nn.Linear(36, 3)
        g = torch.Generator().manual_seed(0)
        with torch.no_grad():
            for p in self.parameters():
                p.copy_(torch.randn(p.shape, generator=g))
        self.eval()

    def forward(self, x: Tensor) -> Tensor:
        s1 = self.n1(self.b1(self.c1(x)).expand(3, *x.shape[:1], 4, 6, 6))
        s2 = self.n2(self.c2(s1.flatten(0, 1)).view(s1.shape))
        y = self.pool((s1 + s2).flatten(0, 1)).flatten(1)
        out: Tensor = self.fc(y).view(3, x.shape[0], 3).mean(0)
        return out


@cache
def made() -> tuple[Net, Tensor]:
    x = torch.rand(16, 2, 6, 6, generator=torch.Generator().manual_seed(1))
    return Net(), x


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    path = tmp_path_factory.mktemp("bundle") / "net.ptq"
    model, x = made()
    q = ptq4snn.quantize(model, x, "fast+w4m4", allocation="uniform")
    assert q.not_lowered == ""
    q.save(path)
    return read_bundle(path)


def places(x: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    items = x.items() if isinstance(x, dict) else enumerate(x) if isinstance(x, list) else ()
    return [p for key, value in items for p in ((*path, key), *places(value, (*path, key)))]


def at(x: Any, path: tuple[Any, ...]) -> Any:
    for key in path:
        x = x[key]
    return x


def mutate_json(r: random.Random, tree: dict[str, Any]) -> tuple[Any, ...]:
    """One change of a number, a copy, a loss, a repetition or an exchange at a random place."""
    path = r.choice(places(tree))
    owner, key, old = at(tree, path[:-1]), path[-1], at(tree, path)
    how = r.choice(("number", "number", "odd", "odd", "copy", "drop", "again", "new"))
    if how == "number" and isinstance(old, (int, float)) and not isinstance(old, bool):
        by = r.choice((-2, -1, 1, 2, 1 << r.randrange(34)))
        owner[key] = old + by if isinstance(old, int) else old * r.choice((-1, 0, 2, 0.9, 1e10, 1e200))
    elif how == "copy":
        owner[key] = copy.deepcopy(at(tree, r.choice(places(tree))))
    elif how == "drop":
        del owner[key]
    elif how == "again" and isinstance(owner, list):
        owner.insert(key, copy.deepcopy(old))
    elif how == "new" and isinstance(owner, dict):
        owner[r.choice(("zz", "$array", "name"))] = copy.deepcopy(old)
    else:
        owner[key] = copy.deepcopy(r.choice(ODD))
    return path


def mutate_array(r: random.Random, arrays: dict[str, Any]) -> None:
    """Other values, another shape, another width, or an array too much or too few."""
    name = r.choice(sorted(arrays))
    old = arrays[name]
    values = np.array(old.values if isinstance(old, IntegerArray) else old)
    how = r.choice(("value", "value", "shorter", "flat", "drop", "new", "width"))
    if how == "value" and values.size:
        flat = values.reshape(-1)
        low = -(2 ** (old.bits - 1)) if isinstance(old, IntegerArray) else -1.0
        flat[r.randrange(flat.size)] = r.choice(
            (0, low, float("nan"), 1e300) if isinstance(low, float) else (0, low)
        )
    elif how == "shorter":
        values = values[:-1]
    elif how == "flat":
        values = values.reshape(-1)
    elif how == "drop":
        del arrays[name]
        return
    elif how == "new":
        name = "zz"
    bits = 32 if how == "width" else getattr(old, "bits", 0)
    arrays[name] = IntegerArray(values, bits) if isinstance(old, IntegerArray) else values


def mutated(r: random.Random, whole: Bundle) -> tuple[Bundle, str]:
    """A changed copy, and which part was changed."""
    plan = copy.deepcopy(whole.plan)
    integers, floats = dict(whole.integers), dict(whole.floats)
    part = r.choice(("plan", "plan", "plan", "program", "program", "header", "arrays"))
    if part == "arrays":
        mutate_array(r, r.choice([a for a in (integers, floats) if a]))
    elif part == "header":
        mutate_json(r, plan)
        part = "header"
    else:
        path = mutate_json(r, plan[part])
        part = "model" if part == "plan" and path[0] == "norms" else part
    return Bundle(plan, integers, floats), part


def outcome(load: Any) -> tuple[str, Any]:
    """What loading and running gave. Any other error than BundleError fails the test."""
    try:
        return "loads", load()
    except BundleError as why:
        text = str(why)
        assert "\n" not in text and len(text) < 2500
        return ("another model" if "was made from another model" in text else "refused"), text


@pytest.mark.parametrize("seed", range(5))
def test_both_loaders_take_a_changed_bundle_alike(seed: int, whole: Bundle, tmp_path: Path) -> None:
    r, path = random.Random(seed), tmp_path / "changed.ptq"
    model, x = made()
    seen = {"loads": 0, "refused": 0, "another model": 0}
    while sum(seen.values()) < CASES:
        changed, part = mutated(r, whole)
        try:
            write_bundle(path, changed.plan, changed.integers, changed.floats)
        except BundleError:  # not even a file
            continue
        ran, rt = outcome(lambda: ptq4snn.runtime.load(path, "numpy"))
        loaded, q = outcome(lambda: ptq4snn.load(path, model))
        seen[loaded] += 1
        assert ran == loaded or (ran, loaded) == ("loads", "another model"), (part, rt, q)
        if loaded == "another model" and part not in ("model", "header"):
            assert "another model (" not in q, (part, q)  # nothing but names and shapes is left to the model
        if loaded == "loads" and part in ("plan", "arrays"):
            assert np.array_equal(rt(x[:2].numpy()), q(x[:2]).numpy()), part
    assert seen["refused"] > CASES // 3 and seen["loads"] > 0


def test_the_program_and_the_plan_are_compared(whole: Bundle, tmp_path: Path) -> None:
    """Single changes of one side that leave it whole."""
    model, _ = made()
    changes: dict[str, tuple[tuple[Any, ...], Any]] = {
        "steps": (("plan", "steps"), 4),
        "output": (("plan", "outputs", 0, "axis"), -2),
        "projection": (("plan", "outputs", 0, "projection"), "c1"),
        "quantum": (("plan", "projections", "c2", "quantum"), 2.0),
        "lattice": (("plan", "projections", "c2", "lattice", 1), 1.0),
        "unit": (("plan", "neurons", "n2", "unit", 1), 1.0),
        "scales": (("plan", "neurons", "n2", "scales", 1), 1.0),
        "settle": (("plan", "neurons", "n2", "settle", 1), [3, 1]),
        "leak": (("plan", "neurons", "n2", "leak", 0), [3, 2]),
        "a float": (("plan", "neurons", "n2", "charge", 0, 1), 1.0),
        "k": (("plan", "neurons", "n2", "k", 0), 9),
        "over time": (("plan", "neurons", "n2", "over_time"), True),
        "decode": (("plan", "projections", "fc", "decode"), True),
        "layout": (("plan", "neurons", "n2", "layout", "dims"), [1]),
        "bound": (("plan", "neurons", "n2", "bits", 0), 2**34),
        "program": (("program", "steps"), 5),
        "element": (("program", "outputs", 0, "axis"), -2),
    }
    for name, (where, value) in changes.items():
        plan = copy.deepcopy(whole.plan)
        assert at(plan, where) != value
        at(plan, where[:-1])[where[-1]] = value
        write_bundle(tmp_path / "m", plan, whole.integers, whole.floats)
        for load in (
            lambda: ptq4snn.load(tmp_path / "m", model),
            lambda: ptq4snn.runtime.load(tmp_path / "m"),
        ):
            with pytest.raises(BundleError, match="make the bundle again"):
                load()
                pytest.fail(name)


def test_a_small_file_is_not_unfolded_into_a_large_one(whole: Bundle, tmp_path: Path) -> None:
    model, _ = made()
    big = {**whole.integers, "zz": IntegerArray(np.zeros(2**24 + 8, np.int8), 1)}
    for held, words in ((whole.plan["plan"]["recipe"], "more than"), ({}, "nothing refers")):
        plan = copy.deepcopy(whole.plan)
        if held:
            plan["plan"]["recipe"]["zz"] = {"$array": "zz"}
        write_bundle(tmp_path / "m", plan, big, whole.floats)
        for load in (
            lambda: ptq4snn.load(tmp_path / "m", model),
            lambda: ptq4snn.runtime.load(tmp_path / "m"),
        ):
            with pytest.raises(BundleError, match=words):
                load()
