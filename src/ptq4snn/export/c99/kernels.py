"""A group as one C function."""

from __future__ import annotations

from collections.abc import Callable

from ptq4snn.export.c99.carried import delay_lines, store_lines
from ptq4snn.export.c99.context import Context
from ptq4snn.export.c99.gather import gather_lines
from ptq4snn.export.c99.names import comment
from ptq4snn.export.c99.neuron import neuron_by_element, neuron_loops
from ptq4snn.export.c99.plan import Group
from ptq4snn.export.c99.pointwise import pointwise_value
from ptq4snn.export.c99.project import project_row, project_value
from ptq4snn.export.c99.rows import matmul_row, pool_row, row_value
from ptq4snn.export.c99.text import block, loop, uses
from ptq4snn.network import program as ops

__all__ = ["PARAMETERS", "function", "parameters"]

PARAMETERS = (("s->", "{n}_state *s", "s"), ("a->", "{n}_arena *a", "a"), ("in[", "const uint8_t *in", "in"))
Rows = Callable[[Context, Group, int, str], list[str]]
ROWS: dict[type[ops.Operation], Rows] = {ops.Project: project_row, ops.Pool: pool_row, ops.MatMul: matmul_row}
VALUES: dict[type[ops.Operation], Rows] = {
    ops.Project: project_value, ops.Pool: row_value, ops.MatMul: row_value,
}  # fmt: skip
EQUATIONS = {
    "project": "y = (W x << shift) + bias",
    "neuron": "A = x + leak V, S = A >= theta, V = round(reset(A))",
    "pool": "y = the sum or the maximum over a window",
    "gather": "y[e] = x[index[e]]",
    "combine": "y = the sum of coefficient * x + constant",
    "multiply": "y = a * b",
    "affine": "y = sign * x + shift",
    "clip": "y = min(max(x, low), high)",
    "choice": "y = the larger, the smaller, or a comparison",
    "matmul": "y = a b",
    "time_sum": "y = the sum of x over the steps",
    "delay": "y = x of the step before",
}


def function(ctx: Context, group: Group) -> list[str]:
    """The lines of the group's function; none where nothing is to be done."""
    root = ctx.model.program.operations[group.root]
    if isinstance(root, ops.Quantize):
        return []
    body = _body(ctx, group, root)
    for delay in ctx.plan.store_delays.get(group.root, []):
        body += [f"/* {comment(delay.name)}: for the next step */", *store_lines(ctx, delay)]
    if any("phase)" in line for line in body):
        body = [f"const uint32_t phase = {ctx.helpers.use('phase')}(s->steps - 1U);", *body]
    names = [ctx.model.program.operations[i] for i in group.members]
    notes = [f"   {comment(op.name)} ({op.kind}): {EQUATIONS[op.kind]}" for op in names]
    head = [f"/* operation {group.root}", *notes[:-1], f"{notes[-1]} */"]
    declared, _ = parameters(ctx, body)
    return [*head, f"static void {ctx.name}_op{group.root}({declared})", "{", *block(body), "}", ""]


def parameters(ctx: Context, body: list[str]) -> tuple[str, str]:
    """Declarations and names of what a function needs of state, arena and input."""
    text = "\n".join(body)
    used = [(d.format(n=ctx.name), name) for sign, d, name in PARAMETERS if sign in text]
    return ", ".join(d for d, _ in used) or "void", ", ".join(name for _, name in used)


def _body(ctx: Context, group: Group, root: ops.Operation) -> list[str]:
    if isinstance(root, ops.Delay):
        place = ctx.plan.places[root.output]
        return [*([place.clear()] if place.kind == "packed" else []), *delay_lines(ctx, root)]
    clear = [
        ctx.plan.places[v].clear()
        for v in (root.output, getattr(root, "potential", None))
        if v is not None and ctx.plan.places[v].kind == "packed"
    ]
    if isinstance(root, ops.Gather):
        return [*clear, *gather_lines(ctx, group, root)]
    if isinstance(root, ops.Neuron) and root.channel is not None:
        return [*clear, *neuron_by_element(ctx, group, root)]
    return [*clear, *_positions(ctx, group, root)]


def _positions(ctx: Context, group: Group, root: ops.Operation) -> list[str]:
    """The loop over positions: rows first, then channel by channel."""
    value = ctx.model.program.values[root.output]
    axes = next((a for a in map(_axes, (ctx.model.program.operations[i] for i in group.members)) if a), None)
    p = "p" if value.positions > 1 else "0"
    lines: list[str] = []
    each: list[str] = []
    for i in group.members:
        op = ctx.model.program.operations[i]
        if type(op) in ROWS:
            lines += ROWS[type(op)](ctx, group, i, p)
            each += VALUES[type(op)](ctx, group, i, p)
        elif not isinstance(op, (ops.Neuron, ops.TimeSum)):
            each += pointwise_value(ctx, group, i, p)
    if isinstance(root, ops.Neuron):
        lines += neuron_loops(ctx, group, root, p, each)
    else:
        lines += loop("c", value.channels, [*each, _store(ctx, group, root, p)])
    return _nest(lines, axes, value.positions)


def _store(ctx: Context, group: Group, root: ops.Operation, p: str) -> str:
    place = ctx.plan.places[root.output]
    if not isinstance(root, ops.TimeSum):
        return place.write(p, "c", f"y{root.output}")
    x = ctx.read(group, root.inputs[0], p, "c")
    if place.wide:
        ctx.wide.add(root.name)
    return place.write(p, "c", f"{place.word(p, 'c')} + {x}")


def _axes(op: ops.Operation) -> tuple[int, ...] | None:
    if isinstance(op, (ops.Project, ops.Pool)) and op.window is not None:
        return op.window.out_size
    return None


def _nest(body: list[str], axes: tuple[int, ...] | None, positions: int) -> list[str]:
    """Loops o0, o1 ... over the axes of positions; p is the number of the position."""
    if axes is None:
        if positions == 1:
            return ["{", *block(body), "}"]
        return loop("p", positions, body)
    counts = positions > 1 and uses(body, "p")
    lines = [*body, "p++;"] if counts else body
    for d in reversed(range(len(axes))):
        lines = loop(f"o{d}", axes[d], lines)
    return ["uint32_t p = 0;", *lines] if counts else lines
