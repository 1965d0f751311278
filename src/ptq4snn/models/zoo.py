"""Built-in models by name."""

from __future__ import annotations

from ptq4snn.models.sew_resnet import SEWResNet

__all__ = ["default_model"]


def default_model(T: int = 4) -> SEWResNet:
    """The embedded default: a SEW-ResNet for CIFAR-10 with 0.6 M parameters."""
    return SEWResNet(widths=(48, 96, 128), blocks=(1, 2, 1), strides=(2, 2, 2), stem=32, T=T)
