"""What `--data` names: an embedded sample, a data set, a file of arrays, or the user's factory."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np
from torch import Tensor

from ptq4snn.data.arrays import READERS
from ptq4snn.data.batches import ArraySamples, BatchAxis, OneByOne, file_samples
from ptq4snn.data.cifar import normalize
from ptq4snn.data.event_sample import NAME as NMNIST_SAMPLE
from ptq4snn.data.event_sample import fits, nmnist_sample
from ptq4snn.data.registry import DATA, Split, recognise
from ptq4snn.data.sample import default_sample
from ptq4snn.data.samples import Batch, Preprocessing, SampleBatches, Samples
from ptq4snn.data.users_code import UsersSamples, users_batches
from ptq4snn.errors import DataError
from ptq4snn.factory import find_factory, run_factory
from ptq4snn.files import short
from ptq4snn.forms import as_tensor, is_data_set, is_pair
from ptq4snn.hints import hint

__all__ = [
    "DATA", "EMBEDDED", "Batching", "Split", "embedded_for", "has_splits", "open_data", "open_labelled",
    "open_samples",
]  # fmt: skip

PLAIN = Preprocessing()
EMBEDDED = ("default", NMNIST_SAMPLE)  # of cifar10 and of nmnist


@dataclass(frozen=True)
class Batching:
    """How samples become batches."""

    size: int = 64
    axis: int = 0  # of the samples in a batch
    workers: int = 0  # processes that read
    count: int | None = None  # samples at most
    seed: int = 0  # of the order, where samples are mixed


def open_data(
    spec: str,
    split: Split,
    batching: Batching | None = None,
    preprocessing: Preprocessing = PLAIN,
    name: str | None = None,
) -> Iterable[Batch]:
    """Batches x, or (x, y) where there are labels, of what `spec` names.

    default, nmnist-sample: the embedded samples of CIFAR-10 and of N-MNIST.
    NAME:PATH, or a PATH that holds a data set: see `open_samples`. Where it is sorted by class, calibration
        and a count take samples in a random order, which the seed fixes.
    a .npy, .npz or .safetensors file: its x (and y), whatever the split.
    package.module:factory: what factory(split) returns, or factory() if it takes no argument: a tensor,
        (x, y), a data set of samples, or an iterable of batches, of which each is handed on as it is.
        What they raise is one sentence.
    """
    batching = batching or Batching()
    if spec in EMBEDDED:
        return _chosen(_embedded(spec, split, preprocessing), batching)
    if _is_data_set(spec):
        samples = open_samples(spec, split, preprocessing, name)
        order = _order(samples, split, batching)
        size = 1 if getattr(samples, "sizes_differ", False) else batching.size
        moved = samples if batching.axis == 0 else BatchAxis(samples, batching.axis)
        return SampleBatches(moved, size, batching.workers, order)
    path = Path(spec)
    if path.suffix in READERS:
        return _chosen(file_samples(path, batching.axis), batching)
    if ":" in spec:
        made: Any = _factory(spec, split)
        if isinstance(made, Tensor | np.ndarray):
            return _chosen(ArraySamples(dense(made), None, batching.axis, spec), batching)
        if is_pair(made, batching.axis):
            return _chosen(ArraySamples(dense(made[0]), dense(made[1]), batching.axis, spec), batching)
        if is_data_set(made):
            return _chosen(OneByOne(UsersSamples(made, spec), batching.axis), batching)
        batches: Iterable[Batch] = users_batches(made, spec)
        return batches
    if path.exists():
        raise DataError(
            f"{spec} has the ending {short(path.suffix)!r}: give a .npy, .npz or .safetensors file"
        )
    raise DataError(
        f"there is no data {short(spec)!r}: give {' or '.join(EMBEDDED)}, the folder of a data set "
        f"({', '.join(DATA)}), NAME:FOLDER, a .npy, .npz or .safetensors file, or package.module:factory"
    )


def open_samples(
    spec: str, split: Split, preprocessing: Preprocessing = PLAIN, name: str | None = None
) -> Samples:
    """The data set at `NAME:PATH`, or at a plain PATH: then `name` says what it is, or else its content."""
    chosen, path = _named(spec)
    try:
        there = path.exists()
        chosen = chosen or name or recognise(path)
    except (OSError, ValueError) as e:
        raise DataError(_no_name(spec, e)) from e
    if not there:
        raise DataError(f"there is no data {short(path)!r}: give the folder or file of a data set")
    if chosen is None:
        raise DataError(f"{path} holds none of the data sets {', '.join(DATA)}: say which it is, NAME:{path}")
    if chosen not in DATA:
        raise DataError(_unknown(chosen))
    return DATA[chosen].open(path, split, preprocessing)


def open_labelled(
    spec: str, split: Split, preprocessing: Preprocessing = PLAIN, name: str | None = None
) -> Samples:
    """Samples with labels, to train on: a data set, a file of x and y, or what a factory makes.

    package.module:factory returns (x, y), a map-style data set whose `made[3]` is (x, y) of a sample, or
    one whose `made[[3, 1]]` is that of two.
    """
    path = Path(spec)
    if _is_data_set(spec):
        return open_samples(spec, split, preprocessing, name)
    if path.suffix in READERS:
        return _labelled(file_samples(path, 0), spec)
    if ":" not in spec:
        return open_samples(spec, split, preprocessing, name)  # which says what is wrong
    made = _made(spec, split)
    if isinstance(made, tuple | list) and len(made) == 2:
        x, y = (v if isinstance(v, Tensor) else np.asarray(v) for v in made)
        return _labelled(ArraySamples(x, y, name=spec), spec)
    return _own_samples(made, spec)


def has_splits(spec: str) -> bool:
    """Whether training and test samples of `spec` are different ones."""
    if _is_data_set(spec):
        return True
    return Path(spec).suffix not in READERS and ":" in spec and _takes_argument(find_factory(spec))


def _own_samples(made: Any, spec: str) -> Samples:
    """A data set of the user's, read by lists of numbers or one by one."""
    kind = type(made).__name__
    known = hasattr(made, "__getitem__") and hasattr(made, "__len__")
    if not known or isinstance(made, Tensor | np.ndarray | str | bytes):
        raise DataError(f"{spec} returned a {kind}: return (x, y), with a label for each sample")
    own = UsersSamples(made, spec)
    for samples in (own, OneByOne(own)):
        try:
            x, y = samples[[0]]
            if isinstance(x, Tensor) and isinstance(y, Tensor) and len(x) == len(y) == 1:
                return cast("Samples", samples)
        except (
            Exception
        ):  # what it raises for a list is its own affair; the sentence below says what is wanted
            continue
    raise DataError(f"{spec} returned a {kind} whose samples are not pairs (x, label): return such pairs")


