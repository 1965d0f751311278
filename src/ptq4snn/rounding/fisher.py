"""Fisher weights of a reconstruction (BRECQ): how much the network's outputs mind an error of each element.

    w = g^2 / mean g^2      g = dL/dz,  L = KL( softmax of the float logits || softmax of the quantized ones )

z is every element that is compared: a current, a potential, a spike or what is read behind it, of every
sample and step. The network is the one quantized so far with the unit's weights rounded to the nearest, the
rest in float (where nothing is quantized L is 0, and so is g). No labels are used. Gradients come back
through spikes by the model's own surrogate, and the reset is not differentiated. BRECQ leaves the scale of
g^2 open; the mean of 1 leaves lambda of the rounding's penalty what it is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn import functional as F

from ptq4snn.discovery.folding import Folded
from ptq4snn.frameworks import Shell
from ptq4snn.frameworks.core import Probe
from ptq4snn.modules.output_ends import unfinished
from ptq4snn.modules.readout import same_draws
from ptq4snn.numerics.gradients import safe_gradients
from ptq4snn.rounding.alone import SurrogateCore
from ptq4snn.rounding.boundary import Boundary
from ptq4snn.rounding.network import Network, collected

__all__ = ["Weights", "fisher_weights", "gradients"]

Weights = dict[str, tuple[Tensor, ...]]  # by place, step by step or call by call


def fisher_weights(network: Network, boundary: Boundary, parts: Iterable[Tensor]) -> dict[int, Weights]:
    """w of every part that is this process's, in bfloat16: they are kept for all of them."""
    team = network.prepared.team
    squares: dict[int, Weights] = {}
    for i, x in team.deal(parts):
        found = gradients(network, boundary, x)
        squares[i] = {n: tuple(g.square().bfloat16() for g in places) for n, places in found.items()}
    for name in boundary.places:
        own = {i: _sum_and_count(made[name]) for i, made in squares.items()}
        known = {i: s for each in team.all(own, "Fisher weights") for i, s in each.items()}
        mean = sum(known[i][0] for i in sorted(known)) / max(1, sum(n for _, n in known.values()))
        for made in squares.values():
            made[name] = tuple(g / mean if mean > 0 else torch.ones_like(g) for g in made[name])
    return squares


def _sum_and_count(values: tuple[Tensor, ...]) -> tuple[float, int]:
    return sum(float(g.double().sum()) for g in values), sum(g.numel() for g in values)


def gradients(network: Network, boundary: Boundary, x: Tensor) -> dict[str, list[Tensor]]:
    """dL/dz at every place of the boundary on one batch; 0 where L does not depend on z."""
    folded, readout = network.folded, network.prepared.readout
    seen: dict[str, list[Tensor]] = {n: [] for n in boundary.places}
    weights = {n: network.values(n, network.weight(n).integers) for n in boundary.unit}
    rounded = {f"{n}.weight": w.to(folded.weight(n)).requires_grad_() for n, w in weights.items()}
    with collected([], network.float.model), torch.no_grad(), same_draws(), unfinished(network.float.model):
        expected = readout(network.float.model(x))
    with _watched(folded, boundary, seen), torch.enable_grad(), same_draws(), safe_gradients():
        with unfinished(folded.model):
            found = readout(functional_call(folded.model, rounded, (x,)))
        p, q = F.softmax(expected.double(), 1), F.log_softmax(found.double(), 1)
        loss = F.kl_div(q, p, reduction="sum") / len(found)
        flat = [z for places in seen.values() for z in places]
        grads = iter(torch.autograd.grad(loss, flat, allow_unused=True))
    return {n: [_or_zero(next(grads), z) for z in places] for n, places in seen.items()}


def _or_zero(g: Tensor | None, like: Tensor) -> Tensor:
    return torch.zeros_like(like) if g is None else g


@contextmanager
def _watched(folded: Folded, boundary: Boundary, seen: dict[str, list[Tensor]]) -> Iterator[None]:
    """Neurons let gradients through, and what is compared is put down, until the end."""
    modules = {n: folded.model.get_submodule(n) for n in folded.discovery.neurons}
    shells = {n: m for n, m in modules.items() if isinstance(m, Shell)}
    before = {n: shell.core for n, shell in shells.items()}
    handles: list[Any] = []
    for name in boundary.outputs:
        handles.append(folded.projection(name).register_forward_hook(_after(seen[name].append)))
    for name in boundary.readers:
        if name not in shells:
            handles.append(folded.projection(name).register_forward_pre_hook(_in_front(seen[name].append)))
    with collected(handles, folded.model):
        try:
            for name, shell in shells.items():
                shell.core = SurrogateCore(folded.specs[name])
                shell.core.probe = _probe(name, boundary, seen)
            yield
        finally:
            for name, core in before.items():
                shells[name].core = core


def _probe(name: str, boundary: Boundary, seen: dict[str, list[Tensor]]) -> Probe | None:
    if name not in seen:
        return None
    which = 2 if name in boundary.fired else 0 if name in boundary.readers else 1  # of x, H, S
    return lambda x, h, s, _v, _t: seen[name].append((x, h, s)[which])


def _after(note: Callable[[Tensor], None]) -> Any:
    def hook(_m: nn.Module, _args: Any, out: Tensor) -> None:
        note(out)

    return hook


def _in_front(note: Callable[[Tensor], None]) -> Any:
    def hook(_m: nn.Module, args: Any) -> None:
        note(args[0])

    return hook
