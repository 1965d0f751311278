"""The page in a real headless Chromium: it draws, sorts, filters, and asks for nothing."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from report import samples
from report.browser import Visit, chromium

from ptq4snn.report.finished_run import Run
from ptq4snn.report.page import write_page

LAYERS = "#layers-table-1"
HOSTILE = "</script><img src=x onerror=alert(1)>"


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with chromium() as found:
        yield found


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A page of every kind."""
    folder = tmp_path_factory.mktemp("pages")
    mixed = samples.report(neurons=9, channels=230, segmentation=True, hostile=HOSTILE)
    mixed["neurons"][4] |= {"saturation": None, "k": None}
    pages: dict[str, tuple[dict[str, Any], list[Run]]] = {
        "mixed": (mixed, []),
        "uniform": (samples.report(recipe="paper+uniform+w4m4", neurons=30), []),
        "several": (
            {},
            [
                Run(Path("c"), "comparison", samples.comparison()),
                Run(Path("s"), "experiment", samples.swept()),
            ],
        ),
    }
    report: Any
    for name, (report, added) in pages.items():
        write_page(report, folder / f"{name}.html", added)
    return {name: folder / f"{name}.html" for name in pages}


@pytest.fixture(scope="module")
def visit(browser: Any, files: dict[str, Path]) -> Iterator[Visit]:
    """One page for the tests that do not mind what others did to it."""
    found = Visit(browser, files["mixed"])
    yield found
    found.close()


@pytest.mark.parametrize(("name", "charts"), [("mixed", 20), ("uniform", 15), ("several", 5)])
def test_it_draws_every_chart_in_silence(
    browser: Any, files: dict[str, Path], name: str, charts: int
) -> None:
    visit = Visit(browser, files[name], width=360)
    assert visit.said == [], "no errors, no warnings, no dialogs"
    assert {url.split(":")[0] for url in visit.asked} <= {"file", "data"}
    assert sum(url.startswith("file:") for url in visit.asked) == 1
    drawn = visit.read(
        "[...document.querySelectorAll('.chart')].map(c => [c.querySelectorAll('svg').length,"
        " c.querySelectorAll('svg [class*=mark-] > *').length,"
        " c.querySelector('svg').getBoundingClientRect().right])"
    )
    assert len(drawn) == charts
    assert all(svgs == 1 and marks > 3 for svgs, marks, _ in drawn)
    # a phone: the page does not scroll sideways, tables scroll in their own box
    assert visit.read("document.documentElement.scrollWidth") <= 360
    assert all(right <= 360 for *_, right in drawn)
    visit.close()


def test_charts_have_names_for_screen_readers(visit: Visit) -> None:
    session = visit.page.context.new_cdp_session(visit.page)
    nodes = session.send("Accessibility.getFullAXTree")["nodes"]

    def names(role: str) -> list[str]:
        found = [n for n in nodes if n.get("role", {}).get("value") == role and not n["ignored"]]
        return [n.get("name", {}).get("value", "") for n in found]

    charts = names("graphics-document") or names("GraphicsDocument")
    assert len(charts) == 20 and all(len(name) > 30 for name in charts)
    assert any("Score ranking. Channels from the highest score" in name for name in charts)
    assert names("main") and names("navigation") == ["Contents"] and names("banner") and names("contentinfo")
    assert len(names("figure")) == 20 + 2
    assert all(names("button")) and all(names("combobox")) and all(names("img") or [1])


def cells(visit: Visit, column: int) -> list[str]:
    """Sort values of the rows that are seen, as they stand."""
    script = f"""[...document.querySelectorAll('{LAYERS} tbody tr')].filter(r => !r.hidden)
        .map(r => r.cells[{column}].dataset.value)"""
    found: list[str] = visit.read(script)
    return found


def titles(visit: Visit) -> list[str]:
    return [t.strip() for t in visit.page.locator(f"{LAYERS} thead button").all_inner_texts()]


def test_every_column_sorts_both_ways(visit: Visit) -> None:
    for column, title in enumerate(titles(visit)):
        head = visit.page.locator(f"{LAYERS} thead th").nth(column)
        for direction in ("ascending", "descending"):
            head.locator("button").click()
            assert head.get_attribute("aria-sort") == direction
            assert visit.page.locator(f"{LAYERS} [aria-sort]").count() == 1
            values = cells(visit, column)
            known = [v for v in values if v]
            assert values == known + [""] * (len(values) - len(known)), "what is not known comes last"
            if column < 3:
                order = sorted(known, reverse=direction == "descending")
            else:
                order = sorted(known, key=float, reverse=direction == "descending")
            assert known == order, title
    assert "" in cells(visit, titles(visit).index("Saturated %"))


