"""Small models that are trained here. Weights of the demo's two are in assets/, others in weights/."""

from __future__ import annotations

from functools import partial

from ptq4snn.data.samples import Preprocessing
from ptq4snn.models.entry import Entry
from ptq4snn.models.fpn import SpikeFPN
from ptq4snn.models.meta_spikeformer import MetaSpikeFormer
from ptq4snn.models.neuron import LIF
from ptq4snn.models.sdt import SpikeDrivenTransformer
from ptq4snn.models.sew_resnet import SEWResNet
from ptq4snn.models.vgg import SpikingVGG

__all__ = ["TRAINED"]

CIFAR = (3, 32, 32)
# soft reset and a leak of 0.95: states pile up over many steps, where 4 bits are hard
slow = partial(LIF, tau=20.0, decay_input=False, v_reset=None)

TRAINED: dict[str, Entry] = {
    "default": Entry(
        SEWResNet,
        {"widths": (48, 96, 128), "blocks": (1, 2, 1), "strides": (2, 2, 2), "stem": 32},
        "cifar10",
        CIFAR,
        checkpoint="default.safetensors",
    ),
    "sew-resnet10-48-cifar10": Entry(
        SEWResNet,
        {"widths": (48, 96, 192), "blocks": (1, 2, 1), "strides": (2, 2, 2), "stem": 32},
        "cifar10",
        CIFAR,
        checkpoint="sew-resnet10-48-cifar10.safetensors",
    ),
    "sew-resnet10-48-cifar100": Entry(
        SEWResNet,
        {
            "widths": (48, 96, 192),
            "blocks": (1, 2, 1),
            "strides": (2, 2, 2),
            "stem": 32,
            "num_classes": 100,
        },
        "cifar100",
        CIFAR,
        checkpoint="sew-resnet10-48-cifar100.safetensors",
    ),
    "sdt-2-128-cifar10": Entry(
        SpikeDrivenTransformer,
        {"width": 128, "pooling": "0111"},
        "cifar10",
        CIFAR,
        checkpoint="sdt-2-128-cifar10.safetensors",
    ),
    "sdt-2-128-cifar100": Entry(
        SpikeDrivenTransformer,
        {"width": 128, "pooling": "0111", "num_classes": 100},
        "cifar100",
        CIFAR,
        checkpoint="sdt-2-128-cifar100.safetensors",
    ),
    "vgg8-32-cifar10": Entry(
        SpikingVGG,
        {"widths": ((32,), (64, 64), (96, 96), (128, 128))},
        "cifar10",
        CIFAR,
        checkpoint="vgg8-32-cifar10.safetensors",
    ),
    "metaspikeformer-32-cifar10": Entry(
        MetaSpikeFormer,
        {"widths": (32, 48, 96, 96), "depths": (1, 1), "strides": (2, 2, 1, 2), "num_classes": 10},
        "cifar10",
        CIFAR,
        checkpoint="metaspikeformer-32-cifar10.safetensors",
    ),
    "sdt-2-96-cifar10-dvs-sim": Entry(
        SpikeDrivenTransformer,
        {"width": 96, "in_channels": 2, "T": 10, "pooling": "0111", "dvs": True},
        "cifar10-dvs-sim",
        (10, 2, 32, 32),
        Preprocessing(size=32, steps=10),
        checkpoint="sdt-2-96-cifar10-dvs-sim.safetensors",
    ),
    "sdt-2-64-nmnist": Entry(
        SpikeDrivenTransformer,
        {"width": 64, "in_channels": 2, "T": 10, "dvs": True},
        "nmnist",
        (10, 2, 32, 32),
        Preprocessing(size=32, steps=10),
        checkpoint="sdt-2-64-nmnist.safetensors",
    ),
    "vgg4-16-nmnist-slow": Entry(
        SpikingVGG,
        {"widths": ((16,), (32,), (64, 64)), "in_channels": 2, "T": 25, "neuron": slow, "dvs": True},
        "nmnist",
        (25, 2, 32, 32),
        Preprocessing(size=32, steps=25),
        checkpoint="vgg4-16-nmnist-slow.safetensors",
    ),
    "sdt-fpn-16-camvid": Entry(
        SpikeFPN,
        {"widths": (16, 32, 64, 96), "channels": 32, "depths": (1, 1), "num_classes": 11},
        "camvid",
        (3, 176, 240),
        Preprocessing(size=(176, 240)),
        checkpoint="noncommercial/sdt-fpn-16-camvid.safetensors",
    ),
}
