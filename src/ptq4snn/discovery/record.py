"""Record one real forward pass as a Graph, following tensors and not the program text.

Operations are seen at the ATen level, below Python, so control flow, in-place adds, reshapes, functional
calls and folded time need no special care. Projections, norms and neurons are recorded as one node each:
what happens inside them is their own business.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.multiprocessing.reductions import StorageWeakRef
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten, tree_map
from torch.utils.weak import WeakTensorKeyDictionary

from ptq4snn.discovery.calls import by_name
from ptq4snn.discovery.graph import Graph, Node, NodeKind, Ref, Site
from ptq4snn.discovery.sites import Places, is_watched
from ptq4snn.discovery.uncompiled import without_compiler
from ptq4snn.errors import UnsupportedOperation
from ptq4snn.numerics.device import no_autocast, refuse_autocast

__all__ = ["FACTORIES", "FILLED", "record"]

Classify = Callable[[str, nn.Module], NodeKind | None]
EMPTY = {"empty", "empty_like", "new_empty", "empty_strided", "new_empty_strided", "empty_permuted"}
FACTORIES = EMPTY | {
    "zeros", "zeros_like", "new_zeros", "ones", "ones_like", "new_ones", "full", "full_like", "new_full",
}  # fmt: skip
FILLED = FACTORIES - EMPTY | {"zero", "fill"}
VIEWS = {
    "select", "slice", "view", "transpose", "permute", "unsqueeze", "squeeze", "alias", "detach", "t",
    "narrow", "expand", "diagonal", "unfold", "_unsafe_view", "_reshape_alias",
}  # fmt: skip


class Recorder(TorchDispatchMode):
    """Writes every operation that is not inside a leaf module into the graph."""

    def __init__(self, model: nn.Module, device: torch.device) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.graph = Graph()
        self.device = device
        self.ids: Any = WeakTensorKeyDictionary()  # live tensor -> value id
        self.made_by: dict[int, Node] = {}  # value id -> node, for writes through views
        self.storages: dict[int, set[int]] = {}  # storage -> values that live in it
        self.held: dict[int, StorageWeakRef] = {}  # so that no storage takes the number of one that is gone
        self.seen: dict[Any, int] = {}  # the same memory, seen as another object -> value id
        self.stale: dict[int, str] = {}  # value -> the write that left it behind
        self.written_through: dict[
            int, tuple[int, list[Node]]
        ] = {}  # value -> buffer and views it was written by
        self.muted = 0
        self.scopes: list[str] = [""]
        self.calls = 0  # of modules, so far
        self.turns: list[tuple[int, Counter[int]]] = [(0, Counter())]  # of every module that is running
        self.modules = dict(model.named_modules())
        self.places: dict[str, Places] = {}
        self.site: Site | None = None
        self.names = {id(p): n for n, p in model.named_parameters()}

    def value_of(self, tensor: Tensor) -> int:
        """Value id of a tensor; one not seen before is a parameter (known by its name) or another
        constant, unless it is another object around the memory of one seen (a tensor subclass)."""
        if tensor not in self.ids:
            with self.leaf():
                known = self.seen.get(_memory(tensor))
                if known is None:
                    known = self.graph.add_value(tensor, self.names.get(id(tensor), "constant"))
                self.bind(tensor, known)
        value: int = self.ids[tensor]
        if value in self.stale:
            raise UnsupportedOperation(
                f"a tensor read in '{self.scopes[-1] or 'the model'}' shares memory with one that "
                f"{self.stale[value]} wrote in place; clone it before the in-place operation"
            )
        return value

    def values_of(self, out: Any) -> list[int]:
        """Value ids of all tensors in a result."""
        return [self.value_of(t) for t in tree_flatten(out)[0] if isinstance(t, Tensor)]

    def bind(self, tensor: Tensor, value: int) -> None:
        self.ids[tensor] = value
        storage = _storage(tensor)
        self.storages.setdefault(storage, set()).add(value)
        if storage not in self.held:
            self.held[storage] = StorageWeakRef(tensor.untyped_storage())
        self.seen[_memory(tensor)] = value

    def new(self, tensor: Tensor, uniform: bool) -> int:
        with self.leaf():
            value = self.graph.add_value(tensor, "result", uniform)
        self.bind(tensor, value)
        return value

    def template(self, x: Any) -> Any:
        return tree_map(lambda a: Ref(self.value_of(a)) if isinstance(a, Tensor) else a, x)

    def add_node(
        self, kind: NodeKind, target: str, args: Any, kwargs: Any, outputs: list[Tensor], schema: Any = None
    ) -> Node:
        refs = [a.value for a in tree_flatten((args, kwargs))[0] if isinstance(a, Ref)]
        op = target.split(".")[1].rstrip("_") if kind == "op" else ""
        made = tuple(self.new(t, op in FILLED) for t in outputs)
        given = {} if schema is None else by_name(schema, args, kwargs)
        node = Node(
            kind, target, tuple(args), dict(kwargs), tuple(refs), made, self.scopes[-1], given, self.site
        )
        self.append(node)
        return node

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if self.muted:
            return func(*args, **kwargs)
        refuse_autocast(self.device)
        refs, krefs = self.template(list(args)), self.template(kwargs)
        result = func(*args, **kwargs)
        outputs = [t for t in tree_flatten(result)[0] if isinstance(t, Tensor)]
        if outputs:
            if func._schema.is_mutable:
                self.write_in_place(func, refs, krefs, outputs[0])
            else:
                self.add_node("op", str(func), refs, krefs, outputs, func._schema)
        return result

    def write_in_place(self, func: Any, args: Any, kwargs: Any, tensor: Tensor) -> None:
        """A write makes a new value. Written through a view of a fresh buffer, it makes a new buffer too, and
        the buffer's other views are views of that."""
        before = args[0].value
        aliases = self.storages[_storage(tensor)] - {before}
        node = self.add_node("op", str(func), args, kwargs, [tensor], func._schema)
        written = node.outputs[0]
        aliases.discard(written)
        base, views = self.buffer_under(before)
        if base is not None:
            live = {v: t for t, v in list(self.ids.items()) if v in aliases}
            renewed = self.renew_buffer(base, views, written)
            for value, alias in live.items():
                under, chain = (base, []) if value == base else self.buffer_under(value)
                if under == base:
                    self.bind(alias, self.replay(chain, renewed))
                    aliases.discard(value)
            self.written_through[written] = (renewed, views)
        self.stale.update(dict.fromkeys(aliases, str(func)))

    def buffer_under(self, value: int) -> tuple[int | None, list[Node]]:
        """The fresh buffer that `value` is a view of, and the views that lead from there to it."""
        views: list[Node] = []
        while True:
            if value in self.written_through:
                base, earlier = self.written_through[value]
                return base, [*earlier, *views]
            node = self.made_by.get(value)
            if node is None or node.kind != "op" or node.op not in VIEWS or not node.inputs:
                break
            views.insert(0, node)
            value = node.inputs[0]
        fresh = node is not None and (node.op in FACTORIES or node.target == "ptq4snn.write_view")
        return (value, views) if fresh and views else (None, [])

    def renew_buffer(self, base: int, views: list[Node], written: int) -> int:
        value = self.graph.add_like(base)
        self.append(
            Node(
                "op",
                "ptq4snn.write_view",
                (Ref(base), Ref(written), views),
                {},
                (base, written),
                (value,),
                "",
                {"views": views},
            )
        )
        return value

    def replay(self, views: list[Node], value: int) -> int:
        """The same views of another value."""
        for view in views:
            made = self.graph.add_like(view.outputs[0])
            swapped = tree_map(
                lambda a, old=view.inputs[0], new=value: Ref(new) if a == Ref(old) else a,
                list(view.args),
                is_leaf=lambda a: isinstance(a, Ref),
            )
            self.append(replace(view, args=tuple(swapped), inputs=(value,), outputs=(made,)))
            value = made
        return value

    def enter(self, scope: str) -> None:
        self.scopes.append(scope)
        self.calls += 1
        self.turns.append((self.calls, Counter()))

    def leave(self) -> None:
        self.scopes.pop()
        self.turns.pop()

    def next_site(self) -> Site:
        """Of the call that is running."""
        scope = self.scopes[-1]
        if scope not in self.places:  # an edited module has numbers already
            self.places[scope] = getattr(self.modules.get(scope), "_places", None) or Places()
        place = self.places[scope].number()
        call, turns = self.turns[-1]
        turns[place] += 1
        return Site(call, place, turns[place] - 1)

    def append(self, node: Node) -> None:
        self.graph.nodes.append(node)
        self.made_by.update(dict.fromkeys(node.outputs, node))

    @contextmanager
    def leaf(self) -> Iterator[None]:
        self.muted += 1
        try:
            yield
        finally:
            self.muted -= 1


