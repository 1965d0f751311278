"""Ways out of a bundle, without torch: the integer program as something else runs it."""

from ptq4snn.export.onnx_form.export import onnx

__all__ = ["onnx"]
