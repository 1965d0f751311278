"""`ptq4snn compare` from the command line, on a small network of the user's own."""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from cli.nets import NET
from report.test_latex import check

import ptq4snn
from ptq4snn.recipe import Recipe

Cli = Callable[..., tuple[int, str, str]]

DATA = """
def data(split):
    g = torch.Generator().manual_seed(len(split))
    x = torch.randn(50, 6, generator=g)
    with torch.no_grad():
        y = net()(x).argmax(1)
    y[:10] = torch.randint(0, 3, (10,), generator=g)
    return [(x[:30], y[:30]), (x[30:], y[30:])]
"""


@pytest.fixture
def net(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[str, ...]:
    (tmp_path / "net_for_compare.py").write_text(NET + DATA)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delitem(sys.modules, "net_for_compare", raising=False)
    return "net_for_compare:net", "--data", "net_for_compare:data"


def test_table_csv_and_json(cli: Cli, net: tuple[str, ...]) -> None:
    argv = ("compare", *net, "--seeds", "3", "4", "--csv", "runs.csv", "--latex", "table.tex")
    argv += ("--methods", "w4m32", "R=reuse+uniform+w4m4", "uniform+w4m2")
    code, out, err = cli(*argv)
    assert code == 0
    lines = out.splitlines()
    assert [line.split()[0] for line in lines[2:6]] == ["float", "w4m32", "R", "uniform+w4m2"]
    assert [line.split(":")[0] for line in err.splitlines()] == [
        "float", "w4m32 seed 3", "R seed 3", "uniform+w4m2 seed 3", "w4m32 seed 4", "R seed 4",
        "uniform+w4m2 seed 4",
    ]  # fmt: skip
    assert "50 test samples; calibration seeds 3, 4" in out
    assert Path("runs/compare").is_dir()
    code, again, err = cli(*argv, "--json")
    assert code == 0 and all(line.endswith("stored") for line in err.splitlines())
    data = json.loads(again)
    assert [f"{r['score']:.2f}" for r in data["rows"]] == [line.split()[1] for line in lines[2:6]]
    with Path("runs.csv").open() as file:
        rows = list(csv.DictReader(file))
    check(Path("table.tex").read_text(), 1)
    assert [float(r["score"]) for r in rows] == [r["score"] for r in data["runs"]]


def test_options_reach_the_recipes(cli: Cli, net: tuple[str, ...]) -> None:
    argv = ("compare", "--model", *net, "--methods", "uniform+w4m4", "--calibration", "32", "--limit", "20")
    code, out, _ = cli(*argv, "--first-bits", "4", "--last-bits", "5", "--out", "here", "--json")
    assert code == 0 and Path("here").is_dir()
    base, run = json.loads(out)["runs"]
    assert base["samples"] == run["samples"] == 20
    recipe = Recipe.from_dict(run["recipe"])
    assert (recipe.first_bits, recipe.last_bits, recipe.calibration, recipe.seed) == (4, 5, 32, 0)
    sys.modules.pop("net_for_compare", None)
    import net_for_compare  # type: ignore[import-not-found]

    expected = ptq4snn.evaluate(net_for_compare.net(), net_for_compare.data("test"), limit=20)
    assert base["score"] == expected["accuracy"]


@pytest.mark.parametrize(
    ("options", "what"),
    [
        (("--methods", "w4m4", "bridg+w4m4"), "'bridg' is not a recipe"),
        (("--methods", "A=w4m4", "A=w4m2"), "two methods are called 'A'"),
        (("--methods", "w4m4", "--baseline", "w4m32"), "the baseline 'w4m32' is none of the methods"),
        (("--methods", "w4m4", "--first-bits", "40"), "first_bits must be"),
        (("--methods", "w4m4", "--seeds", "-1"), "argument --seeds"),
        (("--methods", "w4m4", "--csv", "no/folder.csv"), "--csv no/folder.csv: there is no folder no"),
        (("--methods", "w4m4", "--latex", "no/t.tex"), "--latex no/t.tex: there is no folder no"),
        (("--methods", "w4m4", "--model", "default"), "the model is named twice"),
        (("--methods", "none.toml"), "cannot read the recipe none.toml"),
        ((), "the following arguments are required: --methods"),
    ],
)
def test_mistakes_are_one_sentence_before_anything_runs(
    cli: Cli, net: tuple[str, ...], options: tuple[str, ...], what: str
) -> None:
    code, out, err = cli("compare", *net, *options)
    assert (code, out) == (2, "") and err.count("\n") == 1 and what in err
    assert not Path("runs").exists()


def test_a_cluster_without_ray_is_one_sentence(
    cli: Cli, net: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    code, _, err = cli("compare", *net, "--methods", "w4m4", "--ray", "local")
    assert code == 2 and '--ray needs Ray: pip install "ptq4snn[ray]"' in err and err.count("\n") == 1


def test_an_out_that_is_a_file(cli: Cli, net: tuple[str, ...]) -> None:
    Path("taken").write_text("")
    code, _, err = cli("compare", *net, "--methods", "w4m4", "--out", "taken")
    assert code == 2 and "taken is a file" in err and err.count("\n") == 1
