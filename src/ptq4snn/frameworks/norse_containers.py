"""Norse's RecurrentSequential: what the last module gives is added to the input one step later."""

from __future__ import annotations

import copy
from collections import namedtuple
from typing import Any

from torch import Tensor, nn

from ptq4snn.frameworks.compound import Before, Compound

__all__ = ["RecurrentSequence"]

# made to look like Norse's own
RecurrentSequentialState = namedtuple("RecurrentSequentialState", "cache state")
FIRST = (nn.Linear, nn.Conv1d, nn.Conv2d)


class RecurrentSequence(Compound):
    """W (x[t] + s[t-1]) + b is W x[t] + b and W s[t-1], so that the input need not be spikes."""

    def __init__(self, sequence: Any) -> None:
        super().__init__()
        self.module, self.chosen = sequence.module, sequence.output_modules
        self.recurrent = copy.deepcopy(self.module[0])
        self.recurrent.register_parameter("bias", None)
        self.before = Before()
        self.reset()

    @classmethod
    def of(cls, module: Any) -> RecurrentSequence | None:
        """None where the first module is no plain projection; such a sequence is followed as it stands."""
        fits = type(module.module[0]) in FIRST and isinstance(module.output_modules, int)
        return cls(module) if fits else None

    def forward(self, x: Tensor, state: Any = None) -> tuple[Any, Any]:
        spikes = x.new_zeros(x.shape) if state is None else state.cache
        states = [None] * len(self.module) if state is None or state.state is None else list(state.state)
        y, outputs = self.module[0](x) + self.recurrent(self.before(spikes)), []
        outputs.append(y)
        for at, module in list(enumerate(self.module))[1:]:
            if self.module.stateful_layers[at]:
                y, states[at] = module(y, states[at])
            else:
                y = module(y)
            outputs.append(y)
        return outputs[self.chosen], RecurrentSequentialState(outputs[self.chosen], states)
