"""Every experiment of the paper on a small network, weights rounded to nearest."""

from __future__ import annotations

import csv
import json
import re
from pathlib import Path
from typing import Any

import pytest
import torch
from experiments.small import FEW, Case
from report.test_latex import check
from torch import Tensor, nn

from ptq4snn.allocation.budget import average_bits
from ptq4snn.errors import PTQ4SNNError
from ptq4snn.experiments import bench as module
from ptq4snn.experiments import paper_figures
from ptq4snn.experiments.bench import Bench
from ptq4snn.experiments.catalog import EXPERIMENTS, find
from ptq4snn.experiments.methods import parse_methods
from ptq4snn.experiments.outcome import Outcome, run_experiment
from ptq4snn.experiments.paper import RunSetting
from ptq4snn.models.neuron import LIF
from ptq4snn.report.figures import figure_made_by, figure_panels
from ptq4snn.report.png import data_url

QUICK = {**FEW, "rounding": "nearest"}
OWN = RunSetting("default", None, 4)


@pytest.fixture(scope="module")
def bench(case: Case, tmp_path_factory: pytest.TempPathFactory) -> Bench:
    return case.bench(tmp_path_factory.mktemp("experiments"), limit=20)


def done(bench: Bench, name: str, ran: RunSetting = OWN, **options: Any) -> Outcome:
    return run_experiment(find(name), bench, ran, changes=QUICK, **options)


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_every_experiment_runs_once(name: str, bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    first = done(bench, name)
    monkeypatch.setattr(module, "run", None)  # whoever runs anything again fails
    monkeypatch.setattr(paper_figures, "run", None)
    again = done(bench, name)
    assert (first.lines, first.csv) == (again.lines, again.csv)
    assert json.loads(json.dumps(first.data)) == again.data
    assert max(map(len, first.lines[:-1])) <= 110
    if name != "segmentation-examples":  # which the network has none of
        assert len(list(csv.reader(first.csv.splitlines()))) > 1
    assert bool(first.latex) == bool(EXPERIMENTS[name].methods)
    if EXPERIMENTS[name].methods:
        check(first.latex, 1)
        assert first.data["paper"] is None and "paper's" in first.lines[-1]
        assert not any(line.endswith("paper") for line in first.lines)


def test_the_protocol_of_each() -> None:
    for e in EXPERIMENTS.values():
        if not e.methods:
            continue
        methods = parse_methods(e.methods, e.changes)
        assert methods[0].label == "Full precision" and methods[0].recipe is None
        recipes = {m.label: m.recipe for m in methods if m.recipe is not None}
        bits = 4 if e.name == "scale-ablation" else 8
        assert all((r.first_bits, r.last_bits, r.weights) == (bits, bits, 4) for r in recipes.values())
        assert all((r.objective, r.state_rounding) == ("squared_error", "even") for r in recipes.values())
        for label, r in recipes.items():
            if "Reuse" in label:
                assert (r.coupling, r.allocation) == ("reuse", "uniform")
            if label.startswith(("BRECQ", "GPTQ")):
                assert r.rounding == label.split()[0].lower()
    flowq = next(m.recipe for m in EXPERIMENTS["imagenet"].methods if m.label == "FlowQ W4/M4")
    assert flowq is not None and (flowq.coupling, flowq.allocation) == ("flowq", "uniform")


def test_the_paper_stands_beside_and_is_not_mixed_in(bench: Bench) -> None:
    plain = done(bench, "cifar")
    beside = done(bench, "cifar", RunSetting("sdt-2-256-cifar10", "cifar10", 4))
    assert beside.data["rows"] == plain.data["rows"] and beside.csv == plain.csv
    head = next(line for line in beside.lines if line.startswith("method"))
    assert head.split()[-1] == "paper"
    rows = {line.split("  ")[0]: line for line in beside.lines}
    assert rows["FlowQ W4/M4"].endswith("93.57 (-0.84)")
    assert rows["PTQ4SNN W4/M4"].endswith("94.35 (-0.06)")
    assert beside.data["paper"]["rows"]["GPTQ W4/M32"] == {"accuracy": 94.07, "change": -0.34}
    states = done(bench, "packed-state", RunSetting("sew-resnet18-cifar10", "cifar10", 4))
    check(states.latex, 2)
    assert r"93.57 ($-$0.84) \\" in beside.latex
    assert any("6.2/90.65/3.15 4.002 5.282 0.387/0.392 0.177" in line for line in states.lines)


def test_experiments_share_their_runs(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    done(bench, "cifar")
    done(bench, "mpba-ablation")
    monkeypatch.setattr(module, "run", None)
    done(bench, "imagenet")
    done(bench, "packed-state")


def test_the_sweep_has_every_point(bench: Bench) -> None:
    outcome = done(bench, "sweep")
    (noise,) = (line for line in outcome.lines if line.startswith("noise floor"))
    assert re.search(r"float keeps \d+\.\d\d % of its held-out decisions, KL \d\.\d{4}$", noise)
    data = outcome.data
    points = {
        (r["report"]["summary"]["beta"], r["report"]["summary"]["percentile"]) for r in data["runs"][1:]
    }
    assert points == {(b / 5, p) for b in range(6) for p in (97.0, 98.0, 99.0)}
    assert all(r["kl"] is not None for r in data["rows"][1:])


def test_no_run_keeps_figures(bench: Bench) -> None:
    """Eighteen runs of a sweep would hold them eighteen times."""
    runs = done(bench, "cifar").data["runs"]
    assert all("figures" not in r["report"] for r in runs if r["report"] is not None)


def test_a_model_without_anything_to_draw(case: Case, tmp_path: Path) -> None:
    """A single step, so that no state is kept: none is inside the budget."""

    class First(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.n, self.b = nn.Linear(432, 5), LIF(), nn.Linear(5, 10)

        def forward(self, x: Tensor) -> Tensor:
            out: Tensor = self.b(self.n(self.a(x.flatten(1)).expand(1, -1, -1))).mean(0)
            return out

    bench = Bench.of(First().eval(), case.pool, case.test, tmp_path)
    for name in ("distributions", "bridge-analysis", "allocation"):
        with pytest.warns(UserWarning, match="no state is inside the budget"):
            found = done(bench, name)
        assert found.data["rows"] == [] and "inside the budget" in found.lines[-1]


def test_membrane_cost(bench: Bench, case: Case) -> None:
    data = done(bench, "membrane-cost").data
    weights = sum(m.weight.numel() for m in case.model.modules() if isinstance(m, nn.Conv2d | nn.Linear))
    assert data["weights"] == weights
    rows = {(r["axis"], r["value"]): r for r in data["rows"]}
    assert rows["batch", 8]["m32"] == weights // 2 + 8 * 4 * data["states"]
    assert rows["T", 4]["m32"] == 8 * rows["T", 4]["m4"] == 2 * 4 * 4 * data["states"]


def test_allocation(bench: Bench) -> None:
    data = done(bench, "allocation").data
    rows = data["rows"]
    scores = [r["score"] for r in rows]
    assert scores == sorted(scores, reverse=True) and data["beta"] == 0.8
    rate = [r["rate"] for r in rows]
    g = [r["sensitivity"] for r in rows]
    for r in rows:  # the paper's formula
        a = (r["rate"] - min(rate)) / (max(rate) - min(rate))
        b = (r["sensitivity"] - min(g)) / (max(g) - min(g))
        assert r["score"] == pytest.approx(0.8 * a + 0.2 * b, abs=2e-5)  # of six digits each
    bits, elements = (torch.tensor([r[n] for r in rows]) for n in ("bits", "elements"))
    assert average_bits(bits, elements) == pytest.approx(data["average_bits"], rel=1e-5)
    assert all(sum(s.values()) == pytest.approx(1, rel=1e-5) for s in data["stages"].values())
    assert list(data["stages"]) == ["layer1", "layer2"]


def test_bridge_analysis(bench: Bench) -> None:
    data = done(bench, "bridge-analysis").data
    for r in data["rows"]:
        assert r["bridged"] > 0 and r["observer"] > 0 and r["bits"] in (2, 4, 8)
    assert sum(data["k"].values()) == len(data["rows"])
    assert len({(r["neuron"], r["channel"]) for r in data["rows"]}) == len(data["rows"])


def test_distributions(bench: Bench, case: Case) -> None:
    rows = done(bench, "distributions").data["rows"]
    assert {r["which"] for r in rows} == {"narrow", "middle", "wide"}
    for r in rows:
        assert len(r["weights"]["edges"]) == len(r["weights"]["counts"]) + 1
        assert sum(r["states"]["counts"]) > 0
    block = next(r for r in rows if r["neuron"] == "layer1.0.sn1")
    weight = case.model.get_parameter("layer1.0.conv1.weight")
    assert sum(block["weights"]["counts"]) == weight[0].numel()


class Painter(nn.Module):
    """Label maps [B, 3, H, W] from images, two neurons deep."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.n1 = nn.Conv2d(3, 6, 3, padding=1), LIF()
        self.b, self.n2 = nn.Conv2d(6, 6, 3, padding=1), LIF()
        self.head = nn.Conv2d(6, 3, 1)
        g = torch.Generator().manual_seed(0)
        with torch.no_grad():
            for p in self.parameters():
                p.copy_(torch.randn(p.shape, generator=g))

    def forward(self, x: Tensor) -> Tensor:
        y = self.a(x)
        y = self.n1(y.expand(4, *y.shape))
        y = self.n2(self.b(y.flatten(0, 1)).unflatten(0, (4, -1)))
        out: Tensor = self.head(y.flatten(0, 1)).unflatten(0, (4, -1)).mean(0)
        return out


def test_label_maps(case: Case, tmp_path: Path) -> None:
    model = Painter().eval()
    x = case.test[0][0]
    with torch.no_grad():
        bench = Bench.of(model, case.pool, [(x, model(x).argmax(1))], tmp_path)
    found = done(bench, "segmentation", RunSetting("metaspikeformer-fpn-55m-voc2012", "voc2012", 4))
    base, *others = found.data["rows"]
    assert base["scores"] == {"mIoU": 100.0, "aAcc": 100.0, "mAcc": 100.0}
    assert all(r["interval_95"] is None and r["metric"] == "mIoU" for r in others)
    head = next(line for line in found.lines if line.startswith("method"))
    assert "mIoU %" in head and "aAcc" in head and "mAcc" in head and head.endswith("paper")
    assert any(line.endswith("90.64 / 60.44 / 73.41") for line in found.lines)
    assert max(map(len, found.lines)) <= 110


def test_pictures_of_label_maps(case: Case, tmp_path: Path) -> None:
    """Image, label, float and quantized prediction of the first test images, as `evaluate` records them."""
    model = Painter().eval()
    x = case.test[0][0][:6]
    with torch.no_grad():
        labels = model(x).argmax(1)
    bench = Bench.of(model, case.pool, [(x, labels)], tmp_path)
    found = done(bench, "segmentation-examples")
    rows = found.data["rows"]
    assert len(rows) == 4 and found.data["classes"] == 3 and found.latex == ""
    colours = torch.tensor(found.data["palette"], dtype=torch.uint8).numpy()
    for i, r in enumerate(rows):
        assert r["label"] == r["float"] == data_url(colours[labels[i].numpy()])
        assert (r["differs"] > 0) == (r["quantized"] != r["float"])
    assert any(r["differs"] for r in rows)
    assert found.lines[-3].startswith("4 ") and "%" in found.lines[-3]
    figure = figure_made_by("segmentation-examples")
    data = figure.of_experiment(found.data)
    assert len(figure_panels(figure, data)) == 16 and figure.name == "segmentation"
    others = Bench.of(model, case.pool, [(x[2:], labels[2:])], tmp_path)  # the same store, other images
    assert done(others, "segmentation-examples").data["rows"][0]["label"] == rows[2]["label"]


def test_without_label_maps_there_are_no_pictures(bench: Bench) -> None:
    found = done(bench, "segmentation-examples")
    assert found.data["rows"] == [] and "no label maps" in found.lines[-1]


def test_a_misspelt_name() -> None:
    with pytest.raises(PTQ4SNNError, match="did you mean 'scale-ablation'"):
        find("scale-ablations")
