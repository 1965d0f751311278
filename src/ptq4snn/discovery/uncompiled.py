"""torch loads its whole compiler (a second, 90 MB) the first time that a dispatch mode's code runs, to keep
that code out of it. Where nobody else has loaded the compiler there is nothing to keep it out of."""

from __future__ import annotations

import sys

from torch.utils._python_dispatch import TorchDispatchMode

__all__ = ["without_compiler"]

KEPT_OUT = "__dynamo_disable"  # where torch._compile keeps what it calls instead


def without_compiler(mode: type[TorchDispatchMode]) -> None:
    """Before a mode is used: call its code as it is, as long as there is no compiler."""
    code = getattr(mode.__torch_dispatch__, "__wrapped__", None)
    if code is None:  # a version of torch that does no such thing
        return
    if "torch._dynamo" not in sys.modules:
        setattr(code, KEPT_OUT, code)
    elif getattr(code, KEPT_OUT, None) is code:
        delattr(code, KEPT_OUT)
