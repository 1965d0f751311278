"""Ways out of a bundle, without torch: the integer program as something else runs it."""

from ptq4snn.export.c99.export import CSource, c

__all__ = ["CSource", "c"]
