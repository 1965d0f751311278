"""Spiking networks that are built in, under the parameter names of their authors."""

from __future__ import annotations

from ptq4snn.extras import require

require("torch", "ptq4snn.models")
