"""The packed integer runtime: a bundle runs without torch.

rt = ptq4snn.runtime.load("model.ptq")
y = rt(x)                                   # whole sequences
y = rt.step(frame); rt.state.save("s")      # one step after the other
"""

from __future__ import annotations

from ptq4snn.runtime.engine import Runtime, load
from ptq4snn.runtime.loading import load_model_file, model_of
from ptq4snn.runtime.state import State

__all__ = ["Runtime", "State", "load", "load_model_file", "model_of"]
