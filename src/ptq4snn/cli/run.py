"""`ptq4snn run`: the outputs of a bundle for samples, as integers; of files of arrays without torch."""

from __future__ import annotations

import argparse
import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ptq4snn.cli.bundle_data import inputs_for
from ptq4snn.cli.limits import limits_of
from ptq4snn.errors import DataError, PTQ4SNNError
from ptq4snn.files import check_target, write_whole
from ptq4snn.runtime import Runtime, State, load

__all__ = ["run"]

Array = NDArray[np.float32]
SHOWN = 16  # samples whose classes are printed


def run(args: argparse.Namespace) -> None:
    check(args)
    rt = load(args.bundle, kernels=args.kernels, threads=args.threads, limits=limits_of(args))
    inputs = inputs_for(args.input, rt.model.program)
    if args.stream:
        arrays = list(inputs)
        axis = rt.model.program.input.batch_axis
        x = arrays[0] if len(arrays) == 1 else np.concatenate(arrays, axis)  # all samples at every step
        found = _tuple(stream(rt, x, args))
    else:
        found = whole(rt, inputs, args.steps)
    if args.out is not None:
        write_whole(Path(args.out), encoded(found))
    if args.json:
        print(json.dumps(facts(found, args), indent=2))
        return
    for line in sentences(found, args):
        print(line)


def check(args: argparse.Namespace) -> None:
    """What can be said before anything is loaded."""
    if not args.stream and (args.state or args.save_state):
        raise PTQ4SNNError("--state and --save-state need --stream: whole sequences start from rest")
    for option, name in (("--out", args.out), ("--save-state", args.save_state)):
        if name is not None:
            check_target(name, option)


def whole(rt: Runtime, inputs: Iterator[Array], steps: int | None) -> tuple[Any, ...]:
    """The outputs of all samples, array by array, joined on the axis of the samples."""
    parts = [_tuple(rt(x, steps=steps)) for x in inputs]
    if not parts:
        raise DataError("there are no samples to run")
    axes = [out.given_axes[0] for out in rt.model.program.outputs]
    joined = zip(axes, zip(*parts, strict=True), strict=True)
    return tuple(p[0] if len(p) == 1 else np.concatenate(p, axis) for axis, p in joined)


def _tuple(outputs: Any) -> tuple[Any, ...]:
    return outputs if isinstance(outputs, tuple) else (outputs,)


def stream(rt: Any, x: Array, args: argparse.Namespace) -> Any:
    """Step by step, from a saved state or from rest; the outputs are those after the last step."""
    if args.state is not None:
        rt.restore(State.load(args.state))
    outputs = None
    for frame in frames(x, rt.model.program, args.steps):
        outputs = rt.step(frame)
    if outputs is None:
        raise DataError(f"{args.input} has no time steps: give at least one")
    if args.save_state is not None:
        rt.state.save(args.save_state)
    return outputs


def frames(x: Array, program: Any, steps: int | None) -> list[Array]:
    """What each step sees: the frames of a sequence, or a still image again and again."""
    axis = program.input.time_axis
    if axis is None:
        return [x] * (steps or program.steps)
    if x.ndim <= axis:
        raise DataError(f"the input has {x.ndim} axes, but the model's time is axis {axis}: give sequences")
    if steps not in (None, x.shape[axis]):
        raise DataError(f"--steps {steps}, but the input has {x.shape[axis]} time steps: leave --steps away")
    return list(np.moveaxis(x, axis, 0))


def encoded(outputs: tuple[Any, ...]) -> bytes:
    """As .npy; several outputs as .npz, in which they are output0, output1 ..."""
    file = io.BytesIO()
    if len(outputs) == 1:
        np.save(file, outputs[0], allow_pickle=False)
    else:
        np.savez(file, allow_pickle=False, **{f"output{i}": a for i, a in enumerate(outputs)})
    return file.getvalue()


def ranked(logits: NDArray[Any], count: int) -> list[list[dict[str, float]]]:
    """The largest outputs of each sample [B, classes]; of equal ones the first class."""
    order = np.argsort(-logits, axis=1, kind="stable")[:, :count]
    return [
        [{"class": int(c), "output": float(row[c])} for c in best]
        for row, best in zip(logits, order, strict=True)
    ]


def facts(outputs: tuple[Any, ...], args: argparse.Namespace) -> dict[str, Any]:
    out: dict[str, Any] = {"outputs": [list(a.shape) for a in outputs], "file": args.out}
    if outputs[0].ndim == 2:
        out["classes"] = ranked(outputs[0], args.top)
    return out


def sentences(outputs: tuple[Any, ...], args: argparse.Namespace) -> list[str]:
    if args.out is not None:
        shapes = " and ".join("x".join(map(str, a.shape)) for a in outputs)
        return [f"wrote {args.out}: {shapes}"]
    if outputs[0].ndim != 2:
        shapes = " and ".join("x".join(map(str, a.shape)) for a in outputs)
        return [f"outputs of shape {shapes}: write them to a file with --out"]
    lines = [
        f"sample {i}: " + ", ".join(f"class {c['class']} ({c['output']:.4g})" for c in best)
        for i, best in enumerate(ranked(outputs[0][:SHOWN], args.top))
    ]
    more = len(outputs[0]) - SHOWN
    return lines + ([f"and {more:,} more: write them to a file with --out"] if more > 0 else [])
