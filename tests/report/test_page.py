"""The page as text: one file, nothing from elsewhere, nothing of a stranger's that could run."""

from __future__ import annotations

import copy
import json
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from report import samples

from ptq4snn.report import tables
from ptq4snn.report.figures import FIGURES
from ptq4snn.report.finished_run import Run
from ptq4snn.report.page import render_page, write_page
from ptq4snn.report.payload import Payload, safe_json

HOSTILE = '</script><script>alert(1)</script><img src=x onerror="alert(2)">'
MOST_BYTES = 5_000_000


class Reader(HTMLParser):
    """Every tag with its attributes, texts of scripts, and the headings."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.scripts: list[str] = []
        self.headings: list[int] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag == "script":
            self.scripts.append("")
        if re.fullmatch("h[1-6]", tag):
            self.headings.append(int(tag[1]))

    def handle_data(self, data: str) -> None:
        if self.cdata_elem == "script":
            self.scripts[-1] += data


def payload(page: str) -> Any:
    return json.loads(Reader(page).scripts[0])


def without_library(page: str) -> str:
    """The page without the charts' code, which names its own home page."""
    begin = page.index("/* Vega ")
    return page[:begin] + page[page.index("</script>", begin) :]


@pytest.fixture(scope="module")
def page() -> str:
    return render_page(samples.report(segmentation=True), "model.ptq")


def test_nothing_is_loaded_from_elsewhere(page: str) -> None:
    found = Reader(page)
    policy = next(a["content"] for t, a in found.tags if a.get("http-equiv") == "Content-Security-Policy")
    assert (
        policy == "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:"
    )
    for _, attributes in found.tags:
        for name in ("src", "href", "srcset", "action", "data", "poster"):
            value = attributes.get(name) or ""
            assert value.startswith(("#", "data:image/png;base64,")) or not value
    rest = without_library(page)
    assert "http:" not in rest and "https:" not in rest and "url(" not in rest and "@import" not in rest
    assert not any(t in ("link", "iframe", "object", "embed", "base") for t, _ in found.tags)


@pytest.mark.parametrize(("steps", "channels"), [(4, 2000), (300, 2000)])
def test_a_large_model_stays_below_five_megabytes(steps: int, channels: int) -> None:
    large = samples.report(neurons=92, pairs=24, channels=channels, steps=steps)
    assert len(large["figures"]["distributions"]["rows"]) == 72
    assert len(render_page(large, "model.ptq").encode()) < MOST_BYTES


def test_large_pictures_are_in_the_page_once() -> None:
    large = samples.report(neurons=92, pairs=24, channels=2000, segmentation=True)
    image = samples.PIXEL + 350_000 * "A"
    row = {"image": image, "label": samples.PIXEL, "float": samples.PIXEL, "quantized": samples.PIXEL}
    large["figures"]["segmentation"]["rows"] = 4 * [{**row, "differs": 0.1}]
    page = render_page(large, "model.ptq")
    assert page.count(image) == 4 and len(page.encode()) < MOST_BYTES


def test_pictures_are_numbered_and_told_without_a_float_network() -> None:
    report = samples.report(segmentation=True)
    report["figures"]["segmentation"]["rows"][1] |= {"float": None, "differs": None}
    page = render_page(report, "m")
    names = [a["alt"] for t, a in Reader(page).tags if t == "img"]
    assert names[0] == "image 1" and names[4] == "image 2" and len(set(names)) == len(names) == 6
    assert page.count("differ in") == 1 and "differ in –" not in page
    report["figures"]["segmentation"]["rows"][1] = {}
    with pytest.raises(KeyError):
        render_page(report, "m")


def test_names_of_strangers_do_not_run() -> None:
    report = samples.report(hostile=HOSTILE)
    report["silent"]["lost"] = [f"layer{HOSTILE}"]
    report["evaluations"] = [evaluation(data=HOSTILE)]
    page = render_page(report, HOSTILE, [Run(Path(f"{HOSTILE[:20]}.json"), "comparison", compared(HOSTILE))])
    found = Reader(page)
    assert len(found.scripts) == 3, "data, library, page"
    assert not any(name.startswith("on") for _, attributes in found.tags for name in attributes)
    assert "alert(1)" in payload(page)["rows"].__repr__(), "the names are shown as they are"
    assert all("<" not in script for script in found.scripts[:1])
    assert page.lower().count("<img src=x") == 0


