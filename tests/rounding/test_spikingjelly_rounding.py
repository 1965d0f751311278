"""SpikingJelly models are rounded in their own forward, whole sequences or step by step."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest
import torch

pytest.importorskip("spikingjelly", reason="runs from test_spikingjelly_generations.py")

from ptq4snn.pipeline import prepare, run
from ptq4snn.recipe import Recipe

MODELS = Path(__file__).parents[1] / "frameworks" / "sj_models.py"
spec = importlib.util.spec_from_file_location("sj_models", MODELS)
assert spec is not None and spec.loader is not None
sj_models = importlib.util.module_from_spec(spec)
spec.loader.exec_module(sj_models)
NETS = sj_models.all_nets()


@pytest.mark.parametrize("rounding", ["gptq", "adaround", "brecq"])
@pytest.mark.parametrize("name", sorted(NETS))
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
    prepared = prepare(NETS[name](), sj_models.inputs(64), recipe)
    q = run(prepared, recipe)
    (found,) = prepared.cache.rounded.values()
    free = {n for n, p in prepared.folded.discovery.projections.items() if p.reads != "data"}
    assert set(found.integers) == free
    assert all(torch.equal(q.integers[n].weight, found.integers[n]) for n in free)
