"""The one table of operations: what each is called in ATen, what kind it is, and which reader knows it.

Discovery asks what a tensor is (ptq4snn.discovery.rules), lowering what it becomes (ptq4snn.lowering). Both
have one rule for each kind; `READERS` says which of them has.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

__all__ = ["KINDS", "READERS", "rules_by_name"]

KINDS: dict[str, tuple[str, ...]] = {
    "shape": (
        "view", "_unsafe_view", "reshape", "permute", "transpose", "t", "unsqueeze", "squeeze", "expand",
        "repeat", "clone", "contiguous", "_to_copy", "detach", "alias", "select", "slice", "split",
        "split_with_sizes", "unbind", "stack", "cat", "flip", "index", "index_select", "lift_fresh",
        "lift_fresh_copy", "roll", "upsample_nearest1d", "upsample_nearest2d", "upsample_nearest3d",
        "_upsample_nearest_exact1d", "_upsample_nearest_exact2d", "_upsample_nearest_exact3d",
        "pixel_shuffle", "pixel_unshuffle", "unfold", "_reshape_alias", "channel_shuffle",
        "native_channel_shuffle", "movedim", "narrow", "repeat_interleave",
    ),
    "pad": ("constant_pad_nd",),
    "write": ("write_view",),  # through a view of a buffer (discovery/record.py)
    "copy": ("copy",),
    "add": ("add", "sub", "rsub"),
    "multiply": ("mul", "div"),
    "compare": ("gt", "ge", "lt", "le", "eq", "ne"),
    "logical": ("logical_and", "logical_or", "logical_xor", "logical_not"),
    "bitwise": ("bitwise_and", "bitwise_or", "bitwise_xor", "bitwise_not"),
    "choice": ("maximum", "minimum"),
    "clip": ("clamp", "clamp_min", "clamp_max", "hardtanh", "relu"),
    "product": ("bmm", "mm", "matmul"),
    "vector product": ("dot", "mv"),
    "sum": ("mean", "sum"),
    "maximum": ("amax", "max"),
    "mean pool": ("avg_pool1d", "avg_pool2d", "avg_pool3d"),
    "max pool": (
        "max_pool1d", "max_pool2d", "max_pool3d", "max_pool1d_with_indices", "max_pool2d_with_indices",
        "max_pool3d_with_indices",
    ),
    "adaptive mean pool": ("_adaptive_avg_pool2d", "_adaptive_avg_pool3d"),
    "adaptive max pool": ("adaptive_max_pool1d", "adaptive_max_pool2d", "adaptive_max_pool3d"),
    "bilinear": ("upsample_bilinear2d",),
}  # fmt: skip

# kinds that only one reader knows; all others are known to both
ONLY = {"vector product": "discovery"}
READERS: dict[str, frozenset[str]] = {
    kind: frozenset([ONLY[kind]]) if kind in ONLY else frozenset(["discovery", "lowering"]) for kind in KINDS
}

Rule = TypeVar("Rule")


def rules_by_name(rules: Mapping[str, Rule]) -> dict[str, Rule]:
    """The rule of every operation, from one for each kind."""
    return {name: rule for kind, rule in rules.items() for name in KINDS[kind]}
