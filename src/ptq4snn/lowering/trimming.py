"""Leave out what nothing reads, and number the rest anew."""

from __future__ import annotations

from dataclasses import replace

from ptq4snn.network.program import Neuron, Operation, Program

__all__ = ["trimmed"]


def trimmed(p: Program) -> Program:
    """The operations that outputs and neurons are made of."""
    wanted = {o.value for o in p.outputs}.union(*(_made(o) for o in p.operations if isinstance(o, Neuron)))
    count = 0
    while count < len(wanted):  # once, and again where something goes round
        count = len(wanted)
        for o in reversed(p.operations):
            if o.output in wanted:
                wanted.update(o.inputs)
    new = {v: i for i, v in enumerate(sorted(wanted))}
    return replace(
        p,
        values=tuple(p.values[v] for v in new),
        operations=tuple(_renumbered(o, new) for o in p.operations if o.output in wanted),
        outputs=tuple(replace(o, value=new[o.value]) for o in p.outputs),
    )


def _made(o: Neuron) -> set[int]:
    return {o.output} if o.potential is None else {o.output, o.potential}


def _renumbered(o: Operation, new: dict[int, int]) -> Operation:
    moved = replace(o, output=new[o.output], inputs=tuple(new[i] for i in o.inputs))
    if isinstance(moved, Neuron) and moved.potential is not None:
        moved = replace(moved, potential=new[moved.potential])
    return moved
