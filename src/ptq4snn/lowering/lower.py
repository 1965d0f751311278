"""Follow a quantized model's forward pass and write down the integer program that it is."""

from __future__ import annotations

from collections import Counter
from math import prod
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from ptq4snn.discovery.graph import Graph, Node, NodeKind
from ptq4snn.discovery.mirror import Mirror
from ptq4snn.discovery.operations import rules_by_name
from ptq4snn.discovery.record import FACTORIES, FILLED, record
from ptq4snn.errors import UnsupportedOperation, first_line
from ptq4snn.frameworks import Shell
from ptq4snn.frameworks.compound import Before
from ptq4snn.heap import trim_behind
from ptq4snn.lowering import logic, lower_arithmetic, lower_pooling, lower_shaping, products
from ptq4snn.lowering.builder import Builder
from ptq4snn.lowering.delays import Loop, close_loops, lower_before
from ptq4snn.lowering.lower_outputs import lower_output
from ptq4snn.lowering.neurons import NeuronRun, lower_neuron
from ptq4snn.lowering.numbering import NARROW
from ptq4snn.lowering.operands import first_argument
from ptq4snn.lowering.ordering import ordered
from ptq4snn.lowering.projections import lower_mirror, lower_projection
from ptq4snn.lowering.tracked import INPUT, Constant, Fact, Refused, Tracked
from ptq4snn.lowering.trimming import trimmed
from ptq4snn.modules.projection import QuantProjection
from ptq4snn.network.program import Input, Program, Value
from ptq4snn.numerics.device import exact_arithmetic

if TYPE_CHECKING:
    from ptq4snn.modules.quantized import QuantizedModel

__all__ = ["Lowering", "lower"]

BATCH = 2  # two samples show where the batch axis is
RULES: dict[str, Any] = rules_by_name(
    lower_shaping.RULES | lower_arithmetic.RULES | logic.RULES | products.RULES | lower_pooling.RULES
)
MODULES: dict[str, Any] = {
    "projection": lower_projection, "neuron": lower_neuron, "norm": lower_mirror, "before": lower_before,
}  # fmt: skip


def classify(_name: str, module: nn.Module) -> NodeKind | None:
    if isinstance(module, QuantProjection):
        return "projection"
    if isinstance(module, Mirror):
        return "norm"
    if isinstance(module, Before):
        return "before"
    return "neuron" if isinstance(module, Shell) else None


def lower(q: QuantizedModel, sample: Tensor, batch_axis: int = 0) -> Program:
    """The program of a quantized model, found by following `sample` (a batch) through it.

    Raises UnsupportedOperation, which names what no program can express and where it is.
    """
    if q.plan.arithmetic != "integer" or any(p.bits is None for p in q.plan.projections.values()):
        raise UnsupportedOperation("a model with float arithmetic or float weights has no integer program")
    if q.plan.excluded:
        names = ", ".join(f"'{n}'" for n in q.plan.excluded[:4])
        raise UnsupportedOperation(f"excluded parts stay float ({names}), and no integer program holds them")
    batch_axis %= sample.dim()
    index = torch.arange(BATCH, device=sample.device) % sample.shape[batch_axis]
    sample = sample.index_select(batch_axis, index)
    q.clock.start()
    q.reset_state()
    try:
        with exact_arithmetic(sample.device), torch.random.fork_rng(devices=[]):
            graph, _ = record(q.model, sample, classify)
    finally:
        q.reset_state()
    return _lower(q, graph, tuple(sample.shape), batch_axis)


def _lower(q: QuantizedModel, graph: Graph, shape: tuple[int, ...], batch_axis: int) -> Program:
    """Try where time is in the input: nowhere, then on each axis of its length. Wrong places fail soon."""
    steps = _steps(q, graph)
    places = [None, *(d for d, n in enumerate(shape) if d != batch_axis and n == steps > 1)]
    failures: list[tuple[int, Exception]] = []
    for place in places:
        w = Lowering(q, graph, steps, shape, batch_axis, place)
        try:
            return w.run()
        except UnsupportedOperation as why:
            failures.append((w.at, why))
    raise max(failures, key=lambda f: f[0])[1]


def _steps(q: QuantizedModel, graph: Graph) -> int:
    """Time steps of this pass: the most that a neuron runs on samples of its own."""
    return max(_total_steps(q, graph).values(), default=1)


def _total_steps(q: QuantizedModel, graph: Graph) -> Counter[str]:
    total: Counter[str] = Counter()
    for node in graph.nodes:
        if node.kind == "neuron":
            shape = graph.values[first_argument(node)].shape
            lead = len(shape) - len(q.plan.neurons[node.target].layout.shape)
            if shape[lead - 1] == BATCH:
                total[node.target] += shape[0] if lead == 2 else 1
    return total


