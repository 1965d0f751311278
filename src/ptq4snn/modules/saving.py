"""A quantized model as a bundle, and back: the same bits as before saving."""

from __future__ import annotations

import json
import warnings
from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import torch
from torch import Tensor, nn

from ptq4snn.bundle.format import IntegerArray, write_bundle
from ptq4snn.bundle.plan_arrays import detach
from ptq4snn.bundle.report_check import BUNDLE, REPORT, check_report
from ptq4snn.discovery.editing import edit_model
from ptq4snn.discovery.exclusion import is_inside
from ptq4snn.discovery.input_types import widened
from ptq4snn.discovery.opening import readable
from ptq4snn.discovery.projection_modules import is_projection
from ptq4snn.errors import BundleError, OutputError, RecipeError, UnsupportedOperation
from ptq4snn.files import check_target, is_file, write_whole
from ptq4snn.frameworks import Shell, adapter_of
from ptq4snn.frameworks.compound import OneToOne
from ptq4snn.hashing import file_digest
from ptq4snn.modules.projection import QuantProjection
from ptq4snn.network.program_json import program_to_json
from ptq4snn.numerics.grid import numbered
from ptq4snn.runtime.demand import Limits
from ptq4snn.runtime.loading import model_of, read_contents
from ptq4snn.schema.report_types import Report

if TYPE_CHECKING:
    from ptq4snn.modules.quantized import QuantizedModel

__all__ = ["load_model", "read_report", "save_model", "write_report"]

BIAS_BITS = 32


def signature(model: nn.Module) -> dict[str, Any]:
    """Names and shapes that a bundle fits: every projection and every neuron."""
    projections = {n: list(m.weight.shape) for n, m in model.named_modules() if is_projection(m)}
    return {
        "projections": projections,
        "neurons": [n for n, m in model.named_modules() if adapter_of(m) is not None],
    }


def leftovers(model: nn.Module, excluded: Collection[str], packed: Collection[str] = ()) -> dict[str, Tensor]:
    """Float parameters and buffers outside of quantized projections, neurons and folded norms, by name,
    without those that are `packed` as weights of edited calls."""
    out = {}
    inside = tuple(
        name + "."
        for name, m in model.named_modules()
        if (isinstance(m, (QuantProjection, Shell)) or is_projection(m)) and not is_inside(name, excluded)
    )
    for name, t in model.state_dict(keep_vars=False).items():
        if not name.startswith(inside) and t.is_floating_point() and name not in packed:
            out[name] = t
    return out


def save_model(q: QuantizedModel, path: Path, page: bool = False) -> None:
    """Write `path`, and beside it `path` + ".report.json" and, where asked for, ".report.html"."""
    if q.plan.arithmetic != "integer" or any(p.bits is None for p in q.plan.projections.values()):
        raise RecipeError(
            'a model with arithmetic "float" or float weights has no integers to store; quantize with '
            'arithmetic="integer" and 2 to 8 weight bits to save it'
        )
    try:
        for end in ("", f"{REPORT}.json", *([f"{REPORT}.html"] if page else [])):
            check_target(f"{path}{end}")
    except OutputError as why:
        raise BundleError(str(why)) from why
    integers = {}
    for name, i in q.integers.items():
        p = q.plan.projections[name]
        assert p.bits is not None
        integers[f"weights/{name}"] = IntegerArray(_int32(numbered(i.weight, p.odd)), p.bits)
        integers[f"biases/{name}"] = IntegerArray(_int32(i.bias), BIAS_BITS)
    html = _page(path, q) if page else None
    plan, plan_integers, plan_floats = detach(q.plan.to_dict())
    program = None if q.program is None else program_to_json(q.program)
    program, program_integers, _ = detach(program, "program")
    kept = leftovers(q.model, q.plan.excluded, {p for e in q.plan.edits for p in e.parameters})
    floats = {f"floats/{n}": t.detach().cpu().numpy() for n, t in kept.items()}
    header = {"plan": plan, "signature": q.signature, "program": program, "not_lowered": q.not_lowered}
    if q.source is not None:
        header["source"] = q.source
    integers |= {**plan_integers, **program_integers}
    write_bundle(path, header, integers, {**floats, **plan_floats})
    try:
        tie: Report = {"bundle": file_digest(path)} if q.report else {}
        write_report(Path(f"{path}{REPORT}.json"), {**q.report, **tie})
        beside = Path(f"{path}{REPORT}.html")
        if html is not None:
            write_whole(beside, html)
        elif beside.is_file():  # of the bundle before
            beside.unlink()
    except OSError as why:
        raise BundleError(f"the report {path}{REPORT}.json cannot be written: {why.strerror}") from why


