"""A NIR graph as a model: samples [B, T, ...] in, what the output node receives out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from ptq4snn.frameworks.compound import Before
from ptq4snn.interchange.ordering import Edge

__all__ = ["Graph", "NirNetwork"]


@dataclass(frozen=True)
class Graph:
    """What is read from a file. Names are those of torch modules."""

    modules: Mapping[str, nn.Module]
    sources: Mapping[str, tuple[str, ...]]  # of every node
    order: tuple[str, ...]
    input: str
    output: str
    neurons: frozenset[str]
    readouts: frozenset[str]  # neurons whose membrane is what they give
    back: frozenset[Edge] = frozenset()  # edges that come one step later
    sizes: Mapping[str, tuple[int, ...]] = field(default_factory=dict)  # of the neurons that they leave
    late: Mapping[str, int] = field(default_factory=dict)  # steps by which a node gives on its input


class NirNetwork(nn.Module):
    """Runs the nodes in order, all inputs of a node summed. Where nothing goes round a node sees whole sequences;
    else the network runs step by step.

    readout: "sum" or "mean" of the output over the steps, "last", or "none": all of them [B, T, ...].
    """

    def __init__(self, graph: Graph, readout: str) -> None:
        super().__init__()
        self.graph, self.readout = graph, readout
        self.nodes = nn.ModuleDict(graph.modules)
        self.before = nn.ModuleDict({f"{a} {b}".replace(" ", "__"): Before() for a, b in sorted(graph.back)})
        self.queues = nn.ModuleDict(
            {n: nn.ModuleList([Before() for _ in range(k)]) for n, k in graph.late.items() if k}
        )
        self.stepwise = bool(graph.back or self.queues)

    def forward(self, x: Tensor) -> Tensor:  # [B, T, ...]
        y = self._by_steps(x) if self.stepwise else self._whole(x.transpose(0, 1))  # [T, B, ...]
        if self.readout == "none":
            return y.transpose(0, 1)
        return y[-1] if self.readout == "last" else y.sum(0) if self.readout == "sum" else y.mean(0)

    def _whole(self, x: Tensor) -> Tensor:
        values: dict[str, Tensor] = {}
        for name in self.graph.order:
            parts = [values[s] for s in self.graph.sources[name]]
            given = _sum(parts) if parts else x
            if name in self.graph.neurons:
                values[name] = self._fired(name, given)
            else:
                values[name] = self.nodes[name](given.flatten(0, 1)).unflatten(0, (len(x), -1))
        return values[self.graph.output]

    def _by_steps(self, x: Tensor) -> Tensor:
        out = []
        last: dict[str, Tensor] = {}  # values of the step before
        for t in range(x.shape[1]):
            values: dict[str, Tensor] = {}
            for name in self.graph.order:
                parts = [self._read(s, name, values, last, x) for s in self.graph.sources[name]]
                given = _sum(parts) if parts else x[:, t]
                given = self._delayed(name, given, values, last)
                fires = name in self.graph.neurons
                values[name] = self._fired(name, given) if fires else self.nodes[name](given)
            last = values
            out.append(values[self.graph.output])
        return torch.stack(out)

    def _read(
        self, source: str, name: str, values: dict[str, Tensor], last: dict[str, Tensor], x: Tensor
    ) -> Tensor:
        """What a node gets from another: of this step, or where it goes round of the one before."""
        if (source, name) not in self.graph.back:
            return values[source]
        kept = last.get(source)
        if kept is None:
            kept = torch.zeros(len(x), *self.graph.sizes[source], dtype=x.dtype, device=x.device)
        back: Tensor = self.before[f"{source}__{name}"](kept)
        return back

    def _delayed(self, name: str, x: Tensor, values: dict[str, Tensor], last: dict[str, Tensor]) -> Tensor:
        """x as many steps late as the node says, one step in each of its registers."""
        if name not in self.queues:
            return x
        for i, register in enumerate(self.queues[name]):  # type: ignore[arg-type]
            place = f"{name} {i}"
            values[place] = x
            kept = last.get(place)
            x = register(torch.zeros_like(x) if kept is None else kept)
        return x

    def _fired(self, name: str, x: Tensor) -> Tensor:
        out, read = self.nodes[name](x)
        return read if name in self.graph.readouts else out  # type: ignore[no-any-return]


def _sum(parts: list[Tensor]) -> Tensor:
    total = parts[0]
    for part in parts[1:]:
        total = total + part
    return total
