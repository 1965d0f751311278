"""Transposed convolutions as convolutions: zeros between the elements, the kernel turned round.

    conv_transpose(x, W, stride, padding)   =   conv(x with stride - 1 zeros between its elements and
                                                dilation (kernel - 1) - padding zeros around it, W')

W'[o, i, k] = W[i, o, -k]. The convolution is `NAME.plain`, a projection like any other.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

__all__ = ["TRANSPOSED", "Untransposed", "is_plain_transposed"]

TRANSPOSED = (nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d)
CONVOLUTIONS = (nn.Conv1d, nn.Conv2d, nn.Conv3d)


def is_plain_transposed(module: nn.Module) -> bool:
    """Whether it is torch's own, or SpikingJelly's, which only folds time into the batch."""
    kind = type(module)
    folded = kind.__module__.startswith("spikingjelly.") and kind.__name__.startswith("ConvTranspose")
    hooks = module._forward_hooks or module._forward_pre_hooks
    owns = isinstance(module._parameters.get("weight"), nn.Parameter)
    return (kind in TRANSPOSED or folded) and not hooks and owns and "forward" not in vars(module)


class Untransposed(nn.Module):
    """Stands in the place of a transposed convolution, on [..., C, *size]."""

    def __init__(self, module: Any) -> None:
        super().__init__()
        self.rank = module.weight.dim() - 2
        self.stride, ends = tuple(module.stride), module.output_padding
        reach = [d * (k - 1) for d, k in zip(module.dilation, module.kernel_size, strict=True)]
        self.before = [r - p for r, p in zip(reach, module.padding, strict=True)]
        self.after = [b + e for b, e in zip(self.before, ends, strict=True)]
        kind = CONVOLUTIONS[self.rank - 1]
        self.plain = nn.utils.skip_init(
            kind, module.in_channels, module.out_channels, module.kernel_size, dilation=module.dilation,
            groups=module.groups, bias=module.bias is not None, device=module.weight.device,
            dtype=module.weight.dtype,
        )  # fmt: skip
        self.plain.weight = nn.Parameter(_turned(module), requires_grad=False)
        if module.bias is not None:
            self.plain.bias = nn.Parameter(module.bias.detach().clone(), requires_grad=False)

    def forward(self, x: Tensor) -> Tensor:
        lead = x.shape[: x.dim() - self.rank - 1]
        y = x.reshape(-1, *x.shape[len(lead) :])
        pads: list[int] = []
        for axis, stride in enumerate(self.stride, 2):
            n = y.shape[axis]
            if stride > 1:
                behind = [0, 0] * (y.dim() - axis - 1)
                y = F.pad(y.unsqueeze(axis + 1), [*behind, 0, stride - 1]).flatten(axis, axis + 1)
                y = y.narrow(axis, 0, (n - 1) * stride + 1)
            pads = [self.before[axis - 2], self.after[axis - 2], *pads]
        out: Tensor = self.plain(F.pad(y, pads))
        return out.reshape(*lead, *out.shape[1:])


def _turned(module: Any) -> Tensor:
    """Weight [Cout, Cin / groups, ...] of the convolution."""
    w: Tensor = module.weight.detach()
    groups = module.groups
    w = w.reshape(groups, w.shape[0] // groups, *w.shape[1:]).transpose(1, 2)
    return torch.flip(w.reshape(-1, *w.shape[2:]), list(range(2, w.dim() - 1))).clone()
