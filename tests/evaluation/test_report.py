"""The report is plain JSON, its totals are those of its parts, and a layer that falls silent is named."""

from __future__ import annotations

import json
import warnings
from dataclasses import replace
from typing import Any

import pytest
import torch
from oracles.numbers import known
from schema.walk import differences
from torch import nn

import ptq4snn
from ptq4snn.discovery.listing import WIDTH as DISCOVERY_WIDTH
from ptq4snn.errors import SilentNetworkWarning
from ptq4snn.pipeline import prepare, run
from ptq4snn.prepared import Cache
from ptq4snn.recipe import Recipe
from ptq4snn.report.headline import chosen_on
from ptq4snn.report.page import render_page
from ptq4snn.report.screen import WIDTH, screen
from ptq4snn.report.static import report_of_plan
from ptq4snn.report.terminal import plain
from ptq4snn.schema.report_types import Report

PAPER = Recipe.parse("paper+nearest")


@pytest.fixture(params=["residual", "twice"])
def case(request: pytest.FixtureRequest) -> Any:
    return request.getfixturevalue(request.param)


def test_is_json_without_nan(case: Any) -> None:
    report = case.model.report
    assert json.loads(json.dumps(report, allow_nan=False)) == report
    assert report["evaluations"] == []


@pytest.mark.parametrize("name", ["residual", "twice", "summed", "still", "pixelwise"])
def test_every_key_has_its_type(name: str, request: pytest.FixtureRequest) -> None:
    """And with tests/schema its place in docs/format.md."""
    report = request.getfixturevalue(name).model.report
    assert differences(report, Report) == []
    assert ("segmentation" in report["figures"]) == (name == "pixelwise")


def test_a_plan_alone_has_some_of_them(residual: Any) -> None:
    found = report_of_plan(residual.model.plan, dict.fromkeys(residual.model.plan.projections, 1))
    told = differences(found, Report)
    assert told and all(d.endswith(": missing") for d in told)