def evaluation(**changes: Any) -> Any:
    return {
        "data": "cifar10", "samples": 10_000, "limit": None, "task": "classification",
        "float": {"accuracy": 85.38, "accuracy_top5": 99.4},
        "quantized": {"accuracy": 85.0, "accuracy_top5": 99.3},
    } | changes  # fmt: skip


def compared(name: str) -> Any:
    found = samples.comparison()
    found["rows"][1]["method"] = name
    return found


def test_json_in_a_script_cannot_end_it() -> None:
    value = {"a": "</script><!--&", "b": [1.5, None, "\u2028"]}
    text = safe_json(value)
    assert json.loads(text) == value
    assert not re.search(r"[<>&\u2028]", text)
    with pytest.raises(ValueError, match="Out of range"):
        safe_json(float("nan"))


def test_the_story_is_on_the_first_screen(page: str) -> None:
    text = re.sub(r"<[^>]+>|\s+", " ", page[page.index("<header>") : page.index("<nav")])
    text = re.sub(r"\s+", " ", text)
    assert "4-bit weights, 4-bit membrane states" in text
    assert "96.1 % of" in text and "Membrane state 402 KiB from 2.34 MiB, 6.0× smaller" in text
    assert "Weights 5.35 MiB from 42.6 MiB, 8.0× smaller" in text
    assert "Warning" not in text


def test_accuracy_takes_the_place_of_agreement() -> None:
    report = samples.report()
    report["evaluations"] = [evaluation(quantized={"accuracy": 12.0}), evaluation()]
    header = render_page(report, "m").split("<nav")[0]
    assert "85.00 %" in header and "from 85.38 % (−0.38 points)" in header and "12.0" not in header
    maps = evaluation(task="segmentation", float=None, quantized={"mIoU": 41.234, "aAcc": 80.0, "mAcc": 50.0})
    page = render_page(report | {"evaluations": [maps]}, "m")
    assert "41.23 %" in page.split("<nav")[0] and "<td>mIoU" in page


def test_a_network_without_states_has_no_bits() -> None:
    report = samples.report(steps=1)
    report["summary"] |= {"average_bits": 0.0, "average_bits_all": 0.0, "state_energy": None}
    report["summary"]["state_bytes"] = dict.fromkeys(report["summary"]["state_bytes"], 0)
    header = render_page(report, "m").split("<nav")[0]
    assert "no state is kept" in header and "bits on average" not in header


def test_bytes_of_a_projection_are_compared_with_biases_on_both_sides() -> None:
    one: Any = samples.projection("conv")
    row = tables.projection(one)
    assert [cell.value for cell in row[4:6]] == [147_456 + 256, 18_432 + 512]


def test_how_bits_were_given_is_told_as_it_was() -> None:
    report = samples.report()
    assert "fire often" in render_page(report, "m")
    report["figures"]["allocation"] |= {"by": "benefit", "rows": []}
    page = render_page(report, "m")
    assert "gain most from more bits" in page and "fire often" not in page


def test_silent_layers_are_told_first() -> None:
    report = samples.report()
    report["silent"] = {"before": "stem", "after": "a", "lost": ["a", "b"]}
    header = render_page(report, "m").split('<ul class="cards">')[0]
    assert (
        "goes silent at a and 1 more layer" in header and "float network itself is silent at stem" in header
    )