def _labelled(samples: ArraySamples, spec: str) -> Samples:
    if samples.y is None:
        raise DataError(f"{spec} holds no labels y: training needs one for each sample")
    labelled: Any = samples
    return cast("Samples", labelled)


def _named(spec: str) -> tuple[str | None, Path]:
    """NAME and PATH of `NAME:PATH`; no name for anything else."""
    name, _, rest = spec.partition(":")
    if name in DATA and rest:
        return name, Path(rest).expanduser()  # a shell leaves ~ behind a colon alone
    if "/" in rest and Path(rest).expanduser().exists():  # no factory has a name like this
        raise DataError(_unknown(name))
    return None, Path(spec)


def _unknown(name: str) -> str:
    return f"there is no data set {name!r}: {hint(name, DATA)}"


def _is_data_set(spec: str) -> bool:
    """Whether `spec` names a data set rather than a file of x and y, a factory or nothing."""
    try:
        name, path = _named(spec)
        return name is not None or path.is_dir() or recognise(path) is not None
    except (OSError, ValueError) as e:  # a name that is too long, or has a zero byte
        raise DataError(_no_name(spec, e)) from e


def _no_name(spec: str, why: OSError | ValueError) -> str:
    """Why no file or folder can be called so."""
    reason = (why.strerror if isinstance(why, OSError) else None) or str(why)
    return f"there is no data {short(spec)!r}: {reason[0].lower()}{reason[1:]}"


def _order(samples: Samples, split: Split, batching: Batching) -> Sequence[int]:
    """Which samples to read, in which order; nothing is loaded for it."""
    count = batching.count
    mixed = split == "calibration" or count is not None
    if mixed and getattr(samples, "sorted_by_class", False):
        order: list[int] = np.random.default_rng(batching.seed).permutation(len(samples))[:count].tolist()
        return order
    return range(len(samples))[:count]


def dense(values: Any) -> Any:
    """An array as it is; a tensor that holds its numbers one by one."""
    return as_tensor(values) if isinstance(values, Tensor) else values


def _chosen(samples: ArraySamples | OneByOne, batching: Batching) -> SampleBatches[Batch]:
    order = range(len(samples))[: batching.count]
    return SampleBatches(samples, batching.size, batching.workers, order)


def embedded_for(data: str, preprocessing: Preprocessing) -> str | None:
    """The embedded sample of a data set, if there is one as a model wants it."""
    if data == "nmnist":
        return NMNIST_SAMPLE if fits(preprocessing) else None
    return "default" if data == "cifar10" else None


def _embedded(spec: str, split: Split, preprocessing: Preprocessing) -> ArraySamples:
    """Training samples have no labels, test samples do."""
    if spec == NMNIST_SAMPLE:
        calibration, test, labels = nmnist_sample(preprocessing)
    else:
        calibration, test, labels = default_sample()
        calibration, test = normalize(calibration), normalize(test)
    if split in ("train", "calibration"):
        return ArraySamples(calibration, name=spec)
    return ArraySamples(test, labels, name=spec)


def _made(spec: str, split: Split) -> Any:
    factory = find_factory(spec)
    return run_factory(spec, factory, *([split] if _takes_argument(factory) else []))


def _factory(spec: str, split: Split) -> Any:
    made = _made(spec, split)
    if not isinstance(made, Iterable) and not is_data_set(made):
        raise DataError(
            f"{spec} returned a {type(made).__name__}: return a tensor, (x, y), a data set or an iterable of "
            "batches"
        )
    return made


def _takes_argument(factory: Callable[..., Any]) -> bool:
    """Whether the split can be given as the first argument."""
    try:
        inspect.signature(factory).bind("test")
    except (TypeError, ValueError):
        return False
    return True
