"""Distillation: the student is the quantized model, what it learned is what is packed, and it resumes."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

import pytest
import torch
from rounding.families import RECIPE as FAMILIES
from rounding.families import prepared as family
from torch import Tensor, nn
from tuning.small import Slow, samples

import ptq4snn
from ptq4snn.assemble import Assembly
from ptq4snn.bridge.lattice import Lattice
from ptq4snn.errors import RecipeError
from ptq4snn.models.neuron import LIF
from ptq4snn.modules.quantized import QuantizedModel
from ptq4snn.modules.readout import divergences, temperature
from ptq4snn.network.plan import Plan
from ptq4snn.numerics.grid import numbered, signed_range
from ptq4snn.pipeline import Prepared, prepare, run
from ptq4snn.prepared import Cache
from ptq4snn.recipe import Recipe
from ptq4snn.tuning.distillation import distil
from ptq4snn.tuning.student import Student

RECIPE = Recipe(
    weights=2, membrane=2, holdout=32, rounding="nearest", objective="squared_error", sequential=False,
    correction="none", zero_point="none", distillation=24,
)  # fmt: skip
T = TypeVar("T")


@pytest.fixture(scope="module")
def slow() -> Prepared:
    return prepare(Slow(), samples(160), RECIPE)


def start(p: Prepared, recipe: Recipe) -> tuple[Assembly, Plan]:
    assembly = Assembly(Lattice.of(p.folded, p.seen, recipe))
    return assembly, assembly.plan(assembly.uniform_bits())


def built(p: Prepared, assembly: Assembly, plan: Plan) -> QuantizedModel:
    return QuantizedModel(p.model, plan, assembly.integers())


def divergence(p: Prepared, model: nn.Module) -> float:
    """KL to the float model over all samples that are learned from, with the model's own forward."""
    warmth, total, count = temperature(p.float_logits()), 0.0, 0
    for x in p.samples_again():
        with torch.no_grad():
            apart = divergences(p.readout(p.folded.model(x)), p.readout(model(x)), warmth)
        total, count = total + float(apart.sum()), count + len(apart)
    return total / count


def test_the_student_begins_as_the_quantized_model(slow: Prepared) -> None:
    assembly, plan = start(slow, RECIPE)
    student = Student(assembly, plan, built(slow, assembly, plan))
    q = built(slow, assembly, plan)
    x = samples(16, seed=5)
    with torch.no_grad():
        assert torch.equal(student(x), q(x))
    made, found = student.assembled()
    for name, n in plan.neurons.items():
        again = found.neurons[name]
        assert (n.theta, n.k, n.zero, n.scales) == (again.theta, again.k, again.zero, again.scales)
    for name, i in made.integers().items():
        assert torch.equal(i.weight, q.integers[name].weight) and torch.equal(i.bias, q.integers[name].bias)


@pytest.mark.filterwarnings("ignore::ptq4snn.errors.SilentNetworkWarning")
@pytest.mark.parametrize("name", ["sew", "sdt", "vgg", "loop", "slow"])
def test_what_was_learned_is_what_is_packed(name: str, slow: Prepared) -> None:
    """The student's outputs after some steps are those of the model that is made of its integers; scales and
    exponents of states stay, integers stay in their range."""
    p = slow if name == "slow" else replace(family(name), cache=Cache())
    recipe = (RECIPE if name == "slow" else FAMILIES).replace(weights=2, membrane=2, distillation=6)
    assembly, plan = start(p, recipe)
    found = distil(p, assembly, plan)
    assert found is not None
    made, after = found
    moved = 0
    for n, projection in made.lattice.projections.items():
        now, was = projection.weight, assembly.lattice.projections[n].weight
        assert now.bits is not None and torch.equal(now.scales, was.scales)
        low, high = signed_range(now.bits)
        numbers = numbered(now.integers, now.odd)
        assert low <= float(numbers.min()) and float(numbers.max()) <= high
        assert torch.equal(numbers, numbers.round())
        moved += int((now.integers != was.integers).sum())
    moved += sum(a.theta != after.neurons[n].theta for n, a in plan.neurons.items())
    assert moved > 0
    for n, a in plan.neurons.items():
        b = after.neurons[n]
        assert (a.scales, a.zero, a.bits) == (b.scales, b.zero, b.bits)
    q = run(p, recipe)
    assert q.plan.neurons.keys() == plan.neurons.keys()  # proven against its program on the way


def test_the_assembled_model_computes_what_the_student_does(slow: Prepared) -> None:
    assembly, plan = start(slow, RECIPE)
    student = Student(assembly, plan, built(slow, assembly, plan))
    g = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for size, group in zip((0.2, 0.05, 0.1), student.numbers(), strict=True):
            for x in group:
                x += size * torch.randn(x.shape, generator=g)
    student.clip()
    made, found = student.assembled()
    x = samples(64, seed=6)
    with torch.no_grad():
        expected = student(x)
        assert torch.equal(built(slow, made, found)(x), expected)
        assert not torch.equal(built(slow, assembly, plan)(x), expected)


