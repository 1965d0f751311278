"""The command line `ptq4snn COMMAND`, one module a command. Importing it does not import torch."""

from __future__ import annotations

from ptq4snn.cli.main import main

__all__ = ["main"]
