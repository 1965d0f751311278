"""The smallest model for a goal: the choice of trying all, and the same bytes after an interruption."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from frontier.nets import labels, samples, tiny
from torch import Tensor, nn

import ptq4snn
from ptq4snn.discovery.discover import reset_neurons
from ptq4snn.errors import DataError, GoalNotReached, RecipeError
from ptq4snn.frontier import candidates, reach
from ptq4snn.frontier.candidates import Catalog
from ptq4snn.frontier.dealing import deal
from ptq4snn.pipeline import prepare, run
from ptq4snn.recipe import Recipe

FAST = "nearest+squared_error"
KEPT_BY_SOME = f"{FAST}+agreement-75"


@pytest.fixture(autouse=True)
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nine candidates and those with narrower layers, instead of sixty."""
    monkeypatch.setattr(candidates, "WEIGHTS", (3, 4, 8))
    monkeypatch.setattr(candidates, "STATES", (2.0, 4.0, 8.0))
    monkeypatch.setattr(candidates, "FIRST", (16,))


class Told:
    """Keeps what it is told; stops after some notes, as Ctrl-C would."""

    def __init__(self, most: int | None = None) -> None:
        self.notes: list[str] = []
        self.most = most

    def track(self, iterable: Iterable[Any], total: int | None, description: str) -> Iterator[Any]:
        yield from iterable

    def note(self, text: str) -> None:
        self.notes.append(text)
        if len(self.notes) == self.most:
            raise KeyboardInterrupt


def found(q: ptq4snn.QuantizedModel) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = [dict(r) for r in q.report["figures"]["frontier"]["rows"]]
    return rows


def test_the_choice_of_trying_all() -> None:
    """Every candidate of the grid is quantized and compared with the float network, apart from the search."""
    net, x = tiny(), samples()
    recipe = Recipe.parse(KEPT_BY_SOME)
    dealt = deal(x, recipe, 0)
    judges = torch.cat([b.unpack() for b in dealt.judging])
    plain = recipe.replace(agreement=None)
    prepared = prepare(net, dealt.calibration, plain)
    catalog = Catalog(prepared, recipe)
    grid = catalog.grid()
    assert len(grid) == 9 and len({c.bytes for c in grid}) == 9
    with torch.no_grad():
        expected = net(judges).argmax(1)
        agreement = {
            c.name: 100 * float((run(prepared, c.recipe)(judges).argmax(1) == expected).double().mean())
            for c in grid
        }
    best = min((c for c in grid if agreement[c.name] >= 75), key=lambda c: c.bytes)
    told = Told()
    q = ptq4snn.quantize(net, x, recipe, progress=told)
    rows = found(q)
    for row in rows:
        if not row["narrower"]:
            assert row["quality"] == pytest.approx(agreement[row["name"]], rel=1e-5)
    kept = [r for r in rows if r["kept"] and not r["narrower"]]
    assert min(kept, key=lambda r: r["bytes"])["name"] == best.name
    assert len(told.notes) - 1 == len(rows) < 9 + 3, "not all were tried"
    (chosen,) = [r for r in rows if r["chosen"]]
    assert (
        f"taken: {chosen['name']}, " in told.notes[-1]
        and f"as low as {chosen['low']:.2f} %" in told.notes[-1]
    )
    assert chosen["kept"] and chosen["bytes"] == min(r["bytes"] for r in rows if r["kept"])
    assert (q.plan.recipe["weights"], q.plan.recipe["membrane"]) == (chosen["weights"], chosen["membrane"])
    assert q.plan.recipe["agreement"] is None
    s = q.report["summary"]
    w, b = s["weight_bytes"], s["state_bytes"]
    assert chosen["bytes"] == w["quantized"] + w["scales"] + w["biases"] + b["packed"] + s["stream_bytes"]


