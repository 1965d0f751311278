"""Programs that cannot be run are refused, whatever is wrong with them, before anything runs."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from runtime.handmade import (
    ONES,
    WINDOW,
    Change,
    base,
    change,
    change_quantize,
    made,
    number,
    output,
    program,
    value,
)
from runtime.programs import random_model

from ptq4snn.errors import BundleError
from ptq4snn.network.index import Index, Window, identity, window_taps
from ptq4snn.network.program import Input
from ptq4snn.network.program_json import program_from_json, program_to_json
from ptq4snn.runtime.parameters import InputGrid, Rescale
from ptq4snn.runtime.require import MAX_ELEMENTS, Refused, check_window


def drop(kind: str, name: str) -> Change:
    return lambda parts: parts[kind].pop(name) and None


def reorder(parts: dict[str, Any]) -> None:
    p = parts["program"]
    parts["program"] = replace(p, operations=(*p.operations[1:], p.operations[0]))


def shorten(parts: dict[str, Any]) -> None:
    p = parts["program"]
    parts["program"] = replace(p, operations=p.operations[:-1])


RESCALE = Rescale(ONES, ONES, 8, np.ones(3))
LONG, HUGE = np.ones(4, np.int64), 2**63
CASES: dict[str, Change] = {
    "steps none": program(steps=0),
    "steps many": program(steps=2**17),
    "steps odd": program(steps=True),
    "no operations": program(operations=()),
    "no outputs": program(outputs=()),
    "input shape": program(input=Input((0,), 0, None)),
    "input huge": program(input=Input((2**20, 2**20), 0, None)),
    "input text": program(input=Input(("8",), 0, None)),  # type: ignore[arg-type]
    "input axis": program(input=Input((8,), 5, None)),
    "input axes": program(input=Input((8,), 1, 1)),
    "input time": program(input=Input((8,), 0, 1)),
    "cycle": change("pool", inputs=(4,)),
    "self": change("pool", inputs=(3,)),
    "order": reorder,
    "unmade": shorten,
    "twice": change("pool", output=2),
    "no value": change("pool", output=99),
    "negative value": change("pool", inputs=(-1,)),
    "float value": change("pool", inputs=(2.0,)),
    "arity": change("pool", inputs=(2, 2)),
    "empty value": value(3, positions=0),
    "huge value": value(3, positions=2**30),
    "huge product": value(3, positions=2**25, channels=2**25),
    "time text": value(3, time="yes"),
    "time missing": value(5, time=False),
    "positions": value(5, positions=5),
    "channels": value(8, channels=4),
    "quantize index": lambda p: change_quantize(p, index=Index((8,), (2,))),
    "quantize count": lambda p: change_quantize(p, index=identity(7)),
    "quantize hole": lambda p: change_quantize(p, index=Index(numbers=(-2, *range(7)))),
    "quantize overflow": lambda p: change_quantize(p, index=Index((8,), (HUGE,), -7 * HUGE)),
    "quantize name": lambda p: change_quantize(p, name="other"),
    "quantize grid": number("projections", "conv", input=InputGrid(np.ones(3), np.zeros(3, np.int64))),
    "quantize zeros": number("projections", "conv", input=InputGrid(np.ones(2), np.zeros(1, np.int64))),
    "no grid": number("projections", "conv", input=None),
    "no projection": change("conv", name="other"),
    "groups": change("conv", groups=2),
    "groups none": change("conv", groups=0),
    "kernel": change("conv", window=replace(WINDOW, kernel=(3, 1), before=(1, 0), after=(1, 0))),
    "window size": change("conv", window=replace(WINDOW, size=(2, 3))),
    "window rank": change("conv", window=replace(WINDOW, stride=(1,))),
    "window stride": change("conv", window=replace(WINDOW, stride=(0, 1))),
    "window padding": change("conv", window=replace(WINDOW, before=(-1, 1))),
    "window huge padding": change("conv", window=replace(WINDOW, before=(2**40, 1))),
    "window dilation": change("conv", window=replace(WINDOW, dilation=(9, 9))),
    "window gone": change("conv", window=None),
    "window text": change("conv", window="3x3"),
    "weight": number("projections", "conv", weight=np.ones((3, 2, 3), np.int8)),
    "bias": number("projections", "conv", bias=LONG),
    "unit": number("projections", "conv", unit=np.ones(1)),
    "rescale": number("projections", "conv", rescale=replace(RESCALE, shifts=LONG)),
    "no neuron": drop("neurons", "lif"),
    "neuron twice": change("last", name="lif"),
    "neuron factor": change("lif", factor=2**40),
    "neuron channels": number("neurons", "lif", theta=LONG),
    "neuron widths": number("neurons", "lif", **dict.fromkeys(("bits", "zero", "low", "high"), LONG)),
    "neuron levels": number("neurons", "lif", low=ONES),
    "neuron wide levels": number("neurons", "lif", high=2**32 * ONES),
    "neuron thresholds": number("neurons", "lif", most=2, theta=0 * ONES),
    "neuron channel": change("lif", channel=Index(numbers=(3,) * 12)),
    "neuron channel hole": change("lif", channel=Index(numbers=(-1,) * 12)),
    "neuron channel count": change("lif", channel=identity(3)),
    "neuron element": change("lif", element=Index((12,), (2,))),
    "neuron shape": number("neurons", "lif", shape=(3, 3)),
    "neuron once": change("lif", once=True),
    "neuron again": change("last", once=False),
    "neuron potential size": value(13, channels=2),
    "dither scale": number("neurons", "lif", rounding="dither", settle_m=3 * ONES),
    "dither shift": number("neurons", "lif", rounding="dither", settle_n=17 * ONES),
    "pool how": change("pool", how="mean"),
    "pool padding": change("pool", window=replace(WINDOW, kernel=(1, 3), stride=(2, 1), after=(0, 1))),
    "pool both": change("pool", taps=(0,)),
    "pool neither": change("pool", window=None),
    "pool taps": change("pool", window=None, taps=(0, 1, 2, 4)),
    "pool taps low": change("pool", window=None, taps=(0, 1, 2, -2)),
    "pool taps count": change("pool", window=None, taps=(0, 1, 2)),
    "pool weights": change("pool", window=None, taps=(0, 1, 2, 3), weights=(1, 1, 1, 1)),
    "pool weights count": change("pool", how="sum", window=None, taps=(0, 1, 2, 3), weights=(1,)),
    "gather index": change("gather", index=Index((12,), (1,), 1)),
    "gather width": change("gather", width=0),
    "gather wide": change("gather", width=2**40),
    "gather count": change("gather", index=identity(11)),
    "gather low": change("gather", index=Index(numbers=(-2,) * 12)),
    "gather empty": change("gather", index=Index((12, 0), (1, 1))),
    "gather strides": change("gather", index=Index((12,), ())),
    "gather how": change("gather", how="min"),
    "combine coefficients": change("add", coefficients=(1,)),
    "combine large": change("add", coefficients=(2**40, 1)),
    "combine constant": change("add", constant=1.5),
    "combine overflow": change("add", coefficients=(2**31, 2**31)),
    "multiply one": change("times", inputs=(5,)),
    "multiply size": change("times", inputs=(5, 0)),
    "no mirror": drop("mirrors", "mirror"),
    "mirror channels": number("mirrors", "mirror", shifts=LONG),
    "clip order": change("clip", low=5, high=-5),
    "clip float": change("clip", low=0.5),
    "choice how": change("choice", how="xor"),
    "choice arity": change("choice", constant=None),
    "matmul groups": change("matmul", groups=3),
    "matmul sizes": change("matmul", inputs=(9, 9)),
    "matmul result": value(10, positions=3),
    "sum twice": change("sum", inputs=(1,)),
    "output value": output(0, value=99),
    "output index": output(0, index=Index((12,), (2,))),
    "output shape": output(0, shape=(4, 4)),
    "output hole": output(0, index=Index(numbers=(-1,) * 12)),
    "output axis": output(0, batch_axis=3),
    "output type": output(0, dtype="int8"),
    "output kind": output(0, kind="spikes"),
    "output scaling": output(0, scalings=(("pow", 2.0),)),
    "output zero scaling": output(0, scalings=(("div", 0.0),)),
    "output odd scaling": output(0, scalings=(("div",),)),
    "output infinite": output(0, scalings=(("mul", float("inf")),)),
    "output neuron": output(1, name="last"),
    "output projection": output(2, name="other"),
    "output channels": output(2, axis=-2),
    "output far axis": output(2, axis=-3),
}


def test_the_base_is_valid() -> None:
    model = made(base())
    assert model.program == program_from_json(program_to_json(model.program))


@pytest.mark.parametrize("case", CASES)
def test_refused(case: str) -> None:
    parts = base()
    CASES[case](parts)
    with pytest.raises(BundleError) as caught:
        made(parts)
    assert "\n" not in str(caught.value) and "make the bundle again" in str(caught.value)


def test_a_window_of_a_maximum_must_touch_the_image() -> None:
    """Against the table of taps, over many windows."""
    rng = np.random.default_rng(0)
    seen = set()
    for _ in range(3000):
        n, k, s, d = (int(rng.integers(1, m)) for m in (6, 5, 5, 4))
        before, after = (int(rng.integers(0, 7)) for _ in range(2))
        w = Window((n,), (k,), (s,), (before,), (after,), (d,))
        if w.out_size[0] < 1:
            continue
        whole = bool((window_taps(w) >= 0).any(1).all())
        seen.add(whole)
        try:
            check_window(w, n, w.out_size[0], full=True)
            assert whole
        except Refused:
            assert not whole
    assert seen == {True, False}


def test_no_index_is_unfolded_before_it_is_checked() -> None:
    """A few bytes that stand for 2^60 numbers cost nothing."""
    parts = base()
    change("gather", index=Index((2**30, 2**30), (0, 0)))(parts)
    with pytest.raises(BundleError, match="a size of its index"):
        made(parts)
    assert MAX_ELEMENTS <= 2**31


def test_random_models_are_valid() -> None:
    for seed in range(40):
        model = random_model(seed, 8)
        assert program_from_json(program_to_json(model.program)) == model.program


def test_sizes_that_multiply_to_absurd_counts_are_refused_at_once() -> None:
    """Their product has thousands of digits; it is never made."""
    from ptq4snn.runtime.require import check_index

    for sizes in ((2**31 - 1,) * 500, (2,) * 100_000):
        with pytest.raises(Refused, match="a size of an index"):
            check_index(Index(sizes, (0,) * len(sizes)), 4, 4, False, "an index")
