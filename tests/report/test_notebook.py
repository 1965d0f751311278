"""What a notebook shows: well-formed, escaped, self-contained, small, and the report's own numbers."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from typing import Any, cast
from xml.etree import ElementTree

import pytest
import torch
from report.samples import report
from torch import Tensor, nn

import ptq4snn
from ptq4snn.models.neuron import LIF
from ptq4snn.modules.quantized import QuantizedModel
from ptq4snn.report.notebook import fragment
from ptq4snn.report.screen import screen
from ptq4snn.report.static import report_of_plan
from ptq4snn.report.terminal import plain

HOSTILE = "<script>alert(1)</script>&\"'"


class Small(nn.Module):
    """A convolution, two layers, four steps."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.sn1 = nn.Conv2d(1, 4, 3, padding=1), LIF()
        self.fc1, self.sn2 = nn.Linear(64, 12), LIF()
        self.fc2 = nn.Linear(12, 3)

    def forward(self, x: Tensor) -> Tensor:  # [B, 1, 4, 4]
        y = self.sn1(self.conv(x).expand(4, -1, -1, -1, -1)).flatten(2)
        logits: Tensor = self.fc2(self.sn2(self.fc1(y))).mean(0)
        return logits


@pytest.fixture(scope="module")
def small() -> QuantizedModel:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = Small()
        samples = 2 * torch.randn(64, 1, 4, 4)
    with torch.no_grad():
        model.fc1.weight.mul_(3)
    return ptq4snn.quantize(model, samples, "fast+w4m4", calibration=64, holdout=16)


def tree(html: str) -> ElementTree.Element:
    """Every tag closed, every attribute quoted: then it is XML too."""
    return ElementTree.fromstring(html)


def cards(html: str) -> dict[str, str]:
    found = [d for d in tree(html).iter("div") if d.find("dt") is not None]
    return {d[0].text or "": "".join(d[1].itertext()) for d in found}


def rows(html: str) -> list[list[str]]:
    return [["".join(c.itertext()) for c in r] for r in tree(html).iter("tr")]


def test_well_formed_and_self_contained() -> None:
    for data in (report(), report(segmentation=True), report(hostile=HOSTILE)):
        html = fragment(data)
        seen = {e.tag for e in tree(html).iter()}
        assert not seen & {"script", "img", "link", "iframe", "object", "svg"}
        assert not re.search(r"https?:|//|url\(|@import|src=|href=|\son\w+=", html.replace(HOSTILE, ""))
        parser = HTMLParser()
        parser.feed(html)
        parser.close()


def test_names_are_text() -> None:
    html = fragment(report(hostile=HOSTILE))
    assert "<script" not in html and "&lt;script&gt;" in html
    assert rows(html)[1][0] == f"stage1.0.lif{HOSTILE}"


def test_styles_stay_inside() -> None:
    style = next(e.text or "" for e in tree(fragment(report())).iter("style"))
    for rule in re.findall(r"([^{}]+)\{", style):
        assert all(part.strip().startswith(".ptq4snn") for part in rule.split(","))


def test_numbers_are_those_of_the_report() -> None:
    data = report(neurons=5)
    data["evaluations"] = [
        {"data": "d", "samples": 2000, "limit": None, "task": "classification",
         "float": {"accuracy": 86.35}, "quantized": {"accuracy": 85.3}}
    ]  # fmt: skip
    html = fragment(data)
    found = cards(html)
    assert found["accuracy"] == "85.30 %float 86.35 %, 2,000 samples"
    assert found["bits of a state"] == "4.000all states 5.282"
    assert found["states, memory"] == "2.34 MiB → 402 KiB6.0× smaller"
    assert found["weights, memory"] == "42.6 MiB → 5.35 MiB8.0× smaller, and 37.1 KiB of scales and biases"
    assert found["agreement"] == "96.09 %with float, 128 samples"
    assert found["spike flips"].startswith("1.23 %")
    head, *body = rows(html)
    assert head == ["layer", "kind", "state", "bits", "k", "saturated %", "flips %", "firing rate"]
    for cells, n in zip(body, data["neurons"], strict=True):
        rate = n["firing_rate"]
        assert cells[0] == n["name"] and cells[3] == f"{n['average_bits']:.2f}"
        assert cells[5:7] == [f"{n['saturation']:.2f}", f"{100 * n['flip_rate']:.2f}"]
        assert cells[7] == f"{rate['before']:.3f} → {rate['after']:.3f}"


def test_bars_are_as_long_as_their_numbers() -> None:
    data = report(neurons=5)
    root = tree(fragment(data))
    widths = [float(e.attrib["style"][6:-1]) for e in root.iter("span") if e.get("class") == "bar"]
    top = max(n["flip_rate"] for n in data["neurons"])
    assert widths == pytest.approx([100 * n["flip_rate"] / top for n in data["neurons"]], abs=0.5)
    shares = next(e for e in root.iter("div") if e.get("class") == "bits")
    given = {s.attrib["title"]: float(s.attrib["style"].split("%")[0][6:]) for s in shares}
    states = {"16 bits": 64, "2 bits": 4 * 12, "4 bits": 4 * 46, "8 bits": 4 * 6}
    assert given == pytest.approx({b: 100 * n / (5 * 64) for b, n in states.items()}, abs=0.01)
    assert sum(given.values()) == pytest.approx(100, abs=0.05)


def test_small_for_many_layers() -> None:
    data = report(neurons=100)
    for n in data["neurons"]:
        n["name"] = f"backbone.encoder.{n['name']}.neuron"
    assert len(fragment(data).encode()) < 60_000


def test_of_a_model_and_its_plan(small: QuantizedModel) -> None:
    html = small._repr_html_()
    s = small.report["summary"]
    assert cards(html)["agreement"].startswith(f"{100 * s['agreement']:.2f} %")
    assert [r[0] for r in rows(html)[1:]] == ["sn1", "sn2"]
    assert "QuantizedModel(" in repr(small)  # torch's own
    plan = small.plan._repr_html_()
    assert plan is not None
    assert cards(plan).keys() == {"bits of a state", "states, memory", "state energy"}
    assert rows(plan)[0] == ["layer", "kind", "state", "bits", "k"] and len(rows(plan)) == 3
    assert "None" not in plan


def without_measurements(small: QuantizedModel) -> Any:
    sizes = {"conv": 36, "fc1": 64 * 12, "fc2": 36}
    return report_of_plan(small.plan, sizes)


def test_a_plan_knows_what_the_report_says(small: QuantizedModel) -> None:
    """Everything in it that the report has too is the same."""
    static, full = without_measurements(small), cast(Any, small.report)
    for key in static["summary"].keys() - {"state_bytes", "recipe"}:
        assert static["summary"][key] == full["summary"][key], key
    for key in ("float", "packed"):
        assert static["summary"]["state_bytes"][key] == full["summary"]["state_bytes"][key]
    for mine, theirs in zip(static["neurons"], full["neurons"], strict=True):
        assert mine == {key: theirs[key] for key in mine}


def test_a_model_that_lost_its_report(small: QuantizedModel) -> None:
    kept, small.report = small.report, {}
    try:
        text, html = small.summary(), small._repr_html_()
    finally:
        small.report = kept
    assert text == plain(screen(without_measurements(small))) and "weights" in text
    assert "agreement" not in text and "average bits      4.000" in text
    assert cards(html)["weights, memory"] == cards(small._repr_html_())["weights, memory"]
    assert "agreement" in small.summary()
