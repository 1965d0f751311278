"""What every operation does to the facts of its inputs. Shapes and channels are followed by running the
operation itself on the channel numbers."""

from __future__ import annotations

from ptq4snn.discovery.facts import Constant, Count, Current, Data, Fact, Finished, Membrane, Opaque
from ptq4snn.discovery.graph import Graph, Node
from ptq4snn.discovery.operations import rules_by_name
from ptq4snn.discovery.record import FACTORIES, FILLED
from ptq4snn.discovery.rules import arithmetic, pooling, shaping
from ptq4snn.discovery.rules.support import Rule, Unfollowed

__all__ = ["apply"]

RULES: dict[str, Rule] = rules_by_name({**shaping.RULES, **pooling.RULES, **arithmetic.RULES})
DRAWN = {"rand", "randn", "randint", "rand_like", "randn_like", "bernoulli", "normal", "uniform", "poisson"}
LEARNED = {"convolution", "addmm", "mm", "bmm", "baddbmm", "linear", "matmul", "conv1d", "conv2d", "conv3d"}


def apply(g: Graph, node: Node, facts: list[Fact]) -> list[Fact]:
    """Facts of the node's outputs."""
    try:
        return _apply(g, node, facts)
    except Unfollowed as why:
        where = f" in '{node.scope}'" if node.scope else ""
        opaque = [f for f in facts if isinstance(f, Opaque)]
        reason = opaque[0].reason if opaque else f"{node.op.lstrip('_')}{where} {why}"
        projections = frozenset().union(*(f.projections for f in facts if isinstance(f, (Current, Opaque))))
        membranes = frozenset(f.neuron for f in facts if isinstance(f, Membrane))
        membranes = membranes.union(*(f.membranes for f in opaque))
        return [Opaque(reason, projections, membranes)] * len(node.outputs)


def _apply(g: Graph, node: Node, facts: list[Fact]) -> list[Fact]:
    kinds = {type(f) for f in facts}
    if node.op in FACTORIES or node.op in FILLED:  # also those that only look at a tensor's shape
        return [Constant(g.values[node.outputs[0]].data if node.op in FILLED else None)]
    if Opaque in kinds or Finished in kinds:
        raise Unfollowed("follows it")
    _refuse_loose_weights(node, facts)
    if kinds <= {Data, Constant}:
        learned = next((f.learned for f in facts if isinstance(f, Constant) and f.learned), None)
        floating = any(isinstance(f, Data) and f.floating for f in facts)
        drawn = node.op in DRAWN or any(isinstance(f, Constant) and f.drawn for f in facts)
        made = Constant(g.values[node.outputs[0]].data, learned, drawn)
        return [Data(floating) if Data in kinds else made] * len(node.outputs)
    if node.op not in RULES:
        raise Unfollowed("has no integer meaning here")
    out = RULES[node.op](g, node, facts)
    return [*out, *[Constant()] * (len(node.outputs) - len(out))]


def _refuse_loose_weights(node: Node, facts: list[Fact]) -> None:
    """A parameter that is multiplied with outside of a module has no place in the quantized model."""
    if node.op not in LEARNED or not any(isinstance(f, (Data, Count, Current)) for f in facts):
        return
    for fact in facts:
        if isinstance(fact, Constant) and fact.learned:
            raise Unfollowed(
                f"uses the parameter '{fact.learned}' outside of its module; call an nn.Conv or nn.Linear"
            )
