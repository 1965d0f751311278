"""Which float weights a bundle was made from: a hash of the original model's parameters and buffers."""

from __future__ import annotations

import hashlib

from torch import Tensor, nn

__all__ = ["weights_hash"]

COUNTERS = ("num_batches_tracked",)  # of BatchNorms: no output depends on them
WRAPPERS = ("_orig_mod.", "module.")  # of torch.compile and of data-parallel training


def weights_hash(model: nn.Module) -> str:
    """SHA-256 over name, shape and values of everything in the state_dict, sorted by name.

    Values count, not types: floats are hashed as float64, so that a model's copy in float64 is the same.
    """
    digest = hashlib.sha256()
    found = [(_bare(n), v) for n, v in model.state_dict().items() if isinstance(v, Tensor)]
    for name, value in sorted(found, key=lambda pair: pair[0]):
        if name.rpartition(".")[2] in COUNTERS:
            continue
        plain = value.detach().cpu()
        numbers = (plain.double() if plain.is_floating_point() else plain).contiguous().numpy()
        little = numbers.astype(numbers.dtype.newbyteorder("<"), copy=False)
        for part in (name.encode(), repr(tuple(value.shape)).encode(), little.tobytes()):
            digest.update(len(part).to_bytes(8, "little"))
            digest.update(part)
    return digest.hexdigest()


def _bare(name: str) -> str:
    for wrapper in WRAPPERS:
        name = name.removeprefix(wrapper)
    return name.replace("._orig_mod.", ".")