@pytest.mark.parametrize("recipe", [FAST, "fast", "fast+benefit+3-bit"])
def test_bytes_are_known_before(recipe: str) -> None:
    """Exactly, but for zero points and averages that only quantizing shows: of those at most so many."""
    settings = Recipe.parse(recipe).replace(agreement=90)
    prepared = prepare(tiny(), samples(60), settings)
    catalog = Catalog(prepared, settings)
    some = [c for c in catalog.grid() if c.recipe.weights == 4]
    for c in [*some[:2], *catalog.narrowed(some[1])[:1]]:
        q = run(prepared, c.recipe)
        real = catalog.cost_of(q.plan, q.program)
        if recipe == FAST:
            assert real == c.bytes
        metadata = 3 * sum(n.channels for n in q.plan.budgeted())  # zero point, tag, shift; uniform may win
        assert c.bytes - metadata - 8 <= real <= c.bytes + 8, c.name


def saved(q: ptq4snn.QuantizedModel, path: Path) -> tuple[bytes, Any]:
    q.save(path)
    report = json.loads(Path(f"{path}.report.json").read_text())
    return path.read_bytes(), report


@pytest.mark.parametrize("killed_after", [1, 3])
def test_an_interrupted_search_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, killed_after: int
) -> None:
    net, x, work = tiny(), samples(), tmp_path / "work"
    whole = saved(ptq4snn.quantize(net, x, KEPT_BY_SOME), tmp_path / "whole.ptq")
    with pytest.raises(KeyboardInterrupt):
        ptq4snn.quantize(net, x, KEPT_BY_SOME, progress=Told(killed_after), work=work)
    made: list[Recipe] = []

    def counted(prepared: Any, recipe: Recipe) -> Any:
        made.append(recipe)
        return run(prepared, recipe)

    monkeypatch.setattr(reach, "run", counted)
    told = Told()
    q = ptq4snn.quantize(net, x, KEPT_BY_SOME, progress=told, work=work)
    assert [n.endswith("as stored") for n in told.notes].count(True) == killed_after
    assert len(made) == len(told.notes) - 1 - killed_after, "finished ones are not made again"
    assert saved(q, tmp_path / "again.ptq") == whole
    made.clear()
    q = ptq4snn.quantize(net, x, KEPT_BY_SOME, work=work)  # all is there
    assert made == [] and saved(q, tmp_path / "third.ptq") == whole
    lower = ptq4snn.quantize(net, x, KEPT_BY_SOME, agreement=70, work=work)  # another goal uses them, too
    assert len(made) < len(found(lower))
    for bundle in (work / "candidates").glob("*.ptq"):
        bundle.write_bytes(b"damaged")
    made.clear()
    q = ptq4snn.quantize(net, x, KEPT_BY_SOME, work=work)
    assert len(made) == 1 and saved(q, tmp_path / "fourth.ptq") == whole, "the chosen one is made again"


def test_other_samples_or_weights_are_not_taken_from_the_folder(tmp_path: Path) -> None:
    def stored(seed: int, of: int) -> int:
        told = Told()
        ptq4snn.quantize(tiny(seed), samples(120, of), f"{FAST}+agreement-10", progress=told, work=tmp_path)
        return sum(n.endswith("as stored") for n in told.notes)

    assert (stored(0, 1), stored(0, 2), stored(3, 1)) == (0, 0, 0)
    assert stored(0, 1) > 0


def test_a_goal_that_nothing_keeps() -> None:
    net, x = tiny(), samples()
    with pytest.raises(GoalNotReached) as e:
        ptq4snn.quantize(net, x, f"{FAST}+agreement-99.9")
    text = str(e.value)
    assert (
        "no model is known to keep an agreement of 99.9 %: the best found, W8 M" in text
        and "120 held-out" in text
    )
    assert "of weight noise alone" in text and "\n" not in text
    with pytest.raises(
        GoalNotReached, match=r"no model is known to keep a drop of at most 0 points.*the float model"
    ):
        ptq4snn.quantize(net, (x, labels(net, x)), f"{FAST}+max-drop-0")


class OneStep(nn.Module):
    """One step a call; returns an output without a class axis of its own, as a map would."""

    def __init__(self) -> None:
        super().__init__()
        self.net = tiny()
        self.maps = nn.Linear(10, 12)

    def forward(self, x: Tensor) -> Tensor:
        n = self.net
        y = n.lif3(n.c(n.lif2(n.b(n.lif1(n.a(x)[None])))))
        return self.maps(n.head(y[0])).unflatten(1, (3, 2, 2))