def test_it_sorts_and_filters_by_keyboard(browser: Any, files: dict[str, Path]) -> None:
    visit = Visit(browser, files["mixed"])
    page = visit.page
    page.keyboard.press("Tab")
    assert visit.read("document.activeElement.className") == "skip"
    page.locator(f"{LAYERS} [data-search]").focus()
    wanted = titles(visit).index("Flipped %")
    for _ in range(4 + wanted):  # two selects, the table's box, and the columns before
        page.keyboard.press("Tab")
    assert visit.read("document.activeElement.textContent") == "Flipped %"
    outline = visit.read("getComputedStyle(document.activeElement).outlineStyle")
    assert outline == "solid", "the focus is seen"
    page.keyboard.press("Enter")
    first = cells(visit, wanted)
    assert first == sorted(first, key=float)
    page.keyboard.press("Space")
    assert cells(visit, wanted) == first[::-1]

    page.locator(f"{LAYERS} [data-search]").focus()
    page.keyboard.type("STAGE2.")
    names = cells(visit, 0)
    assert names and all(n.startswith("stage2.") for n in names)
    status = page.locator(f"{LAYERS} [role=status]")
    assert status.inner_text() == f"{len(names)} of 9 layers"
    page.keyboard.press("Control+a")
    page.keyboard.press("Delete")
    page.keyboard.press("Tab")
    page.keyboard.press("ArrowDown")  # the first kind
    kind = page.locator(f"{LAYERS} select").first.input_value()
    assert kind and set(cells(visit, 1)) == {kind}
    page.locator(f"{LAYERS} select").nth(1).select_option("stage1")
    both = list(zip(cells(visit, 1), cells(visit, 2), strict=True))
    assert set(both) <= {(kind, "stage1")} and status.inner_text() == f"{len(both)} of 9 layers"
    visit.close()


def test_the_theme_follows_the_system_and_the_button(browser: Any, files: dict[str, Path]) -> None:
    visit = Visit(browser, files["mixed"], scheme="dark")

    def look() -> tuple[str, str]:
        back = visit.read("getComputedStyle(document.body).backgroundColor")
        text = visit.read("document.querySelector('.chart svg .role-axis-label text').getAttribute('fill')")
        return back, text

    dark = look()
    assert dark == ("rgb(18, 23, 30)", "#a3adba")
    heights = "[...document.querySelectorAll('.chart')].map(c => c.getBoundingClientRect().height)"
    before = visit.read(heights)
    visit.page.get_by_role("button", name="Light theme").click()
    visit.drawn()
    assert look() == ("rgb(247, 247, 245)", "#596372")
    assert visit.read(heights) == before, "nothing jumps"
    visit.page.get_by_role("button", name="Dark theme").click()
    visit.drawn()
    assert look() == dark and visit.said == []
    visit.close()


def test_the_reader_chooses_a_neuron(visit: Visit) -> None:
    select = visit.page.get_by_label("Neuron")
    caption = visit.page.locator("#distributions figcaption").first
    marks = "document.querySelector('#distributions .chart svg').innerHTML"
    assert caption.inner_text().find(select.input_value()) > 0, "what is chosen is what is shown"
    seen, options = visit.read(marks), select.locator("option").all_inner_texts()
    assert len(options) == 3
    other = next(o for o in options if o != select.input_value())
    select.select_option(other)
    visit.drawn()
    assert other in caption.inner_text() and visit.read(marks) != seen
    assert other in (visit.page.locator("#distributions .chart").first.get_attribute("aria-label") or "")
    blend = visit.page.locator("#blend")
    blend.focus()
    for _ in range(4):
        visit.page.keyboard.press("ArrowLeft")
    assert visit.read("getComputedStyle(document.querySelector('.stack img + img')).opacity") == "0.8"
    assert visit.said == []


def test_a_charts_data_is_a_table(visit: Visit) -> None:
    figure = visit.page.locator("#bridge figure").nth(1)
    figure.locator("summary").click()
    figure.locator("tbody tr").first.wait_for()  # the page fills a table when it is opened
    assert figure.locator("tbody tr").count() == 200
    assert "200 of 230 rows; the JSON has all." in figure.inner_text()
    memory = visit.page.locator("#memory figure").first
    memory.locator("summary").click()
    memory.locator("tbody tr").first.wait_for()
    assert memory.locator("thead th").all_inner_texts() == ["part", "network", "bytes", "size"]
    assert memory.locator("tbody tr").first.inner_text().split("\t")[:2] == ["total", "float32"]
