"""docs/format.md's tables name the keys of the report's types: all of them, and no others."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Literal, get_args, get_origin, get_type_hints, is_typeddict

import pytest
from schema.walk import keys

from ptq4snn.schema import figure_types as figures
from ptq4snn.schema import report_types as report
from ptq4snn.schema import score_types as scores

TEXT = (
    (Path(__file__).parents[2] / "docs" / "format.md")
    .read_text(encoding="utf-8")
    .partition("## The report")[2]
)
NAMED = re.compile(r"`([^`]+)`")


def table(head: str) -> dict[str, str]:
    """{key: content} of the table whose first heading is `head`."""
    lines = TEXT.partition(f"| {head} |")[2].splitlines()[2:]
    found: dict[str, str] = {}
    for line in lines:
        if not line.startswith("|"):
            break
        first, content = (cell.strip() for cell in line.strip("|").split(" | ", 1))
        found |= dict.fromkeys(NAMED.findall(first), content)
    return found


def inner(kind: Any) -> list[Any]:
    """The objects inside of a list, of a dict or beside None."""
    if is_typeddict(kind):
        return [kind]
    return [found for part in get_args(kind) for found in inner(part)]


def words(kind: Any) -> set[str]:
    """The words that a value can be."""
    if get_origin(kind) is Literal:
        return set(get_args(kind))
    parts = get_type_hints(kind).values() if is_typeddict(kind) else get_args(kind)
    return {word for part in parts for word in words(part)}


@pytest.mark.parametrize(
    ("head", "kind"),
    [
        ("key", report.Report),
        ("key of `summary`", report.Summary),
        ("key of a neuron", report.Neuron),
        ("key of a projection", report.Projection),
        ("figure", figures.Figures),
    ],
)
def test_a_table_has_the_keys_of_its_type(head: str, kind: Any) -> None:
    assert set(table(head)) == keys(kind)


@pytest.mark.parametrize(
    ("head", "key"),
    [
        ("key", "trials"), ("key", "silent"), ("key of `summary`", "weight_bytes"),
        ("key of `summary`", "state_bytes"), ("key of `summary`", "state_words"),
        ("key of `summary`", "state_packets"), ("key of a neuron", "k"), ("key of a neuron", "over_time"),
    ],
)  # fmt: skip
def test_what_stands_inside_a_key_is_told_beside_it(head: str, key: str) -> None:
    kinds = {"key": report.Report, "key of `summary`": report.Summary, "key of a neuron": report.Neuron}
    (kind,) = inner(get_type_hints(kinds[head])[key])
    assert keys(kind) <= set(NAMED.findall(table(head)[key]))


@pytest.mark.parametrize("name", sorted(keys(figures.Figures)))
def test_a_figure_tells_its_keys_and_nothing_else(name: str) -> None:
    """But for what a key can be, and an equation."""
    kind = get_type_hints(figures.Figures)[name]
    (row,) = inner(get_type_hints(kind)["rows"])
    wanted = (keys(kind) | keys(row)) - {"rows"}
    for part in (*get_type_hints(kind).values(), *get_type_hints(row).values()):
        wanted |= {key for one in inner(part) for key in keys(one)}
    told = set(NAMED.findall(table("figure")[name]))
    assert wanted <= told
    assert {w for w in told - wanted if w.isidentifier()} <= words(kind) | {"independent"}


def test_an_evaluation_is_told() -> None:
    told = set(NAMED.findall(TEXT.partition("An evaluation has")[2]))
    assert keys(report.Evaluation) | keys(scores.Metrics) <= told
