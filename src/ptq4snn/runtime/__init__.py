"""The packed integer runtime: a bundle runs without torch.

rt = ptq4snn.runtime.load("model.ptq")
y = rt(x)                                   # whole sequences
y = rt.step(frame); rt.state.save("s")      # one step after the other
"""

from __future__ import annotations

from ptq4snn.runtime.demand import Demand, Limits
from ptq4snn.runtime.engine import Runtime, load
from ptq4snn.runtime.loading import estimate, load_model_file, model_of
from ptq4snn.runtime.state import State

__all__ = ["Demand", "Limits", "Runtime", "State", "estimate", "load", "load_model_file", "model_of"]
