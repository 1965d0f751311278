"""A QONNX file in other people's hands: the package qonnx executes it, hls4ml turns it into C++ that runs.

    python tests/export/qonnx_reader.py qonnx|hls4ml FILE.onnx INPUTS.npz OUT.npz

INPUTS has one array for each input of the graph, with one entry for each call; OUT gets one for each output,
in their order (hls4ml's own).
"""

from __future__ import annotations

import sys
import tempfile
from typing import Any

import numpy as np
import onnx
from onnx import helper


def older_ir() -> None:
    """qonnx runs nodes one by one as models of onnx's newest IR, which onnxruntime may not know yet."""
    newest = helper.make_model

    def make_model(*args: Any, **kwargs: Any) -> Any:
        made = newest(*args, **kwargs)
        made.ir_version = min(made.ir_version, 10)
        return made

    helper.make_model = make_model


def by_qonnx(file: str, calls: list[list[Any]]) -> list[list[Any]]:
    from qonnx.core.modelwrapper import ModelWrapper
    from qonnx.core.onnx_exec import execute_onnx
    from qonnx.transformation.infer_shapes import InferShapes

    model = ModelWrapper(onnx.load(file)).transform(InferShapes())
    names = [i.name for i in model.graph.input]
    found = [execute_onnx(model, dict(zip(names, inputs, strict=True))) for inputs in calls]
    return [[outputs[o.name] for o in model.graph.output] for outputs in found]


def by_hls4ml(file: str, calls: list[list[Any]]) -> list[list[Any]]:
    import hls4ml
    from qonnx.core.modelwrapper import ModelWrapper
    from qonnx.util.cleanup import cleanup_model

    model = cleanup_model(ModelWrapper(onnx.load(file)))
    config = hls4ml.utils.config.config_from_onnx_model(
        model, granularity="name", backend="Vitis", default_precision="fixed<56,36>"
    )
    with tempfile.TemporaryDirectory() as folder:
        built = hls4ml.converters.convert_from_onnx_model(
            model, output_dir=folder, io_type="io_parallel", backend="Vitis", hls_config=config
        )
        built.compile()
        found = [built.predict(inputs) for inputs in calls]
    return [list(outputs) for outputs in found]


def main() -> None:
    who, file, given, out = sys.argv[1:]
    older_ir()
    with np.load(given) as kept:
        calls = [list(row) for row in zip(*(kept[str(i)] for i in range(len(kept.files))), strict=True)]
    found = (by_qonnx if who == "qonnx" else by_hls4ml)(file, calls)
    flat = [[np.asarray(y, np.float32).reshape(-1) for y in outputs] for outputs in found]
    stacked: Any = {str(i): np.stack([outputs[i] for outputs in flat]) for i in range(len(flat[0]))}
    np.savez(out, **stacked)


if __name__ == "__main__":
    main()