def test_headings_are_in_order_and_targets_exist(page: str) -> None:
    found = Reader(page)
    assert found.headings[0] == 1 and found.headings.count(1) == 1
    assert all(b - a <= 1 for a, b in zip(found.headings, found.headings[1:], strict=False))
    ids = [a["id"] for _, a in found.tags if a.get("id")]
    assert len(ids) == len(set(ids))
    links = [a["href"] for t, a in found.tags if t == "a"]
    assert {str(href).removeprefix("#") for href in links} <= set(ids)
    assert [t for t, _ in found.tags if t in ("header", "nav", "main", "footer")] == [
        "header",
        "nav",
        "main",
        "footer",
    ]
    assert all(a.get("alt") is not None for t, a in found.tags if t == "img")
    for _, attributes in found.tags:
        if "aria-labelledby" in attributes:
            assert attributes["aria-labelledby"] in ids


def test_every_chart_has_words_and_data(page: str) -> None:
    found = payload(page)
    panels = [p for place in found["panels"].values() for p in place]
    assert len(found["panels"]) == 20 and len(panels) == 20 + 3 * 2, "distributions of three neurons"
    for panel in panels:
        columns = found["rows"][panel["rows"]]
        assert len({len(values) for values in columns.values()}) == 1
        assert set(panel["columns"]) <= set(columns) and panel["description"]
    # the same rows and specs are written once
    times = [p for p in panels if p["title"].endswith("over time")]
    assert len(times) == 4 and len({p["rows"] for p in times}) == 1
    assert len(found["specs"]) < len(panels)


def test_equal_parts_of_a_payload_are_shared() -> None:
    report = samples.report()
    panels = FIGURES["layers"].panels({"neurons": report["neurons"]})
    both = Payload()
    both.add([("", panels[0])])
    both.add([("a", panels[0]), ("b", panels[1])])
    found = json.loads(both.text())
    assert [len(found[k]) for k in ("specs", "rows")] == [2, 1]
    assert [p["label"] for p in found["panels"]["chart-2"]] == ["a", "b"]


def test_a_comparison_alone_makes_a_page(tmp_path: Path) -> None:
    runs = [
        Run(Path("c.json"), "comparison", samples.comparison()),
        Run(Path("s.json"), "experiment", samples.swept()),
    ]
    write_page({}, tmp_path / "c.html", runs)
    page = (tmp_path / "c.html").read_text()
    assert "reuse+w4m4" in page and "83.20" in page and "Beta and percentile of the allocation" in page
    titles = [p["title"] for place in payload(page)["panels"].values() for p in place]
    assert titles.count("Methods by score") == 2 and "Score of the test data" in titles
    assert [f.name for f in tmp_path.iterdir()] == ["c.html"]


def test_a_report_without_most_things_makes_a_page() -> None:
    report = samples.report(neurons=1)
    bare = copy.deepcopy(report) | {"figures": {}, "projections": []}
    bare["summary"] |= {
        "agreement": None,
        "kl": None,
        "flip_rate": None,
        "saturation": None,
        "state_energy": None,
    }
    bare["summary"]["state_bytes"] = dict.fromkeys(bare["summary"]["state_bytes"], 0)
    bare["neurons"][0] |= {"saturation": None, "flip_rate": None, "k": None, "over_time": {}, "stage": None}
    page = render_page(bare, "m")
    assert "None" not in re.sub(r"<script.*|<pre.*?</pre>", "", page, flags=re.S)
    older: Any = {key: value for key, value in bare.items() if key not in ("figures", "evaluations")}
    new = ("version", "arithmetic", "steps", "task", "state_words")
    older["summary"] = {key: value for key, value in bare["summary"].items() if key not in new}
    assert render_page(older, "m").split("<footer>")[0] == page.split("<footer>")[0]


def test_pages_are_the_same_for_the_same_report() -> None:
    assert render_page(samples.report(), "m") == render_page(samples.report(), "m")


def test_no_torch_is_needed() -> None:
    code = (
        "import sys; from report import samples; from pathlib import Path\n"
        "from ptq4snn.report.page import render_page; from ptq4snn.report import drawing, finished_run\n"
        "import ptq4snn.cli.report, ptq4snn.cli.figure\n"
        "render_page(samples.report(segmentation=True), 'm')\n"
        "heavy = {'torch', 'numpy', 'vl_convert'} & set(sys.modules); assert not heavy, heavy\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, env={"PYTHONPATH": ":".join(sys.path)})