def test_outputs_come_nearer_on_the_samples_and_elsewhere(
    slow: Prepared, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ptq4snn.tuning.distillation.RATES", (0.01, 0.001, 0.001))
    assembly, plan = start(slow, RECIPE.replace(distillation=60))
    found = distil(slow, assembly, plan)
    assert found is not None
    before, after = built(slow, assembly, plan), built(slow, *found)
    assert divergence(slow, after) < 0.7 * divergence(slow, before)
    assert slow.divergence(after)[0] < slow.divergence(before)[0]


class Tiny(nn.Module):
    """Three weights between spikes and outputs that matter: few enough to try all integers."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.n1 = nn.Linear(3, 3), LIF()
        self.b, self.n2 = nn.Linear(3, 1, bias=False), LIF()
        self.head = nn.Linear(1, 2)
        with torch.no_grad():
            self.a.weight.copy_(torch.eye(3) * 3)
            self.a.bias.zero_()
            self.b.weight.copy_(torch.tensor([[1.4, 0.9, -0.75]]))
            self.head.weight.copy_(torch.tensor([[3.0], [-3.0]]))
            self.head.bias.copy_(torch.tensor([-1.0, 1.0]))

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.head(self.n2(self.b(self.n1(self.a(x).expand(6, *x.shape[:-1], -1))))).mean(0)
        return out


def test_against_all_integers_of_a_tiny_layer(monkeypatch: pytest.MonkeyPatch) -> None:
    """Beginning at the worst of all 64 settings of three 2-bit weights, nearly all of the way to the best
    is made; the best is found by trying all, in the quantized model itself."""
    x = torch.randint(0, 256, (160, 3), generator=torch.Generator().manual_seed(1)).float() / 128 - 1
    monkeypatch.setattr("ptq4snn.tuning.distillation.RATES", (0.02, 0.002, 0.002))
    p = prepare(Tiny(), x, RECIPE)
    assembly, _ = start(p, RECIPE.replace(distillation=150))
    found: dict[tuple[int, ...], float] = {}
    for values in itertools.product(range(-2, 2), repeat=3):
        integers = torch.tensor([values], dtype=torch.float64)
        other = Assembly(assembly.lattice.with_integers({"b": integers}))
        found[values] = divergence(p, built(p, other, other.plan(other.uniform_bits())))
    worst, best = max(found, key=lambda v: found[v]), min(found.values())
    other = Assembly(assembly.lattice.with_integers({"b": torch.tensor([worst], dtype=torch.float64)}))
    learned = distil(p, other, other.plan(other.uniform_bits()))
    assert learned is not None
    reached = divergence(p, built(p, *learned))
    assert reached - best < 0.1 * (found[worst] - best)


class Killed(Exception):
    pass


class Stopping:
    """Progress that ends a run after so many steps of distillation."""

    def __init__(self, after: int) -> None:
        self.after = after
        self.steps = 0

    def track(self, iterable: Iterable[T], total: int | None, description: str) -> Iterator[T]:
        for item in iterable:
            if description == "distilling":
                if self.steps == self.after:
                    raise Killed
                self.steps += 1
            yield item


def test_a_killed_run_goes_on_and_gives_the_same_bits(slow: Prepared, tmp_path: Path) -> None:
    recipe = RECIPE.replace(distillation=30)
    assembly, plan = start(slow, recipe)
    whole = distil(slow, assembly, plan)
    assert whole is not None
    with pytest.raises(Killed):
        distil(replace(slow, work=tmp_path, progress=Stopping(28)), assembly, plan)
    rest = Stopping(1000)
    resumed = distil(replace(slow, work=tmp_path, progress=rest), assembly, plan)
    assert resumed is not None and rest.steps == 30 - 25
    assert resumed[1] == whole[1]
    for name, i in whole[0].integers().items():
        assert torch.equal(i.weight, resumed[0].integers()[name].weight)
        assert torch.equal(i.bias, resumed[0].integers()[name].bias)
    (kept,) = tmp_path.glob("*.distilling")
    kept.write_bytes(kept.read_bytes()[:100])  # damaged: from the beginning
    again = Stopping(1000)
    found = distil(replace(slow, work=tmp_path, progress=again), assembly, plan)
    assert again.steps == 30 and found is not None and found[1] == whole[1]


def test_a_killed_run_goes_on_behind_stored_integers(slow: Prepared, tmp_path: Path) -> None:
    """Of the whole pipeline: GPTQ's integers are read again, and are the same."""
    recipe = RECIPE.replace(distillation=30, rounding="gptq")
    with pytest.raises(Killed):
        run(replace(slow, work=tmp_path, progress=Stopping(28), cache=Cache()), recipe)
    rest = Stopping(1000)
    resumed = run(replace(slow, work=tmp_path, progress=rest, cache=Cache()), recipe)
    assert rest.steps == 30 - 25
    assert resumed.plan == run(replace(slow, cache=Cache()), recipe).plan


def test_what_is_not_nearer_is_not_kept(slow: Prepared, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = run(slow, RECIPE.replace(distillation=0)).plan.neurons
    monkeypatch.setattr("ptq4snn.tuning.distillation.RATES", (1.0, 1.0, 0.5))  # nothing is left
    assert run(slow, RECIPE.replace(distillation=5)).plan.neurons == plain


class Single(Slow):
    """One output: shares of classes say nothing."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(24, 1)
        nn.init.constant_(self.head.weight, 0.2)
        nn.init.zeros_(self.head.bias)


def test_where_it_does_not_apply() -> None:
    with pytest.raises(RecipeError, match="distillation moves integers"):
        Recipe.parse("w32m4+distil")
    with pytest.warns(UserWarning, match="distillation was left away"):
        ptq4snn.quantize(Single(), samples(96), RECIPE, progress=False)