def test_maps_of_a_net_that_takes_one_step_a_call(tmp_path: Path) -> None:
    """Agreement is that of the pixels; after all is stored the model is loaded with its loop."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        net, x = OneStep().eval(), samples(80)
    recipe = f"{FAST}+agreement-60"
    made = [ptq4snn.quantize(net, x, recipe, steps=4, work=tmp_path) for _ in range(2)]
    data = made[0].report["figures"]["frontier"]
    assert data == made[1].report["figures"]["frontier"] and data["samples"] == 40
    assert torch.equal(made[0].sequence(x), made[1].sequence(x)) and made[1].one_step
    judges = torch.cat([b.unpack() for b in deal(x, Recipe(agreement=60), 0).judging])
    reset_neurons(net)
    expected = torch.stack([net(judges) for _ in range(4)]).sum(0).argmax(1)
    same = made[1].sequence(judges).sum(0).argmax(1) == expected  # [T, n, classes, 2, 2]
    (chosen,) = [r for r in data["rows"] if r["chosen"]]
    assert chosen["quality"] == pytest.approx(100 * float(same.double().mean()), rel=1e-5)
    with pytest.raises(DataError, match=r"outputs have shape \[40, 3, 2, 2\]: ask for an agreement"):
        ptq4snn.quantize(net, (x, torch.zeros(80).long()), f"{FAST}+max-drop-5", steps=4)


def test_labels_decide_where_a_drop_is_asked_for() -> None:
    net, x = tiny(), samples()
    y = labels(net, x)
    q = ptq4snn.quantize(net, (x, y), f"{FAST}+max-drop-12")
    data = q.report["figures"]["frontier"]
    judges = deal((x, y), Recipe(max_drop=12), 0)
    right = net(torch.cat([b.unpack() for b in judges.judging])).argmax(1) == judges.labels
    assert data["float"] is not None and data["float"] == pytest.approx(
        100 * float(right.double().mean()), rel=1e-5
    )
    assert data["limit"] == pytest.approx(data["float"] - 12, rel=1e-5) and data["measure"] == "accuracy"
    for r in data["rows"]:
        error = (r["high"] - r["low"]) / (2 * 1.959964)
        assert r["kept"] == (r["quality"] - error >= data["limit"] - 1e-4)
    with pytest.raises(DataError, match="needs samples with labels"):
        ptq4snn.quantize(net, x, f"{FAST}+max-drop-12")


def test_samples_that_judge_are_not_observed(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Tensor] = []

    def watched(model: Any, given: list[Tensor], *rest: Any) -> Any:
        seen.extend(given)
        return prepare(model, given, *rest)

    monkeypatch.setattr(reach, "prepare", watched)
    net, x = tiny(), samples(80)
    q = ptq4snn.quantize(net, x, f"{FAST}+agreement-10")
    assert sum(map(len, seen)) == 40 == q.report["figures"]["frontier"]["samples"]
    assert q.report["summary"]["samples"] == 40


def test_widths_that_the_recipe_cannot_give_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(candidates, "STATES", (2.0, 2.5, 8.0))
    monkeypatch.setattr(candidates, "FIRST", (4, 8, 16))
    for recipe, states in (("uniform", {2.0, 8.0}), ("fit", {2.0, 2.5, 8.0})):
        settings = Recipe.parse(f"{FAST}+{recipe}").replace(agreement=90, first_membrane=8)
        grid = Catalog(prepare(tiny(), samples(40), settings), settings).grid()
        assert {c.recipe.membrane for c in grid} == states
        assert {c.recipe.first_membrane for c in grid} == {4, 8}, "at most what the recipe has"


def test_a_fixed_layer_is_never_narrowed() -> None:
    settings = Recipe.parse(KEPT_BY_SOME).replace(overrides={"b": {"weights": 5}})
    catalog = Catalog(prepare(tiny(), samples(40), settings), settings)
    best = next(c for c in catalog.grid() if c.recipe.weights == 4)
    assert catalog.narrowed(best) == []  # first and last have widths of their own, c alone is left
    assert catalog.narrowed(replace(best, recipe=best.recipe.replace(weights=3))) == []


def test_the_algorithm_itself_takes_widths_only(observed: Any) -> None:
    with pytest.raises(RecipeError, match="are goals of `quantize`"):
        run(observed, Recipe(agreement=90))
