"""No function takes more than six parameters: what belongs together is a value with a name.

And `pipeline.run`, which stands for the paper's algorithm, fits on one screen.
"""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterator
from pathlib import Path

import ptq4snn
from ptq4snn import pipeline

MOST = 6
SCREEN = 40  # lines
SOURCE = Path(ptq4snn.__file__).parent

# keyword options of a public entry point are the user's vocabulary; inwards they go on as values
PUBLIC = {
    "api.py:quantize", "evaluation/metrics.py:evaluate", "experiments/compare.py:compare",
    "export/c99/export.py:c", "export/onnx_form/export.py:onnx",
}  # fmt: skip
# stand in for functions of torch, whose signature they must have
TORCH = {f"numerics/gradients.py:{name}" for name in ("_conv2d", "_conv_transpose2d", "_conv3d")}
# the settings of an architecture, given by keyword in models/trained.py and models/published.py
ARCHITECTURES = {
    "models/fpn.py:SpikeFPN.__init__",
    "models/meta_spikeformer.py:Backbone.__init__",
    "models/meta_spikeformer.py:MetaSpikeFormer.__init__",
    "models/qkformer.py:QKFormer.__init__",
    "models/sdt.py:SpikeDrivenTransformer.__init__",
    "models/sew_resnet.py:SEWResNet.__init__",
    "models/sew_resnet.py:sew_resnet",
    "models/spikformer.py:Spikformer.__init__",
    "models/vgg.py:SpikingVGG.__init__",
}


def functions(node: ast.AST, inside: str = "") -> Iterator[tuple[str, int]]:
    """Every function below `node` by its qualified name, and how many parameters a caller sees."""
    for child in ast.iter_child_nodes(node):
        name = inside
        if isinstance(child, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            name = f"{inside}.{child.name}".lstrip(".")
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
            a = child.args
            named = [p for p in (*a.posonlyargs, *a.args, *a.kwonlyargs) if p.arg not in ("self", "cls")]
            yield name, len(named)
        yield from functions(child, name)


def test_no_function_has_more_than_six_parameters() -> None:
    found = [
        (f"{path.relative_to(SOURCE).as_posix()}:{name}", count)
        for path in SOURCE.rglob("*.py")
        for name, count in functions(ast.parse(path.read_text(encoding="utf-8")))
    ]
    assert len(found) > 1000
    assert {name for name, count in found if count > MOST} == PUBLIC | TORCH | ARCHITECTURES


def test_the_algorithm_fits_on_one_screen() -> None:
    assert len(inspect.getsource(pipeline.run).splitlines()) <= SCREEN
