"""The paper's figures as experiments: data of the report of one run, or of the untouched model."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, cast

from ptq4snn.api import inspect
from ptq4snn.evaluation.record_metrics import Gallery
from ptq4snn.experiments.bench import Bench
from ptq4snn.pipeline import run
from ptq4snn.recipe import Recipe
from ptq4snn.report.figures import membrane_cost, segmentation
from ptq4snn.report.figures.common import rounded
from ptq4snn.schema.figure_types import MembraneCostData

__all__ = ["MAKERS", "OF_TEST_SAMPLES", "recipe_of"]

# the exponents and scores hang on weight scales and float statistics, not on how weights are rounded
RECIPE = Recipe.parse("paper+nearest+w4m4").replace(beta=0.8)


PICTURES = "segmentation-examples"
OF_TEST_SAMPLES = (PICTURES,)  # what else they are made of


def recipe_of(name: str) -> Recipe:
    """Pictures are of the network as the paper's tables have it, weights too."""
    return Recipe.parse("paper+w4m4") if name == PICTURES else RECIPE


def inspected_cost(bench: Bench, recipe: Recipe) -> MembraneCostData:
    """The cost of states from the model's shapes alone: no checkpoint and no quantization are needed."""
    few = next(iter(bench.drawn(recipe)))
    found = inspect(bench.model, few, bench.conditions.batch_axis)
    modules: dict[str, Any] = dict(bench.model.named_modules())
    return membrane_cost.data(found, sum(int(modules[n].weight.numel()) for n in found.projections))


def reported(bench: Bench, recipe: Recipe, name: str) -> Mapping[str, Any]:
    """A figure of the report of one run; without rows where it does not apply to the model."""
    figures = cast(dict[str, Any], run(bench.prepared(recipe), recipe).report["figures"])
    found: Mapping[str, Any] = figures.get(name, {"rows": []})
    return found


def pictured(bench: Bench, recipe: Recipe) -> Mapping[str, Any]:
    """The first test images, their labels, and what the float and the quantized network make of them; without
    rows where the network gives no label maps or there are none."""
    gallery = Gallery(bench.conditions.batch_axis)
    gallery.look("float", bench.float_model(), bench.test)
    gallery.look("quantized", run(bench.prepared(recipe), recipe), bench.test)
    found = gallery.examples("quantized", "float")
    return {"rows": []} if found is None else rounded(segmentation.data(found))


MAKERS: Mapping[str, Callable[[Bench, Recipe], Mapping[str, Any]]] = {
    "membrane-cost": inspected_cost,
    PICTURES: pictured,
    **{name: partial(reported, name=name) for name in ("distributions", "bridge-analysis", "allocation")},
}
