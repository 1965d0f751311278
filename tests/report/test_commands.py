"""`ptq4snn report` and `ptq4snn figure`, and the page that quantize leaves beside its bundle."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from end_to_end.toy import Toy
from report import samples

import ptq4snn
from ptq4snn.cli import main
from ptq4snn.cli.quantize import save
from ptq4snn.errors import BundleError
from ptq4snn.hashing import file_digest
from ptq4snn.report.finished_run import read_run

Command = Callable[..., tuple[int, str, str]]


@pytest.fixture
def cli(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Command:
    """Run a command in an empty folder: exit code, stdout, stderr."""
    monkeypatch.chdir(tmp_path)

    def run(*argv: str) -> tuple[int, str, str]:
        code = main(list(argv))
        return code, *capsys.readouterr()

    return run


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    (tmp_path / "model.ptq").write_bytes(b"bundle")
    samples.put_beside(tmp_path / "model.ptq", samples.report())
    return tmp_path / "model.ptq"


def test_a_page_is_made_beside_the_bundle(cli: Command, bundle: Path) -> None:
    code, out, err = cli("report", "model.ptq")
    page = bundle.with_name("model.ptq.report.html")
    assert (code, err) == (0, "") and out == f"wrote model.ptq.report.html ({page.stat().st_size:,} bytes)\n"
    assert "<title>4-bit weights, 4-bit membrane states – model.ptq</title>" in page.read_text()


def test_comparisons_and_figures_come_along(cli: Command, bundle: Path, tmp_path: Path) -> None:
    pytest.importorskip("vl_convert", reason="figures as files need vl-convert-python")
    report = samples.report(neurons=2)
    report["figures"] = {"memory": report["figures"]["memory"]}  # few, as drawing takes its time
    samples.put_beside(bundle, report)
    (tmp_path / "methods.json").write_text(json.dumps(samples.comparison()))
    code, out, _ = cli(
        "report", "model.ptq", "--out", "r.html", "--add", "methods.json", "--figures", "a/b", "--json"
    )
    told = json.loads(out)
    assert code == 0 and told["page"] == "r.html" and "reuse+w4m4" in (tmp_path / "r.html").read_text()
    names = {Path(f).name for f in told["figures"]}
    drawn = ("memory", "layers", "time", "methods.methods")
    assert names == {f"{name}{ending}" for name in drawn for ending in (".svg", ".png")}
    assert {f.name for f in (tmp_path / "a" / "b").iterdir()} == names


def test_a_broken_addition_is_named(cli: Command, bundle: Path, tmp_path: Path) -> None:
    broken = samples.comparison()
    del broken["rows"][0]["score"]
    (tmp_path / "methods.json").write_text(json.dumps(broken))
    code, _, err = cli("report", "model.ptq", "--add", "methods.json")
    assert code == 2 and "methods.json is not a whole comparison" in err and "model.ptq" not in err


@pytest.mark.parametrize("kind", ["comparison", "swept"])
def test_a_comparison_is_a_run_of_its_own(cli: Command, tmp_path: Path, kind: str) -> None:
    (tmp_path / "c.json").write_text(json.dumps(getattr(samples, kind)()))
    code, out, _ = cli("report", "c.json")
    assert code == 0 and "wrote c.html" in out and (tmp_path / "c.html").is_file()


@pytest.mark.parametrize(
    ("argv", "says"),
    [
        (("report", "gone.ptq"), "there is no run gone.ptq"),
        (("report", "model.ptq", "--out", "no/page.html"), "there is no folder no"),
        (("report", "model.ptq", "--out", "page.pdf"), "name an .html file"),
        (("report", "model.ptq", "--add", "model.ptq"), "is a report: only files of compare"),
        (("report", "model.ptq", "--figures", "model.ptq"), "is a file: name a folder"),
        (("report", "broken.json"), "broken.json is not a whole report"),
        (("figure", "memory"), "of which run?"),
        (("figure", "memroy", "model.ptq"), "did you mean 'memory'?"),
        (("figure", "memory", "gone.ptq"), "there is no run"),
        (("figure", "memory", "model.ptq", "--out", "m.gif"), "must end with .svg"),
        (
            ("figure", "segmentation", "model.ptq"),
            "this run has no segmentation: the network gives no label maps",
        ),
        (("figure", "memory", "broken.json", "--out", "m.json"), "broken.json is not a whole report"),
        (("figure", "memory", "model.ptq", "--neuron", "x", "--out", "m.json"), "does not apply to memory"),
    ],
)
def test_mistakes_are_one_sentence(
    cli: Command, bundle: Path, tmp_path: Path, argv: tuple[str, ...], says: str
) -> None:
    broken = samples.report()
    broken["figures"]["memory"]["rows"] = [{"part": "weights"}]
    (tmp_path / "broken.json").write_text(json.dumps(broken))
    before = {f.name for f in tmp_path.iterdir()}
    code, out, err = cli(*argv)
    assert code == 2 and out == "" and says in err and err.count("\n") == 1
    assert {f.name for f in tmp_path.iterdir()} == before, "nothing is written"


def test_figures_are_listed(cli: Command) -> None:
    code, out, _ = cli("figure")
    assert code == 0 and [line.split()[0] for line in out.splitlines()] == [
        "membrane-cost", "memory", "distributions", "bridge-analysis", "allocation", "layers", "time",
        "sweep", "frontier", "segmentation", "methods",
    ]  # fmt: skip
    assert [f["name"] for f in json.loads(cli("figure", "--json")[1])][:2] == ["membrane-cost", "memory"]


def test_a_figure_is_drawn_and_told(cli: Command, bundle: Path, tmp_path: Path) -> None:
    pytest.importorskip("vl_convert", reason="figures as files need vl-convert-python")
    code, out, _ = cli("figure", "time", "model.ptq", "--neuron", "stage1.0.lif", "stage2.2.lif")
    assert code == 0 and "wrote time.svg" in out and "Flipped spikes over time. On average" in out
    svg = (tmp_path / "time.svg").read_text()
    assert "stage1.0.lif" in svg and "stage2.3.lif" not in svg
    data = json.loads(cli("figure", "memory", "model.ptq", "--json")[1])
    assert data == samples.memory() and not (tmp_path / "memory.svg").exists()


@pytest.mark.parametrize("recipe", ["paper+nearest+w4m4", "nearest+uniform+w4m4", "nearest+none+w4m32"])
def test_a_real_model_has_a_page_where_it_is_asked_for(tmp_path: Path, recipe: str) -> None:
    x = torch.randn(48, 6, generator=torch.Generator().manual_seed(0))
    wanted = ptq4snn.Recipe.parse(recipe).replace(
        holdout=16, sensitivity_batches=1, beta=0.8, percentile=97.0
    )
    q = ptq4snn.quantize(Toy(), x, wanted)
    out = tmp_path / "toy.ptq"
    written = save(q, out)
    assert {f.name for f in written} == {"toy.ptq", "toy.ptq.report.json", "toy.ptq.report.html"}
    assert {f.name for f in tmp_path.iterdir()} == {f.name for f in written}, "no draft is left"
    page = Path(f"{out}.report.html").read_text(encoding="utf-8")
    assert "toy.ptq" in page and '<section id="layers"' in page and "n2" in page
    assert read_run(out).data == {**json.loads(json.dumps(q.report)), "bundle": file_digest(out)}
    # in Python it is written on request, and the page of a bundle before does not stay
    q.save(out)
    assert {f.name for f in tmp_path.iterdir()} == {"toy.ptq", "toy.ptq.report.json"}
    q.save(out, page=True)
    assert Path(f"{out}.report.html").read_text(encoding="utf-8") == page
    # an edited report is told before anything is written; and so is a lost one
    del q.report["summary"]["state_bytes"]
    with pytest.raises(BundleError, match=r"not whole .*: save .*other\.ptq without page=True"):
        q.save(tmp_path / "other.ptq", page=True)
    q.report = {}
    with pytest.raises(BundleError, match="no report to make a page of"):
        q.save(tmp_path / "other.ptq", page=True)
    assert {f.name for f in tmp_path.iterdir()} == {f.name for f in written}
    q.save(out)
    assert not Path(f"{out}.report.html").exists()