class Lowering:
    """One walk over the recorded graph, with time on the axis `time_axis` of the input."""

    def __init__(
        self, q: QuantizedModel, graph: Graph, steps: int, shape: tuple[int, ...], batch_axis: int,
        time_axis: int | None,
    ) -> None:  # fmt: skip
        self.plan, self.graph = q.plan, graph
        self.modules = dict(q.model.named_modules())
        self.shape, self.batch_axis, self.time_axis = shape, batch_axis, time_axis
        self.facts: dict[int, Fact] = {}
        self.runs: dict[str, NeuronRun] = {}
        self.loops: dict[str, Loop] = {}  # by the module that reads the step before
        self.total_steps = _total_steps(q, graph)
        self.potential_read = self._potentials()
        self.at = 0
        kept = [n for d, n in enumerate(shape) if d not in (batch_axis, time_axis)]
        self.input = Input(tuple(kept), batch_axis, time_axis)
        self.frame = Value(1, prod(kept), time_axis is not None)
        self.builder = Builder(steps, BATCH, self.frame)

    def _potentials(self) -> dict[str, bool]:
        """Neurons whose membrane is read by something else than themselves."""
        own = {v: n.target for n in self.graph.nodes if n.kind == "neuron" for v in n.outputs[1:]}
        read = dict.fromkeys(self.plan.neurons, False)
        for node in self.graph.nodes:
            for v in node.inputs:
                if v in own and node.target != own[v]:
                    read[own[v]] = True
        for v in self.graph.outputs:
            if v in own:
                read[own[v]] = True
        return read

    def run(self) -> Program:
        for v in self.graph.values:
            if v.name is not None and v.name != "result":
                self.facts[v.id] = self._input() if v.name == "input" else Constant(v.data)
        for at, node, unread in self.graph.visits():
            self.at = at
            self.facts.update(zip(node.outputs, self._visit(node), strict=True))
            for value in unread:  # numbers are as large as the tensors: free them
                self.facts.pop(value, None)
            if node.kind in MODULES:
                trim_behind()
        self.at = len(self.graph.nodes)
        self._check_steps()
        try:
            close_loops(self)
        except Refused as why:
            raise UnsupportedOperation(f"the model {why}") from why
        outputs = tuple(lower_output(self, i, self.facts[v]) for i, v in enumerate(self.graph.outputs))
        b = self.builder
        program = Program(self.plan.steps, self.input, tuple(b.values), tuple(b.operations), outputs)
        return ordered(trimmed(program))

    def _input(self) -> Tracked:
        """Numbers of the input: batch and time at their axes, the rest row-major."""
        order = [d for d in (self.time_axis, self.batch_axis) if d is not None]
        order += [d for d in range(len(self.shape)) if d not in order]
        kind = torch.int32 if prod(self.shape) < NARROW else torch.int64
        numbers = torch.arange(prod(self.shape), dtype=kind).reshape([self.shape[d] for d in order])
        return Tracked(INPUT, numbers.permute([order.index(d) for d in range(len(order))]), "data")

    def _visit(self, node: Node) -> list[Fact]:
        self.builder.scope = node.scope
        try:
            return self._lower(node, [self.facts[v] for v in node.inputs])
        except Refused as why:
            raise UnsupportedOperation(f"{_place(node)} {why}") from why
        except (RuntimeError, ValueError, TypeError, IndexError, KeyError) as why:
            reason = first_line(why)
            raise UnsupportedOperation(
                f"{_place(node)} is called in a way that is not known: {reason}"
            ) from why

    def _lower(self, node: Node, facts: list[Fact]) -> list[Fact]:
        if node.kind in MODULES:
            out: list[Fact] = MODULES[node.kind](self, node, facts)
        elif node.op in FACTORIES or node.op in FILLED:
            filled = node.op in FILLED
            data = self.graph.values[node.outputs[0]].data if filled else None
            out = [Constant(data, empty=not filled)]
        elif all(isinstance(f, Constant) for f in facts):
            out = [Constant(self.graph.values[v].data) for v in node.outputs]
        elif node.op in RULES:
            out = RULES[node.op](self, node, facts)
        else:
            raise Refused("has no integer meaning here")
        return [*out, *[Constant()] * (len(node.outputs) - len(out))]

    def _check_steps(self) -> None:
        for name, run in self.runs.items():
            steps = self.builder.steps if self.builder.of(run.spikes).time else 1
            if run.steps != steps:
                raise UnsupportedOperation(
                    f"the neuron '{name}' runs {run.steps} time steps where the model has {steps}; run all "
                    f"neurons equally long"
                )


def _place(node: Node) -> str:
    if node.kind != "op":
        kinds = {"projection": "the projection", "neuron": "the neuron", "norm": "the norm"}
        kinds["before"] = "the recurrence"
        return f"{kinds[node.kind]} '{node.target}'"
    return f"{node.op.lstrip('_')} in '{node.scope or 'the model'}'"