def _storage(tensor: Tensor) -> int:
    return int(tensor.untyped_storage()._cdata)


def _memory(tensor: Tensor) -> tuple[Any, ...]:
    """Where a tensor lies; two objects of the same are the same tensor."""
    return _storage(tensor), tensor.storage_offset(), tensor.shape, tensor.stride(), tensor.dtype


def _watch(recorder: Recorder, model: nn.Module, classify: Classify) -> list[Any]:
    """Hooks that turn leaf modules into nodes and tell the scope of everything else."""
    handles = []
    for name, module in model.named_modules():
        before, after = _hooks(recorder, name, classify(name, module))
        handles.append(module.register_forward_pre_hook(before, with_kwargs=True))
        handles.append(module.register_forward_hook(after, with_kwargs=True))
    return handles


def _hooks(recorder: Recorder, name: str, kind: NodeKind | None) -> tuple[Any, Any]:
    """What happens before and after the calls of one module; `kind` is that of a leaf.

    Plain functions: a module that is copied inside a recorded pass takes its hooks along, and a method would
    take a copy of the recorder, whose references to storages must not be freed twice.
    """
    pending: list[Any] = []

    def before(_m: nn.Module, args: Any, kwargs: Any) -> None:
        recorder.enter(name)
        refuse_autocast(recorder.device)
        if kind is not None:
            if recorder.muted == 0:
                pending.append((recorder.template(list(args)), recorder.template(kwargs)))
            recorder.muted += 1

    def after(_m: nn.Module, _args: Any, _kwargs: Any, out: Any) -> None:
        recorder.leave()
        if name == "" and len(recorder.scopes) > 1 and not recorder.graph.step_outputs:
            recorder.graph.step_outputs = recorder.values_of(out)
        if kind is not None:
            recorder.muted -= 1
            if recorder.muted == 0:
                refs, krefs = pending.pop()
                tensors = [t for t in tree_flatten(out)[0] if isinstance(t, Tensor)]
                recorder.add_node(kind, name, refs, krefs, tensors)

    return before, after


class _Sites(TorchFunctionMode):
    """Tells the recorder where in the model's code an operation stands."""

    def __init__(self, recorder: Recorder) -> None:
        super().__init__()
        self.recorder = recorder

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if self.recorder.muted or not is_watched(func):
            return func(*args, **(kwargs or {}))
        self.recorder.site = self.recorder.next_site()
        try:
            return func(*args, **(kwargs or {}))
        finally:
            self.recorder.site = None


def record(model: nn.Module, x: Tensor, classify: Classify) -> tuple[Graph, Any]:
    """Run `model(x)` once and return the graph and the output. `classify` names the leaf modules."""
    without_compiler(Recorder)
    recorder = Recorder(model, x.device)
    handles = _watch(recorder, model, classify)
    try:
        with torch.no_grad(), recorder, _Sites(recorder):
            value = recorder.graph.add_value(x, "input")
            recorder.bind(x, value)
            recorder.graph.inputs.append(value)
            with no_autocast():  # one around the call is not the model's
                out = model(x)
            recorder.graph.outputs = recorder.values_of(out)
    finally:
        for handle in handles:
            handle.remove()
    return recorder.graph, out
