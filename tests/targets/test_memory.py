"""A microcontroller by its bytes, widths of one's own, and cores of different sizes."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest
from targets.nets import Dense, bundle
from targets.test_chips import broken, followed

from ptq4snn.errors import PTQ4SNNError
from ptq4snn.export.c99.export import generate
from ptq4snn.models.neuron import LIF
from ptq4snn.targets.target import Target
from ptq4snn.targets.verdict import check, target_of

WIDE = partial(Dense, partial(LIF, tau=2.0), 96)


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return bundle(tmp_path_factory.mktemp("memory") / "m.ptq", WIDE())


def test_the_figures_are_those_of_the_c_sources(path: Path) -> None:
    figures = generate(path, "m").figures
    exact = target_of("microcontroller", figures.flash, figures.ram)
    assert check(path, exact).fits
    less = check(path, target_of("microcontroller", figures.flash - 1, figures.ram - 1))
    assert broken(less) == {("flash", ""), ("ram", "")}
    assert broken(check(path, target_of("microcontroller", None, figures.ram - 1))) == {("ram", "")}


def test_fewer_bits_are_advised_where_they_fit(path: Path, tmp_path: Path) -> None:
    figures = generate(path, "m").figures
    target = target_of(
        "microcontroller", figures.flash - figures.weights // 3, figures.ram - figures.state // 2
    )
    first = check(path, target)
    assert broken(first) == {("flash", ""), ("ram", "")} and not first.beyond
    assert followed(tmp_path, WIDE(), target, first).fits


def test_a_network_that_is_too_large_at_any_width(path: Path) -> None:
    found = check(path, target_of("microcontroller", 100, 10))
    assert found.recipe is None and len(found.beyond) == 2
    assert all(sentence.startswith("build a smaller network: ") for sentence in found.beyond)


def test_the_memory_makes_a_microcontroller() -> None:
    with pytest.raises(PTQ4SNNError, match="give --flash BYTES, --ram BYTES, or both"):
        target_of("microcontroller")
    with pytest.raises(PTQ4SNNError, match="are for --target microcontroller"):
        target_of("xylo", ram=3)


@pytest.mark.parametrize(
    ("target", "expected"),
    [
        (Target("t", weight_bits=(1, 3)), {("weight_bits", p) for p in "abc"}),
        (Target("t", state_bits=(1, 4)), {("state_bits", n) for n in ("n1", "n2")}),
        (Target("t", state_bits=(1, 16)), {("state_bits", n) for n in ("n1", "n2", "n3")}),
    ],
)
def test_widths(tmp_path: Path, target: Target, expected: set[tuple[str, str]]) -> None:
    """Weights under the first layer's, states under the zero points' (n3 has none), and none that stay 32
    bits wide."""
    kept = target.state_bits == (1, 16)
    net = Dense(partial(LIF, tau=2.0))
    options = (
        {"coupling": "none", "first_membrane": 16, "overrides": {"n*": {"coupling": "none"}}} if kept else {}
    )
    first = check(bundle(tmp_path / "m.ptq", net, "fast+replay+w4m4", **options), target)
    assert broken(first) == (expected - {("state_bits", "n1")} if kept else expected)
    assert followed(tmp_path, net, target, first).fits


def test_overrides_of_the_recipe_give_way(tmp_path: Path) -> None:
    net = Dense(partial(LIF, tau=2.0))
    options = {"overrides": {"b": {"weights": 6}, "n2": {"membrane": 16}}}
    target = Target("t", weight_bits=(1, 4), state_bits=(1, 10), one_scale=True)
    first = check(bundle(tmp_path / "m.ptq", net, "fast+w4m4", **options), target)
    assert {("weight_bits", "b"), ("state_bits", "n2")} < broken(first)
    assert followed(tmp_path, net, target, first).fits


def test_layers_and_their_cores(path: Path) -> None:
    """a: 576 weights, b: 9,216, c: 384; each needs a core of its own, whatever the order of the cores."""
    cores = ((10_000, 200), (600, 200), (600, 200))
    assert check(path, Target("t", cores=cores, layers=3)).fits
    assert check(path, Target("t", cores=cores[::-1])).fits
    assert broken(check(path, Target("t", cores=cores[:2], layers=2))) == {("cores", "c"), ("layers", "")}
    assert broken(check(path, Target("t", cores=((9000, 200),) * 3))) == {("cores", "b")}
    assert broken(check(path, Target("t", cores=((10_000, 50),) * 3))) == {("cores", "a"), ("cores", "b")}
    assert broken(check(path, Target("t", hidden_neurons=191, output_neurons=4))) == {("hidden_neurons", "")}
    assert broken(check(path, Target("t", hidden_neurons=192, output_neurons=3))) == {("output_neurons", "")}
