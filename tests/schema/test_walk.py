"""The walk finds every key that is missing, unknown or of another type."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import pytest
from report import samples
from schema.walk import differences

from ptq4snn.schema.comparison_types import ComparisonData
from ptq4snn.schema.report_types import Report

SAMPLE = samples.report(neurons=2, channels=3, pairs=1, segmentation=True)


def objects(value: Any) -> Iterator[dict[str, Any]]:
    """Every object in a JSON value; of a list the first."""
    if isinstance(value, dict):
        yield value
        for part in value.values():
            yield from objects(part)
    elif isinstance(value, list) and value:
        yield from objects(value[0])


def test_the_synthetic_report_has_the_types_of_a_real_one() -> None:
    assert differences(SAMPLE, Report) == []
    assert differences(samples.comparison(), ComparisonData) == []


def test_every_lost_or_new_or_other_value_is_found() -> None:
    report = copy.deepcopy(SAMPLE)
    free = [report["summary"]["recipe"], report["figures"]]  # any keys; any of the figures
    for found in objects(report):
        if any(found is f for f in free) or all(k.isdigit() for k in found) or "stage1" in found:
            continue  # {bits: share}, {stage: ...}
        for key in [*found]:
            value = found.pop(key)
            told = [d.rpartition(".")[2] for d in differences(report, Report)]
            optional = (
                found.get("axis") == "batch" or "carried_states" in found
            )  # a model that is not quantized
            assert told == [f"{key}: missing"] or (optional and key in ("this", "logical", "weight_bytes"))
            found[key] = object()
            assert len(differences(report, Report)) == 1, key
            found[key] = value
        found["strange"] = 1
        assert any(d.endswith("strange: unknown") for d in differences(report, Report))
        del found["strange"]
    assert differences(report, Report) == []


@pytest.mark.parametrize(("value", "kind"), [(True, int), (1.0, int), ("1", float), (None, float), (1, str)])
def test_numbers_are_told_apart(value: Any, kind: Any) -> None:
    assert len(differences(value, kind)) == 1


def test_a_whole_number_is_a_float() -> None:
    assert differences(1, float) == [] == differences(None, float | None)