def _page(path: Path, q: QuantizedModel) -> str:
    """The report's page."""
    from ptq4snn.report.page import render_page
    from ptq4snn.targets.ways_out import ways_of

    report = q.report
    if not report.get("summary"):
        raise BundleError(f"the model has no report to make a page of: save {path} without page=True")
    try:
        model = None if q.program is None else model_of(q.program, q.plan, q.integers)
        return render_page(report, path.name, ways=ways_of(q.plan, model))
    except (AttributeError, LookupError, TypeError, ValueError) as why:  # somebody edited the file
        raise BundleError(
            f"the model's report is not whole ({why!r}): save {path} without page=True"
        ) from why


def _int32(x: Tensor) -> Any:
    return x.detach().cpu().numpy().astype(np.int32)


def write_report(path: Path, report: Report) -> None:
    """As JSON, without NaN."""
    write_whole(path, json.dumps(report, indent=1, allow_nan=False))


def read_report(path: Path) -> dict[str, Any]:
    """The report in a file, its keys not checked; an empty one where there is none, or something else."""
    if not is_file(path):  # a pipe would be waited for
        return {}
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def load_model(path: Path, model: nn.Module, limits: Limits | None = None) -> QuantizedModel:
    """The quantized model of a bundle, which may ask for no more than `limits`, built into a copy of `model`,
    whose own weights do not matter."""
    from ptq4snn.modules.quantized import Integers, QuantizedModel

    found = read_contents(path, limits or Limits())
    model = widened(readable(model, found.plan.excluded))
    try:
        edit_model(model, found.plan.edits)
    except (AttributeError, RuntimeError, UnsupportedOperation, ValueError) as why:
        reason = " ".join(str(why).split())[:200]
        raise BundleError(
            f"{path} was made from another model ({reason}): give the model that was quantized"
        ) from why
    for name, module in model.named_modules():
        if isinstance(module, OneToOne) and module.each is None:
            module.grow(found.signature["projections"].get(f"{name}.each", [1])[0])
    _check_signature(path, found.signature, signature(model))
    integers = {n: Integers.of(_tensor(i.weight), _tensor(i.bias)) for n, i in found.integers.items()}
    try:
        q = QuantizedModel(model, found.plan, integers)
    except (AttributeError, IndexError, KeyError, RuntimeError, TypeError, ValueError) as why:
        reason = " ".join(str(why).split())[:200]
        raise BundleError(
            f"{path} was made from another model ({reason}): give the model that was quantized"
        ) from why
    q.program = None if found.model is None else found.model.program
    q.not_lowered, q.source = found.not_lowered, found.source
    own = q.model.state_dict()
    with torch.no_grad():
        for name, value in found.floats.items():
            if name not in own or own[name].shape != value.shape:
                raise BundleError(
                    f"{path} was made from another model: it has the parameter '{name[:200]}' of shape "
                    f"{list(value.shape)}, the model has not; give the model that was quantized"
                )
            own[name].copy_(torch.from_numpy(value))
    q.report = _own_report(path)
    return q


def _own_report(path: Path) -> Report:
    """The report beside a bundle; without one, or beside another bundle's, the model has none."""
    file = Path(f"{path}{REPORT}.json")
    report = read_report(file)
    try:
        if BUNDLE in report:
            check_report(report, file, path)
    except BundleError as why:
        warnings.warn(f"the model is loaded without a report: {why}", stacklevel=4)
        return {}
    return cast(Report, report)


def _tensor(a: Any) -> Tensor:
    return torch.from_numpy(np.asarray(a)).double()


def _check_signature(path: Path, stored: dict[str, Any], found: dict[str, Any]) -> None:
    a, b = stored["projections"], found["projections"]
    for name in [*a, *b]:
        if a.get(name) != b.get(name):
            raise BundleError(
                f"{path} was made from another model: '{name}' has shape {a.get(name)} there and "
                f"{b.get(name)} here; give the model that was quantized"
            )
    if stored["neurons"] != found["neurons"]:
        odd = sorted(set(stored["neurons"]) ^ set(found["neurons"]))
        raise BundleError(f"{path} was made from another model: its neurons differ ({', '.join(odd[:4])})")
