"""The integer program as an ONNX model of standard operators."""
