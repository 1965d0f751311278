"""What the network costs: bytes of flash and RAM, operations of a step, and whether 64-bit numbers occur."""

from __future__ import annotations

from dataclasses import dataclass

from ptq4snn.export.c99.context import Context
from ptq4snn.export.c99.text import size_of
from ptq4snn.network.program import Delay, MatMul, Neuron, Project, TimeSum
from ptq4snn.runtime.state import rows_of

__all__ = ["Figures", "figures_of", "state_bytes"]

PER_LINE = 20.0  # bytes of Thumb-2 code for a line of C, at -O2; measured on the embedded default


@dataclass(frozen=True)
class Figures:
    """Bytes and counts; `code` is an estimate, `additions` follow the given or assumed densities."""

    weights: int
    tables: int
    code: int
    state: int
    arena: int
    products: int  # dense multiplications of a step
    additions: int  # that are left when zeros are passed over
    updates: int  # of neurons
    wide: tuple[str, ...]  # operations with 64-bit numbers

    @property
    def flash(self) -> int:
        return self.weights + self.tables + self.code

    @property
    def ram(self) -> int:
        return self.state + self.arena


def state_bytes(ctx: Context) -> int:
    total = 4
    for op in ctx.model.program.operations:
        if isinstance(op, Delay) or (isinstance(op, Neuron) and not op.once):
            rows = rows_of(ctx.model, op)
            total += rows.count * rows.size
        elif isinstance(op, TimeSum):
            place = ctx.plan.places[op.output]
            total += place.value.positions * place.value.channels * size_of(place.type)
    return total


def figures_of(ctx: Context, code: list[str], densities: dict[str, float]) -> Figures:
    program = ctx.model.program
    products, additions, updates = 0, 0.0, 0
    for op in program.operations:
        value = program.values[op.output]
        if isinstance(op, Project):
            own = value.positions * ctx.model.projections[op.name].weight.size
            products += own
            additions += own * (densities.get(op.name, 1.0) if ctx.paths[op.name] == "event" else 1.0)
        elif isinstance(op, MatMul):
            own = value.positions * value.channels * program.values[op.inputs[0]].channels
            products += own
            additions += own * densities.get(op.name, 1.0)
        elif isinstance(op, Neuron):
            updates += value.positions * value.channels
    lines = sum(
        line.strip() not in ("", "{", "}") and not line.lstrip().startswith(("/*", "#")) for line in code
    )
    return Figures(
        weights=sum(4 * len(packed.words) for _, packed in ctx.weights.values()),
        tables=ctx.tables.bytes(code),
        code=round(PER_LINE * lines),
        state=state_bytes(ctx),
        arena=ctx.plan.arena,
        products=products,
        additions=round(additions),
        updates=updates,
        wide=tuple(sorted(ctx.wide)),
    )
