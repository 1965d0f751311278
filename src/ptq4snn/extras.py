"""Packages that only a part of the work needs: whether they are there, and the command that installs them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec

from ptq4snn.errors import MissingExtra

__all__ = ["EXTRAS", "is_there", "needed_by", "needs", "require"]

# module: what people call it, the extra of pyproject.toml that brings it
EXTRAS = {
    "torch": ("torch", "torch"),
    "rich": ("rich", "cli"),
    "jinja2": ("Jinja2", "report"),
    "PIL": ("Pillow", "images"),
    "vl_convert": ("vl-convert", "figures"),
    "nir": ("nir", "nir"),
    "onnx": ("onnx", "onnx"),
    "h5py": ("h5py", "nir"),
    "ray": ("Ray", "ray"),
}


def is_there(module: str) -> bool:
    """Whether it can be imported; it is not."""
    try:
        return find_spec(module) is not None
    except ImportError:
        return False


def needs(what: str, module: str, otherwise: str = "") -> str:
    """What needs which package, the command that installs it, and what else would do."""
    name, extra = EXTRAS[module]
    command = f'{what} needs {name}: pip install "ptq4snn[{extra}]"'  # cmd.exe knows these quotes only
    return f"{command}, {otherwise}" if otherwise else command


def require(module: str, what: str) -> None:
    """Said before the work: `what` needs it."""
    if not is_there(module):
        raise MissingExtra(needs(what, module), name=module)


@contextmanager
def needed_by(what: str, otherwise: str = "") -> Iterator[None]:
    """A package that is missing inside becomes one sentence: `what` needs it."""
    try:
        yield
    except ModuleNotFoundError as why:
        if why.name not in EXTRAS:
            raise
        raise MissingExtra(needs(what, why.name, otherwise), name=why.name) from why
