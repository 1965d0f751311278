"""One hierarchy: every message says what happened, where, and what to do. The command line exits with 2."""

from __future__ import annotations

__all__ = [
    "BundleError",
    "Cancelled",
    "CheckpointError",
    "DataError",
    "ExactnessError",
    "FoldingError",
    "GoalNotReached",
    "MemoryWarning",
    "MissingExtra",
    "OutOfMemory",
    "OutputError",
    "PTQ4SNNError",
    "RecipeError",
    "SilentNetworkWarning",
    "TeamError",
    "ToldElsewhere",
    "UnsupportedModel",
    "UnsupportedNeuron",
    "UnsupportedOperation",
    "first_line",
]


class PTQ4SNNError(Exception):
    """Base of everything the user can cause and mend."""

    speaks = False  # set where processes share a run, and this one is the one to tell it


class TeamError(PTQ4SNNError):
    """Processes that shared a run and lost each other."""


class ToldElsewhere(TeamError):
    """Another of the processes that share a run says why it ends."""


class RecipeError(PTQ4SNNError):
    """A recipe that cannot be carried out."""


class DataError(PTQ4SNNError):
    """Samples that cannot be used: none, wrong shape, NaN."""


class CheckpointError(PTQ4SNNError):
    """A checkpoint that cannot be read or does not fit the model."""


class UnsupportedModel(PTQ4SNNError):
    """A model that cannot be quantized as a whole: no neurons, no projections."""


class UnsupportedNeuron(PTQ4SNNError):
    """A neuron that has no exact canonical form."""


class UnsupportedOperation(PTQ4SNNError):
    """An operation through which integers cannot be followed."""


class FoldingError(PTQ4SNNError):
    """The folded model does not spike like the original."""


class ExactnessError(PTQ4SNNError):
    """Integer program and simulation disagree: a fault of this library, not of the user."""


class GoalNotReached(PTQ4SNNError):
    """Not even the widest model keeps the accuracy or agreement that was asked for; nothing is made."""


class OutputError(PTQ4SNNError):
    """A place where no file can be written: a folder, a device, a pipe, a name that cannot be."""


class Cancelled(PTQ4SNNError):
    """A call that another thread ended, by `rt.cancel()`."""


class BundleError(PTQ4SNNError):
    """A bundle that is truncated, altered, of another version or of another model."""


class MissingExtra(PTQ4SNNError, ImportError):
    """A package that only a part of the work needs is not installed."""


class OutOfMemory(PTQ4SNNError, MemoryError):
    """There is no memory for what cannot be done in smaller parts."""


class MemoryWarning(UserWarning):
    """Memory ran out: fewer samples run at once from here on, with the same results."""


class SilentNetworkWarning(UserWarning):
    """A layer that never fires, before or after quantization."""


def first_line(why: BaseException) -> str:
    """What an exception of somebody else says, one line of it; its type where it says nothing."""
    return next(iter(str(why).splitlines()), "") or type(why).__name__
