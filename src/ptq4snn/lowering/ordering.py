"""Operations in an order that loops as little as possible: what goes round together lies together."""

from __future__ import annotations

from dataclasses import replace

from ptq4snn.network.program import Delay, Neuron, Operation, Program

__all__ = ["ordered"]


def ordered(p: Program) -> Program:
    """Each operation behind what it reads of its own step, those that depend on each other side by side: a
    delay first, then the others in the order they had."""
    if not any(isinstance(op, Delay) for op in p.operations):
        return p
    maker = {v: i for i, op in enumerate(p.operations) for v in _made(op)}
    reads = [{maker[v] for v in op.inputs} for op in p.operations]
    groups = _together(reads)
    group_of = {i: g for g, members in enumerate(groups) for i in members}
    needs = [{group_of[r] for i in members for r in reads[i]} - {g} for g, members in enumerate(groups)]
    done: set[int] = set()
    order: list[int] = []
    while len(done) < len(groups):  # of the groups that are ready the one that came first
        ready = (g for g in range(len(groups)) if g not in done and needs[g] <= done)
        g = min(ready, key=lambda g: min(groups[g]))
        done.add(g)
        order += sorted(groups[g], key=lambda i: (not isinstance(p.operations[i], Delay), i))
    return replace(p, operations=tuple(p.operations[i] for i in order))


def _made(op: Operation) -> set[int]:
    potential = op.potential if isinstance(op, Neuron) else None
    return {op.output} if potential is None else {op.output, potential}


def _together(reads: list[set[int]]) -> list[list[int]]:
    """Strongly connected operations: those that read each other, through whatever lies between."""
    behind = [_reachable(i, reads) for i in range(len(reads))]
    groups: list[list[int]] = []
    placed: set[int] = set()
    for i in range(len(reads)):
        if i not in placed:
            members = [j for j in range(i, len(reads)) if j == i or (j in behind[i] and i in behind[j])]
            groups.append(members)
            placed.update(members)
    return groups


def _reachable(start: int, reads: list[set[int]]) -> set[int]:
    seen: set[int] = set()
    todo = list(reads[start])
    while todo:
        i = todo.pop()
        if i not in seen:
            seen.add(i)
            todo += reads[i]
    return seen
