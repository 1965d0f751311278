"""The names of a file's tensors as the model has them: prefixes, name maps, and what is of no use to it."""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass, field

from torch import Tensor, nn

from ptq4snn.models.fpn import SpikeFPN
from ptq4snn.models.sdt import SpikeDrivenTransformer
from ptq4snn.models.sew_resnet import SEWResNet, official_name
from ptq4snn.models.spikformer import Spikformer

__all__ = ["COUNTER", "Named", "adapt", "is_optional"]

PREFIXES = ("module.", "_orig_mod.", "model.")  # DataParallel, torch.compile, Lightning
COUNTER = "num_batches_tracked"  # of BatchNorm, unused in inference: older checkpoints lack it
PROFILE = re.compile(r"(^|\.)(total_ops|total_params)$")  # left by thop

# parameters that the authors' programs have but never use: they may be there or not
UNUSED: dict[type[nn.Module], re.Pattern[str]] = {
    SpikeDrivenTransformer: re.compile(r"block\.\d+\.attn\.talking_heads\.weight"),
    Spikformer: re.compile(r"pos_embed|norm\.(weight|bias)|block\.\d+\.norm[12]\.(weight|bias)"),
}
CLASSIFIER = re.compile(r"backbone\.(head|head_kd|norm)\.|auxiliary_head\.")  # in files of mmseg


@dataclass
class Named:
    """Tensors under the model's names; `ignored` says why a name of the file was left out."""

    state: dict[str, Tensor]
    renamed: int = 0
    ignored: dict[str, str] = field(default_factory=dict)


def adapt(model: nn.Module, state: dict[str, Tensor]) -> Named:
    """The file's tensors as far as they are meant for the model; what does not fit is still among them."""
    own = model.state_dict().keys()
    plain = without_prefix(state, own)
    named = Named({})
    for name, tensor in plain.items():
        ours = our_name(model, name)
        if ours in plain:  # the file has both names: it is not what it seems
            ours = name
        reason = None if ours in own else useless(model, ours)
        if reason is not None:
            named.ignored[name] = reason
            continue
        named.renamed += ours != name
        named.state[ours] = tensor
    return named


def without_prefix(state: dict[str, Tensor], own: Collection[str]) -> dict[str, Tensor]:
    """Names without what wrappers put before every one of them, unless the model's have it too."""
    strange = [p for p in PREFIXES if not any(k.startswith(p) for k in own)]
    while prefix := next((p for p in strange if all(k.startswith(p) for k in state)), ""):
        state = {k.removeprefix(prefix): v for k, v in state.items()}
    return state


def our_name(model: nn.Module, name: str) -> str:
    """The model's name of a tensor of the authors' program; other names stay."""
    return official_name(name) if isinstance(model, SEWResNet) else name


def is_optional(model: nn.Module, name: str) -> bool:
    """Whether the model computes the same without this tensor of its own."""
    unused = UNUSED.get(type(model))
    return name.endswith(COUNTER) or (unused is not None and unused.fullmatch(name) is not None)


def useless(model: nn.Module, name: str) -> str | None:
    """Why a tensor that the model does not have can be left out; None if it cannot."""
    if PROFILE.search(name):
        return "a profiler's count"
    if is_optional(model, name):
        return "never used by the model"
    if isinstance(model, SpikeFPN) and CLASSIFIER.match(name):
        return "a head that segmentation does not use"
    return None
