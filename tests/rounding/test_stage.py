"""The stage as a whole: every family, computed once, resumed after a kill, and nothing left behind."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import pytest
import torch
from oracles.numbers import known
from rounding.families import RECIPE, prepared
from torch import Tensor

from ptq4snn.bridge.lattice import Lattice
from ptq4snn.numerics.grid import signed_range
from ptq4snn.pipeline import Prepared, run
from ptq4snn.prepared import Cache
from ptq4snn.recipe import Recipe
from ptq4snn.rounding import gptq, stage
from ptq4snn.rounding.reconstruction import Reconstruction

T = TypeVar("T")


def fresh(name: str, **changes: Any) -> Prepared:
    return replace(prepared(name), cache=Cache(), **changes)


def lattice(p: Prepared, recipe: Recipe = RECIPE) -> Lattice:
    return Lattice.of(p.folded, p.seen, recipe)


def rounded(p: Prepared, recipe: Recipe = RECIPE) -> Mapping[str, Tensor]:
    made = stage.round_weights(p, lattice(p, recipe), recipe).projections
    return {n: w.weight.integers for n, w in made.items() if w.info.reads != "data"}


@pytest.mark.filterwarnings("ignore::ptq4snn.errors.SilentNetworkWarning")
@pytest.mark.parametrize(
    ("name", "rounding"),
    [*((n, r) for n in ("sew", "sdt", "vgg", "loop") for r in ("gptq", "brecq")), ("meta", "brecq")],
)
def test_every_family(name: str, rounding: str) -> None:
    p = fresh(name)
    q = run(p, RECIPE.replace(rounding=rounding, iterations=2 if name == "meta" else 5))
    made = lattice(p)
    found = next(iter(p.cache.rounded.values()))
    free = {n for n, info in p.folded.discovery.projections.items() if info.reads != "data"}
    assert set(found.integers) == free
    for n in free:
        weight = made.projections[n].weight
        assert weight.bits is not None
        low, high = signed_range(weight.bits)
        assert found.integers[n].shape == weight.integers.shape
        assert float(found.integers[n].min()) >= low and float(found.integers[n].max()) <= high
        assert torch.equal(q.integers[n].weight, found.integers[n])
    dead = {r["name"]: r["dead_gptq_columns"] for r in q.report["projections"]}
    assert {n for n, count in dead.items() if count is not None} == (free if rounding == "gptq" else set())


def noted(round_unit: Callable[..., Any], made: list[tuple[str, ...]]) -> Callable[..., Any]:
    """The same, and its units are added to `made`."""

    def call(owner: Any, unit: tuple[str, ...], **options: Any) -> Any:
        made.append(unit)
        return round_unit(owner, unit, **options)

    return call


def test_integers_are_made_once_for_equal_scales(monkeypatch: pytest.MonkeyPatch) -> None:
    p = fresh("sew")
    made: list[tuple[str, ...]] = []
    monkeypatch.setattr(gptq, "round_unit", noted(gptq.round_unit, made))
    recipe = RECIPE.replace(rounding="gptq")
    first = rounded(p, recipe)
    count = len(made)
    again = rounded(p, recipe.replace(coupling="bridge", iterations=7, seed=9))
    assert len(made) == count and all(torch.equal(first[n], again[n]) for n in first)
    rounded(p, recipe.replace(weights=4))
    assert len(made) == 2 * count


def test_single_layers_or_blocks() -> None:
    p = fresh("sew")
    tracked: list[int | None] = []

    class Counting:
        def track(self, iterable: Iterable[T], total: int | None, description: str) -> Iterator[T]:
            tracked.append(total if description.startswith("rounding") else None)
            yield from iterable

    p = replace(p, progress=Counting())
    rounded(p, RECIPE.replace(rounding="adaround", iterations=1))
    rounded(p, RECIPE.replace(rounding="brecq", iterations=1))
    assert [t for t in tracked if t is not None] == [8, 4]


class Kill(Exception):
    pass


class Killer:
    """Dies at the start of the unit number `at`."""

    def __init__(self, at: int) -> None:
        self.at = at

    def track(self, iterable: Iterable[T], total: int | None, description: str) -> Iterator[T]:
        for i, item in enumerate(iterable):
            if description.startswith("rounding") and i == self.at:
                raise Kill
            yield item


@pytest.mark.parametrize("rounding", ["gptq", "brecq"])
def test_a_killed_run_goes_on(rounding: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    recipe = RECIPE.replace(rounding=rounding)
    whole = rounded(fresh("sew"), recipe)
    with pytest.raises(Kill):
        rounded(fresh("sew", work=tmp_path, progress=Killer(at=2)), recipe)
    files = sorted(tmp_path.iterdir())
    assert len(files) == 1  # the stem keeps the nearest: there is nothing to store
    made: list[tuple[str, ...]] = []
    for owner in (gptq, Reconstruction):
        monkeypatch.setattr(owner, "round_unit", noted(owner.round_unit, made))
    resumed = rounded(fresh("sew", work=tmp_path), recipe)
    assert [u[0] for u in made] == ["layer2.0.conv1", "fc"]
    assert set(resumed) == set(whole) and all(torch.equal(whole[n], resumed[n]) for n in whole)
    made.clear()
    loaded = fresh("sew", work=tmp_path)
    rounded(loaded, recipe)
    assert made == []
    if rounding == "gptq":
        assert set(next(iter(loaded.cache.rounded.values())).dead) == set(whole)


def test_a_damaged_or_foreign_file_is_not_trusted(tmp_path: Path) -> None:
    recipe = RECIPE.replace(rounding="gptq")
    whole = rounded(fresh("sew", work=tmp_path), recipe)
    files = sorted(tmp_path.iterdir())
    assert len(files) == 3
    damaged = bytearray(files[0].read_bytes())
    damaged[-5] ^= 1
    files[0].write_bytes(damaged)
    files[1].write_bytes(files[2].read_bytes())  # another unit's
    files[2].write_bytes(b"")
    again = rounded(fresh("sew", work=tmp_path), recipe)
    assert all(torch.equal(whole[n], again[n]) for n in whole)
    other = fresh("sew", work=tmp_path, packed=prepared("sew").packed[:1])  # other samples, other files
    rounded(other, recipe)
    assert len(list(tmp_path.iterdir())) == 6


def test_nothing_is_left_behind(tmp_path: Path) -> None:
    p = fresh("loop")
    model, x = p.folded.model, p.kept[0]

    def output() -> Tensor:
        with torch.no_grad():
            found: Tensor = model(x)
        return found

    before, weights = output(), {n: w.clone() for n, w in model.state_dict().items()}
    hooks = [len(m._forward_hooks) for m in model.modules()]
    forwards = [vars(m).get("forward") for m in model.modules()]

    class Interrupting:
        def track(self, iterable: Iterable[T], total: int | None, description: str) -> Iterator[T]:
            for i, item in enumerate(iterable):
                if not description.startswith("rounding") and i == 1:
                    raise KeyboardInterrupt
                yield item

    for progress in (p.progress, Interrupting()):
        try:
            rounded(replace(p, progress=progress, cache=Cache()))
        except KeyboardInterrupt:
            assert progress is not p.progress
        assert torch.equal(before, output())
        assert all(torch.equal(weights[n], w) for n, w in model.state_dict().items())
        assert forwards == [vars(m).get("forward") for m in model.modules()]
        assert hooks == [len(m._forward_hooks) for m in model.modules()]


def test_gptq_keeps_the_network_nearer_than_nearest() -> None:
    p = fresh("sew")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        kl = {r: run(p, RECIPE.replace(rounding=r)).report["summary"]["kl"] for r in ("nearest", "gptq")}
    assert known(kl["gptq"]) < known(kl["nearest"])


def test_without_remembered_samples_the_kept_ones_are_used() -> None:
    p = fresh("sew", packed=[])
    assert [x.shape for x in p.samples_again()] == [x.shape for x in p.kept]
    assert set(rounded(p, RECIPE.replace(rounding="gptq"))) == set(rounded(fresh("sew")))


def test_units_of_another_graph_are_not_taken(tmp_path: Path) -> None:
    """The weights, samples and scales are the same, but not what reaches the layers."""
    recipe = Recipe.parse("gptq+w4m4")
    rounded(fresh("sew", work=tmp_path), recipe)
    files = set(tmp_path.iterdir())
    other = fresh("sew", work=tmp_path)
    other.model.register_forward_pre_hook(lambda m, args: (args[0] * 0.5,))
    rounded(other, recipe)
    assert len(set(tmp_path.iterdir())) == 2 * len(files)


def test_stretches_keep_the_order_and_bound_passes_and_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    folded = fresh("sew").folded
    names = list(folded.discovery.projections)
    single = [(n,) for n in names]
    monkeypatch.setattr(stage, "STRETCHES", 3)
    found = stage.stretches(folded, single)
    assert [n for unit in found for n in unit] == names
    assert 1 < len(found) <= 3
    monkeypatch.setattr(stage, "HELD", 0)  # no room for two
    assert stage.stretches(folded, single) == single
    assert stage.stretches(folded, single[:2]) == single[:2]