def test_words_and_time(case: Any) -> None:
    report = case.model.report
    s = report["summary"]
    assert s["version"] == ptq4snn.__version__ and s["task"] == "classification"
    assert (s["arithmetic"], s["steps"]) == ("integer", max(n["steps"] for n in report["neurons"]))
    assert s["state_energy"] == s["state_words"]["packed"] / s["state_words"]["m32"]
    assert s["state_words"]["m32"] == sum(
        -(-n["channels"] * n["elements"] // 2) if n["stem"] else n["channels"] * n["elements"]
        for n in report["neurons"]
    )
    packets = s["state_packets"]
    assert packets["energy"] == packets["words"]["packed"] / packets["words"]["m32"]
    assert packets["words"]["m32"] == sum(
        n["channels"] * (-(-n["elements"] // 2) if n["stem"] else n["elements"]) for n in report["neurons"]
    )
    for n in report["neurons"]:
        over = n["over_time"]
        lists = [n["divergence"], over["flip_rate"], over["saturation"], *over["firing_rate"].values()]
        assert len({len(x) for x in lists}) == 1
        for whole, steps in (
            (n["flip_rate"], over["flip_rate"]),
            (n["saturation"], over["saturation"]),
            (n["firing_rate"]["before"], over["firing_rate"]["before"]),
            (n["firing_rate"]["after"], over["firing_rate"]["after"]),
        ):
            assert sum(steps) / len(steps) == pytest.approx(whole)  # every step counts as many
        bits = sum(int(b) * count for b, count in n["bits"].items())
        assert n["average_bits"] == pytest.approx(bits / n["channels"])


def test_no_state_no_saturation(still: Any) -> None:
    """One step: nothing is carried."""
    for n in still.model.report["neurons"]:
        assert n["over_time"]["saturation"] == [None] and n["divergence"] == []
        assert n["saturation"] is None and len(n["over_time"]["flip_rate"]) == 1
    assert "allocation" not in still.model.report["figures"]


def test_totals_are_sums_of_the_parts(case: Any) -> None:
    report = case.model.report
    s, neurons, projections = report["summary"], report["neurons"], report["projections"]
    assert [n["name"] for n in neurons] == list(case.prepared.folded.discovery.neurons)
    for key in ("before", "after"):
        assert s["silent_channels"][key] == sum(n["silent_channels"][key] for n in neurons)
        synops = sum(p["synops"][key] for p in projections if p["synops"])
        assert s["synops"][key] == pytest.approx(synops)
        assert s["energy_pj"][key] == pytest.approx(0.9 * synops + 4.6 * s["macs"])
        sizes = [n["channels"] * n["elements"] * n["steps"] for n in neurons]
        total = sum(n["firing_rate"][key] * size for n, size in zip(neurons, sizes, strict=True))
        assert s["firing_rate"][key] == pytest.approx(total / sum(sizes))
    for key in ("float", "quantized", "scales", "biases"):
        assert s["weight_bytes"][key] == sum(p["weight_bytes"][key] for p in projections)
    bits = sum(n["elements"] * int(b) * c for n in neurons for b, c in n["bits"].items())
    assert s["state_bytes"]["logical"] == bits // 8 + (bits % 8 > 0)
    assert s["macs"] == sum(p["macs"] for p in projections if p["reads"] == "data")
    assert all(p["dead_gptq_columns"] is None for p in projections)


def test_weights_of_the_residual_network(residual: Any) -> None:
    by_name = {p["name"]: p for p in residual.model.report["projections"]}
    conv = by_name["layer1.0.conv2"]  # 8 -> 8 channels on 8x8, four steps
    assert (conv["bits"], conv["weight_bytes"]["float"], conv["weight_bytes"]["quantized"]) == (
        4,
        2304,
        288,
    )
    assert conv["macs"] == 4 * 8 * 8 * 8 * 8 * 9
    rate = next(n for n in residual.model.report["neurons"] if n["name"] == "layer1.0.sn1")["firing_rate"]
    assert conv["synops"] == pytest.approx({k: conv["macs"] * v for k, v in rate.items()})
    assert by_name["conv1"]["synops"] is None and by_name["conv1"]["bits"] == 8


def test_trials_and_choice(residual: Any, twice: Any) -> None:
    report = residual.model.report
    assert [t["beta"] for t in report["trials"]] == [0.0, 0.8]
    assert all(t["flips"] > 0 for t in report["trials"])
    best = next(t for t in report["trials"] if t["beta"] == report["summary"]["beta"])
    p, q = residual.prepared, residual.model
    assert p.divergence(q) == pytest.approx((best["kl"], best["agreement"]))
    told = replace(p, held_out=p.reporting, cache=Cache()).divergence(q)
    assert told == pytest.approx((report["summary"]["kl"], report["summary"]["agreement"]))
    assert best["kl"] != pytest.approx(report["summary"]["kl"])  # other samples
    assert (report["summary"]["choosing"], report["summary"]["choosing_reports"]) == (16, False)
    assert twice.model.report["trials"] == [] and twice.model.report["summary"]["beta"] is None


def test_of_few_samples_the_report_says_that_they_chose_too(residual: Any) -> None:
    assert "choices were made on 16 other held-out samples" in chosen_on(residual.model.report["summary"])
    p = replace(residual.prepared, reporting=(), cache=Cache())
    model = run(p, PAPER.replace(allocation="uniform"))
    report = model.report
    assert report["summary"]["choosing_reports"]
    assert report["summary"]["kl"] == pytest.approx(p.divergence(model)[0])
    for text in (plain(screen(report)), render_page(report, "m")):
        assert "too few to keep both apart" in " ".join(text.split())


def test_how_far_the_sensitivities_would_come_out_again(residual: Any, twice: Any) -> None:
    found = residual.model.report["summary"]["sensitivity"]
    assert found["batches"] == 2 and -1 <= found["overall"] <= 1
    assert twice.model.report["summary"]["sensitivity"] is None  # uniform
    screened, page = plain(screen(residual.model.report)), render_page(residual.model.report, "m")
    assert f"split-half of g {found['overall']:.2f}" in " ".join(screened.split())
    assert "Two halves of 2 micro-batches rank the channels" in page


def test_what_the_plan_says(twice: Any) -> None:
    report = twice.model.report
    stem, other = report["neurons"]
    assert (stem["name"], stem["stem"], stem["bits"], stem["steps"]) == ("sn1", True, {"16": 10}, 10)
    assert (other["bits"], other["in_budget"], other["carries_state"]) == ({"4": 7}, True, True)
    assert len(stem["divergence"]) == len(other["divergence"]) == 5  # two calls of five steps fall together
    assert report["summary"]["average_bits"] == 4.0
    assert report["summary"]["average_bits_all"] == pytest.approx((16 * 10 + 4 * 7) / 17)
    assert report["summary"]["leak_error"] == max(n["leak_error"] for n in report["neurons"]) > 0


@pytest.mark.parametrize(
    "changes",
    [{"coupling": "none"}, {"weights": None}, {"coupling": "layerwise"}, {"state_rounding": "dither"}],
)
def test_other_recipes(residual: Any, changes: dict[str, Any]) -> None:
    recipe = PAPER.replace(calibration=64, holdout=16, allocation="uniform")
    q = run(residual.prepared, recipe.replace(**changes))
    s = json.loads(json.dumps(q.report, allow_nan=False))["summary"]
    assert s["state_bytes"]["metadata"] == 0 and max(map(len, q.summary().splitlines())) <= WIDTH
    wide = changes.get("coupling") == "none"
    assert s["average_bits"] == (32.0 if wide else 4.0)
    assert s["state_bytes"]["shifts"] == (0 if wide else 6 if changes.get("coupling") == "layerwise" else 72)
    if wide:  # nothing can be too large for 32 bits
        assert s["state_energy"] == 1.0 and all(n["saturation"] == 0 for n in q.report["neurons"][1:])
    if "weights" in changes:
        assert s["weight_bytes"]["quantized"] == s["weight_bytes"]["float"]


def test_streams_are_counted_apart(summed: Any) -> None:
    report = summed.model.report
    by_name = {n["name"]: n for n in report["neurons"]}
    assert by_name["sn2"]["kind"] == "stream"
    assert report["summary"]["stream_bytes"] == 2 * 5
    assert any(
        line.split()[-4:] == ["streams", "(int16)", "10", "B"] for line in summed.model.summary().splitlines()
    )
    assert report["summary"]["state_bytes"]["logical"] == (16 * 8 + 4 * 5 + 7) // 8


def test_steps_in_a_python_loop() -> None:
    snn = pytest.importorskip("snntorch")

    class Loop(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.fc1, self.sn1 = nn.Linear(4, 9), snn.Leaky(beta=0.8)
            self.fc2, self.sn2 = nn.Linear(9, 6), snn.Leaky(beta=0.5, reset_mechanism="zero")
            self.fc3, self.sn3 = nn.Linear(6, 3), snn.Leaky(beta=0.9, reset_mechanism="none")

        def forward(self, x: torch.Tensor) -> torch.Tensor:  # [B, 4]
            a, b, c = (n.reset_mem() for n in (self.sn1, self.sn2, self.sn3))
            out = []
            for _ in range(6):
                s, a = self.sn1(self.fc1(x), a)
                s, b = self.sn2(self.fc2(s), b)
                s, c = self.sn3(self.fc3(s), c)
                out.append(c)
            return torch.stack(out)

    with torch.random.fork_rng():
        torch.manual_seed(3)
        recipe = PAPER.replace(calibration=64, holdout=16, allocation="uniform")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", SilentNetworkWarning)
            q = run(prepare(Loop(), 3 * torch.randn(64, 4), recipe), recipe)
    first, second, last = q.report["neurons"]
    assert len(first["divergence"]) == len(second["divergence"]) == 6 and all(second["divergence"])
    assert last["readout"] and last["bits"] == {"16": 3}
    assert last["firing_rate"]["before"] == 0 and q.report["silent"]["before"] is None  # it need not fire
    assert 0 < known(second["flip_rate"]) < 0.2 and 0 < second["firing_rate"]["after"] < 1


def test_a_layer_that_falls_silent_is_named(fading: Any) -> None:
    model, x, recipe = fading
    prepared = prepare(model, x, recipe)
    with pytest.warns(SilentNetworkWarning, match=r"goes silent at 'sn2'.*membrane"):
        q = run(prepared, recipe)
    assert q.report["silent"] == {"before": None, "after": "sn2", "lost": ["sn2"]}
    assert q.report["summary"]["silent_channels"] == {"before": 0, "after": 4}
    assert "silent after quantization, first at sn2" in q.summary()


def test_a_network_that_keeps_firing_is_not_warned_about(fading: Any) -> None:
    model, x, recipe = fading
    prepared = prepare(model, x, recipe)
    with warnings.catch_warnings():
        warnings.simplefilter("error", SilentNetworkWarning)
        q = run(prepared, recipe.replace(coupling="bridge"))
    assert q.report["silent"] == {"before": None, "after": None, "lost": []}


def test_a_silent_float_network_is_not_blamed_on_quantization(fading: Any) -> None:
    model, x, recipe = fading
    model.fc2.weight.data.mul_(0.01)
    with pytest.warns(SilentNetworkWarning, match="float network is silent"):
        prepared = prepare(model, x, recipe)
    with warnings.catch_warnings():
        warnings.simplefilter("error", SilentNetworkWarning)
        q = run(prepared, recipe)
    assert q.report["silent"] == {"before": "sn2", "after": "sn2", "lost": []}
    assert "silent in the float network already, first at sn2" in q.summary()


def test_summary_fits_the_screen(case: Any) -> None:
    text = case.model.summary()
    lines = text.splitlines()
    assert max(map(len, lines)) <= WIDTH and text.isascii()
    assert lines[0].startswith("W4/M4  coupling")
    for name in case.model.plan.neurons:
        assert any(line.startswith(name) for line in lines)


def test_summary_of_long_names_and_without_a_report(residual: Any) -> None:
    plan = residual.model.plan
    long = {
        f"{'encoder.' * 12}{n}": replace(p, name=f"{'encoder.' * 12}{n}") for n, p in plan.neurons.items()
    }
    text = plain(screen(report_of_plan(replace(plan, neurons=long))))
    assert max(map(len, text.splitlines())) <= WIDTH
    assert ".layer2.0.sn2" in text


def test_discovery_summary(residual: Any, twice: Any) -> None:
    text = residual.prepared.folded.discovery.summary()
    assert max(map(len, text.splitlines())) <= DISCOVERY_WIDTH
    line = next(x for x in text.splitlines() if x.startswith("layer1.0.downsample_sn"))
    convolution, norm = "layer1.0.downsample.0", "layer1.0.downsample.1"
    assert line.split() == ["layer1.0.downsample_sn", "pair", convolution, norm, "8x8x8", "4"]
    assert "7 neurons (7 pair, 0 stream, 0 bare) with 4,352 states" in text
    other = twice.prepared.folded.discovery.summary()
    assert "neurons that never run: idle" in other and "projections that never run: unused" in other
    assert next(x for x in other.splitlines() if x.startswith("sn1")).endswith("10  stem")
