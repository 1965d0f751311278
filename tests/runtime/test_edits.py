"""Edits of a plan that comes from a file are checked before anything is built of them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from ptq4snn.network.edit import Edit
from ptq4snn.network.plan import OutputPlan, Plan
from ptq4snn.runtime.plan_check import check_plan
from ptq4snn.runtime.require import Refused

SOUND = Edit("plain", "block", 0, 0, 1, "plain", 0, (4, 2, 3), 0, ((1,), (0,), (1,), (1,)), ("block.weight",))
PLAN = Plan({}, "integer", 4, (), {}, {}, (OutputPlan(None, 0),), {}, edits=(SOUND,))


def test_sound_edits_pass_and_come_back_from_a_file() -> None:
    check_plan(PLAN)
    assert Plan.from_dict(PLAN.to_dict()) == PLAN
    assert "edits" not in replace(PLAN, edits=()).to_dict()  # what most plans have none of is not written


@pytest.mark.parametrize(
    "spoilt",
    [
        {"kind": "else"}, {"scope": 3}, {"child": "a.b"}, {"child": ""}, {"place": -1},
        {"turn": 1}, {"turn": -1}, {"period": 0}, {"operand": 2}, {"axis": 1}, {"shape": ()},
        {"shape": (2**40,) * 3}, {"shape": (4.0, 2, 3)},
        {"shape": (4,)}, {"settings": ()}, {"settings": ((1,), (-1,), (1,), (1,))}, {"parameters": (1,)},
        {"kind": "shortcut"},
    ],
)  # fmt: skip
def test_spoilt_edits_are_refused(spoilt: dict[str, Any]) -> None:
    with pytest.raises(Refused):
        check_plan(replace(PLAN, edits=(replace(SOUND, **spoilt),)))


def test_two_edits_of_one_name_and_unknown_fields_are_refused() -> None:
    with pytest.raises(Refused):
        check_plan(replace(PLAN, edits=(SOUND, SOUND)))
    with pytest.raises(ValueError, match="other fields"):
        Edit.from_dict({**SOUND.to_dict(), "more": 1})
