"""snnTorch models, with their loops over time, are rounded in their own forward."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest
import torch

pytest.importorskip("snntorch", reason="snnTorch is not installed: `make test` installs it")

from ptq4snn.pipeline import prepare, run
from ptq4snn.recipe import Recipe

MODELS = Path(__file__).parents[1] / "frameworks" / "snn_models.py"
spec = importlib.util.spec_from_file_location("snn_models", MODELS)
assert spec is not None and spec.loader is not None
snn_models = importlib.util.module_from_spec(spec)
spec.loader.exec_module(snn_models)


@pytest.mark.parametrize("rounding", ["gptq", "adaround", "brecq"])
@pytest.mark.parametrize("name", sorted(snn_models.ALL))
def test_rounding(name: str, rounding: str) -> None:
    recipe = Recipe(
        rounding=rounding,
        weights=3,
        coupling="none",
        allocation="uniform",
        holdout=16,
        iterations=5,
        weight_scales="error",
    )
    prepared = prepare(snn_models.ALL[name](), snn_models.inputs(64), recipe)
    q = run(prepared, recipe)
    (found,) = prepared.cache.rounded.values()
    free = {n for n, p in prepared.folded.discovery.projections.items() if p.reads != "data"}
    assert set(found.integers) == free
    assert all(torch.equal(q.integers[n].weight, found.integers[n]) for n in free)
