"""The data behind the paper's figures, one module each: computed once, when a model is quantized."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, cast

from ptq4snn.allocation.search import Trial
from ptq4snn.assemble import Assembly
from ptq4snn.cost.traffic import PlanCost
from ptq4snn.evaluation.figures.allocation import allocation
from ptq4snn.evaluation.figures.bridge import bridge_analysis
from ptq4snn.evaluation.figures.common import Data, rounded
from ptq4snn.evaluation.figures.distributions import distributions
from ptq4snn.evaluation.figures.membrane_cost import membrane_cost
from ptq4snn.evaluation.figures.memory import memory
from ptq4snn.evaluation.figures.segmentation import segmentation
from ptq4snn.network.plan import Plan
from ptq4snn.schema.figures import Figures

if TYPE_CHECKING:
    from ptq4snn.evaluation.fidelity import Fidelity
    from ptq4snn.prepare import Prepared

__all__ = ["make_figures"]


def make_figures(
    prepared: Prepared, assembly: Assembly, plan: Plan, found: Fidelity, trials: Sequence[Trial],
    cost: PlanCost,
) -> Figures:  # fmt: skip
    """Data by the figure's name; a figure that does not apply is left out."""
    weights = sum(p.weight.integers.numel() for p in assembly.lattice.projections.values())
    made = {
        "membrane-cost": membrane_cost(prepared.folded.discovery, weights, cost),
        "memory": memory(cost.resident),
        "distributions": distributions(prepared, assembly, plan),
        "bridge-analysis": bridge_analysis(assembly, plan),
        "allocation": allocation(prepared, assembly, plan),
        "sweep": sweep(trials),
        "segmentation": None if found.examples is None else segmentation(found.examples),
    }
    return cast(Figures, {name: rounded(data) for name, data in made.items() if data is not None})


def sweep(trials: Sequence[Trial]) -> Data | None:
    """The trials of (beta, P)."""
    rows = [
        {
            "beta": t.beta, "percentile": t.percentile, "kl": t.kl, "agreement": t.agreement,
            "average_bits": t.average_bits,
        }
        for t in trials
        if t.beta is not None
    ]  # fmt: skip
    return {"rows": rows} if rows else None
