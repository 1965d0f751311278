"""Programs in bundles: the same when loaded, the same bytes when saved twice, long lists beside the JSON."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from lowering.small import between, images, program_of, quantized
from oracles.simulation import check_same
from torch.nn import functional as F

import ptq4snn
from ptq4snn.bundle.format import read_bundle, write_bundle
from ptq4snn.errors import BundleError
from ptq4snn.network.program import Gather, Pool


def test_saved_and_loaded(tmp_path: Path) -> None:
    """Windows over positions and channels, and a padded sum: long lists of numbers, -1 among them."""
    model = between(lambda x: F.pad(F.max_pool3d(x, (3, 3, 1), 1, (1, 1, 0)), [1, 0]) + F.pad(x, [0, 1]))
    q = quantized(model, images())
    path = tmp_path / "net.ptq"
    q.save(path)
    again = ptq4snn.load(path, model)
    assert again.program == q.program and again.not_lowered == ""
    check_same(again, program_of(again), images(3, seed=1))
    again.save(tmp_path / "again.ptq")
    assert (tmp_path / "again.ptq").read_bytes() == path.read_bytes()
    wide = next(o.index for o in program_of(q).operations if isinstance(o, Gather) and o.width == 3)
    assert wide.numbers is not None and len(wide.numbers) == 12  # the same channels of every position
    assert (wide.sizes, wide.strides, wide.count) == ((64,), (4,), 768)
    bundle = read_bundle(path)
    stored = [bundle.integers[n].values for n in bundle.integers if n.startswith("program/")]
    assert any(values.size == 4 * 72 and int(values.min()) == -1 for values in stored)  # padded


def test_upsampling_is_saved_axis_by_axis(tmp_path: Path) -> None:
    model = between(
        lambda x: F.interpolate(x.flatten(0, 1), scale_factor=2, mode="bilinear").view(3, -1, 4, 16, 16)
    )
    q = quantized(model, images())
    pool = next(o for o in program_of(q).operations if isinstance(o, Pool))
    assert pool.window is None and pool.taps is None and pool.axes is not None
    assert [(a.size, a.kernel, len(a.taps), sum(a.weights[:2])) for a in pool.axes] == [(8, 2, 32, 4)] * 2
    taps, weights = pool.table(256)
    assert taps.shape == (256, 4) and weights is not None and set(weights.sum(1).tolist()) == {16}
    assert taps[17].tolist() == [0, 1, 8, 9] and weights[17].tolist() == [9, 3, 3, 1]  # row 1, column 1
    q.save(tmp_path / "net.ptq")
    assert ptq4snn.load(tmp_path / "net.ptq", model).program == q.program


@pytest.mark.parametrize("scalings", [[["div", 0]], [["mul"]], [["root", 2]], [3], "steps"])
def test_outputs_that_cannot_be_scaled(tmp_path: Path, scalings: object) -> None:
    model = between(lambda x: x)
    path = tmp_path / "net.ptq"
    quantized(model, images()).save(path)
    bundle = read_bundle(path)
    bundle.plan["program"]["outputs"][0]["scalings"] = scalings
    write_bundle(path, bundle.plan, bundle.integers, bundle.floats)
    for load in (lambda: ptq4snn.load(path, model), lambda: ptq4snn.runtime.load(path)):
        with pytest.raises(BundleError, match=r"output 0: .*scaling"):
            load()


@pytest.mark.parametrize("program", [3, {"steps": 3}, {"values": []}, "text"])
def test_a_program_that_is_none(tmp_path: Path, program: Any) -> None:
    model = between(lambda x: x)
    path = tmp_path / "net.ptq"
    quantized(model, images()).save(path)
    bundle = read_bundle(path)
    write_bundle(path, {**bundle.plan, "program": program}, bundle.integers, bundle.floats)
    for load in (lambda: ptq4snn.load(path, model), lambda: ptq4snn.runtime.load(path)):
        with pytest.raises(BundleError, match="its program is incomplete"):
            load()


def test_lowering_leaves_the_model_alone() -> None:
    """No state is left behind, and no random number is drawn."""
    q = quantized(between(lambda x: x), images())
    before, expected = torch.get_rng_state(), q(images(2, seed=1))
    from ptq4snn.lowering import lower

    assert lower(q, images()) == q.program
    assert torch.equal(torch.get_rng_state(), before)
    assert torch.equal(q(images(2, seed=1)), expected)
