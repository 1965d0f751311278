"""Built-in models by name."""

from __future__ import annotations

from collections.abc import Callable
from importlib.resources import as_file, files

from torch import nn

from ptq4snn.models.sew_resnet import SEWResNet

__all__ = ["MODELS", "default_model", "load_default"]


def default_model(T: int = 4) -> SEWResNet:
    """The embedded default: a SEW-ResNet for CIFAR-10 with 0.6 M parameters."""
    return SEWResNet(widths=(48, 96, 128), blocks=(1, 2, 1), strides=(2, 2, 2), stem=32, T=T)


def load_default(T: int = 4) -> SEWResNet:
    """The embedded default with its trained weights (scripts/train_default.py), in eval mode."""
    from ptq4snn.checkpoint import load_checkpoint

    model = default_model(T)
    with as_file(files("ptq4snn") / "assets" / "default.safetensors") as path:
        load_checkpoint(model, path)
    return model.eval()


MODELS: dict[str, Callable[[], nn.Module]] = {"default": load_default}
