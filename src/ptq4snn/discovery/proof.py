"""Prove in float64, on samples, that folding changes no spike and no output."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_flatten, tree_map

from ptq4snn.discovery.discover import Discovery, reset_neurons
from ptq4snn.discovery.editing import edit_model
from ptq4snn.discovery.exclusion import advice, given_names
from ptq4snn.discovery.folding import fold_in_place
from ptq4snn.discovery.info import NeuronInfo
from ptq4snn.discovery.one_by_one import OneByOne
from ptq4snn.discovery.opening import bake, readable
from ptq4snn.discovery.surgery import copy_model
from ptq4snn.errors import FoldingError, UnsupportedOperation
from ptq4snn.frameworks import Compound
from ptq4snn.heap import trim_behind

__all__ = ["verify"]

OUTPUT_TOLERANCE = 1e-4  # of the largest output: some frameworks compute in float32 on the way


def verify(model: nn.Module, discovery: Discovery, x: Tensor) -> None:
    """Raise FoldingError unless the original model, by its own forward, and the folded one spike alike on `x`
    and give the same outputs, in float64."""
    original = copy_model(model, model.parameters()).double()  # the only copy: what is folded is exchanged
    x = x.double() if x.is_floating_point() else x
    opened = readable(original, discovery.excluded, sharing=True)
    edit_model(opened, discovery.edits)
    firing = _firing(opened, discovery)
    with _wide(opened, discovery, firing):
        bake(opened, [x])
    expected, outputs = _spikes(original, discovery, firing, x)
    del original
    folded = fold_in_place(opened, discovery).model
    try:
        found, folded_outputs = _spikes(folded, discovery, firing, x)
    except AttributeError as why:
        raise UnsupportedOperation(
            f"the model's forward asks a neuron for what its integer form has not ({why}); keep such "
            "settings in the model itself"
        ) from why
    for (name, a), (_, b) in zip(expected, found, strict=True):
        if not torch.equal(a, b):
            wrong = int((a != b).sum())
            raise FoldingError(
                f"after folding, the neuron '{name}' differs from the original in {wrong} of {a.numel()} "
                f"spikes on a batch in float64; its sources are "
                f"{list(_info(discovery, name).projections)}: {_suspect(model, discovery, name)}"
            )
    for number, (a, b) in enumerate(zip(outputs, folded_outputs, strict=True)):
        largest = float(a.abs().max()) if a.numel() else 0.0
        if a.shape != b.shape or not torch.allclose(a, b, rtol=0.0, atol=OUTPUT_TOLERANCE * (1 + largest)):
            raise FoldingError(
                f"after folding, output {number} differs from the original's on a batch in float64 "
                f"although all spikes are the same: look for hooks, or a forward of its own, on a layer "
                "behind the last neuron"
            )


def _firing(opened: nn.Module, discovery: Discovery) -> list[str]:
    """Modules that return spikes, in the user's model and in the folded one: neurons, and whole compounds."""
    compounds = {n for n, m in opened.named_modules() if isinstance(m, Compound)}
    homes = (n if (home := n.rpartition(".")[0]) not in compounds else home for n in discovery.neurons)
    return list(dict.fromkeys(homes))


def _info(discovery: Discovery, name: str) -> NeuronInfo:
    """The neuron of this name, or the first of the compound."""
    return next(i for n, i in discovery.neurons.items() if n == name or n.rpartition(".")[0] == name)


def _suspect(model: nn.Module, discovery: Discovery, neuron: str) -> str:
    """What to look at where a neuron differs: hooks and norms with a forward of their own on its way."""
    info, model = _info(discovery, neuron), readable(model, discovery.excluded, sharing=True)
    edit_model(model, discovery.edits)

    def leave_out(*names: str) -> str:
        return advice(given_names(model, names))

    for name in (neuron, *info.norms):
        module = model.get_submodule(name)
        if module._forward_hooks or module._forward_pre_hooks:
            return (
                f"'{name}' has a forward hook that changes values; remove it, or keep it in float: "
                f"{leave_out(name)}"
            )
    for name in info.norms:
        kind = type(model.get_submodule(name)).__name__
        if not re.fullmatch(r"(Sync)?BatchNorm(\dd)?", kind):
            return (
                f"'{name}' is a {kind}, which does not do what BatchNorm does; keep it in float: "
                f"{leave_out(name)}"
            )
    if len(info.norms) > 1:
        reason = (
            f"it is fed through several BatchNorms ({', '.join(info.norms)}), one for each time step perhaps"
        )
    else:
        reason = "check that nothing between them depends on training mode, on the time step or on values"
    return f"{reason}; or keep it in float: {leave_out(*info.norms or [neuron])}"


@contextmanager
def _wide(model: nn.Module, discovery: Discovery, firing: list[str]) -> Iterator[None]:
    """Some frameworks' spikes, and what the model's own code casts on the way, have to be kept in float64."""

    def widen(_m: nn.Module, args: Any, kwargs: Any) -> Any:
        return tree_map(
            lambda a: a.double() if isinstance(a, Tensor) and a.is_floating_point() else a, (args, kwargs)
        )

    def keep(_m: nn.Module, _args: Any, out: Any) -> Any:
        return tree_map(lambda o: o.double() if isinstance(o, Tensor) else o, out)

    parts = [n.removesuffix(".plain") for n in discovery.projections]  # of opened ones the whole
    there = {n for n, _ in model.named_modules()}  # a compound's parts are not all in the user's model
    leaves = [n for n in (*firing, *parts, *discovery.norms) if n in there]
    handles: list[Any] = [model.get_submodule(n).register_forward_hook(keep) for n in firing]
    handles += [model.get_submodule(n).register_forward_pre_hook(widen, with_kwargs=True) for n in leaves]
    try:
        yield
    finally:
        for h in handles:
            h.remove()


def _spikes(
    model: nn.Module, discovery: Discovery, firing: list[str], x: Tensor
) -> tuple[list[tuple[str, Tensor]], list[Tensor]]:
    """Spikes of every neuron call, in execution order, how many where they are counted; and the outputs."""
    seen: list[tuple[str, Tensor]] = []
    counting = {n for n, spec in discovery.specs.items() if spec.most != 1}
    counting |= {n.rpartition(".")[0] for n in counting}  # the compounds that they are parts of

    def note(name: str) -> Any:
        def hook(_m: nn.Module, _args: Any, out: Any) -> None:
            first = out[0] if isinstance(out, (tuple, list)) else out
            seen.append((name, first.int() if name in counting else first.bool()))
            trim_behind()

        return hook

    handles = [model.get_submodule(n).register_forward_hook(note(n)) for n in firing]
    reset_neurons(model)
    try:
        drawn, wide = torch.random.fork_rng(devices=[]), _wide(model, discovery, firing)
        with torch.no_grad(), OneByOne(), drawn, wide:
            torch.manual_seed(0)  # an encoder that draws spikes must draw the same ones twice
            out = model(x)
    finally:
        reset_neurons(model)
        for h in handles:
            h.remove()
    return seen, [t.double() for t in tree_flatten(out)[0] if isinstance(t, Tensor)]
