"""The published models, in their authors' sizes and with their authors' preprocessing.

Images of ImageNet: the shorter side is scaled to `resize`, then 224 x 224 pixels are cut out of the middle.
Recordings of CIFAR10-DVS: T frames of equally many events. VOC2012: whole images, shorter side 512.
"""

from __future__ import annotations

from typing import Any, Literal

from ptq4snn.data.samples import Preprocessing
from ptq4snn.models.entry import Entry, Official
from ptq4snn.models.fpn import SpikeFPN
from ptq4snn.models.meta_spikeformer import MetaSpikeFormer
from ptq4snn.models.neuron import LIF
from ptq4snn.models.qkformer import QKFormer
from ptq4snn.models.sdt import SpikeDrivenTransformer
from ptq4snn.models.sew_resnet import sew_resnet
from ptq4snn.models.spikformer import Spikformer
from ptq4snn.models.vgg import SpikingVGG

__all__ = ["PUBLISHED"]

CIFAR, IMAGE, SCENE = (3, 32, 32), (3, 224, 224), (3, 512, 512)
CIFAR10_COLOURS = Preprocessing(mean=(0.4914, 0.4822, 0.4465), std=(0.2470, 0.2435, 0.2616))

SDT = "github.com/BICLab/Spike-Driven-Transformer"
SDT2 = "github.com/BICLab/Spike-Driven-Transformer-V2"
SEW = "github.com/fangwei123456/Spike-Element-Wise-ResNet"
SPIKINGJELLY = "github.com/fangwei123456/spikingjelly"
SPIKFORMER = "github.com/ZK-Zhou/spikformer"
QKFORMER = "github.com/zhouchenlin2096/QKFormer"
MERGED = (
    "measured with merged_state=True, which lets a state run on from one sample to the next, at batch 32; "
    "here samples are apart"
)


def imagenet(resize: int, interpolation: Literal["bilinear", "bicubic"] = "bicubic") -> Preprocessing:
    return Preprocessing(resize=resize, size=224, interpolation=interpolation)


def sdt_image(depth: int, width: int, file: str | None, accuracy: float, note: str = "") -> Entry:
    settings = {"width": width, "depth": depth, "num_classes": 1000, "pooling": "1111"}
    official = Official(SDT, file or f"weights {depth}-{width} of the README", accuracy, note)
    return Entry(
        SpikeDrivenTransformer, settings, "imagenet", IMAGE, imagenet(235), official=official
    )  # 224 / 0.95


def sew_image(depth: int, accuracy: float) -> Entry:
    official = Official(SEW, f"sew{depth}_checkpoint_319.pth", accuracy)
    return Entry(
        sew_resnet, {"depth": depth}, "imagenet", IMAGE, imagenet(256, "bilinear"), official=official
    )


def meta_image(settings: dict[str, Any], official: Official) -> Entry:
    return Entry(MetaSpikeFormer, settings, "imagenet", IMAGE, imagenet(256), official=official)


def qk_image(width: int, heads: int, file: str, accuracy: float) -> Entry:
    settings = {
        "width": width, "heads": heads, "depths": (1, 2, 7), "num_classes": 1000, "layout": "imagenet",
    }  # fmt: skip
    official = Official(QKFORMER, f"output_dir_qkformer_{file}.pth", accuracy, MERGED)
    return Entry(QKFormer, settings, "imagenet", IMAGE, imagenet(256), official=official)


def spikformer_image(width: int) -> Entry:
    settings = {
        "width": width, "depth": 8, "heads": 8, "num_classes": 1000, "pooling": "1111", "kind": "conv2d",
    }  # fmt: skip
    return Entry(Spikformer, settings, "imagenet", IMAGE, imagenet(224), official=Official(SPIKFORMER))


def fpn(widths: tuple[int, ...], channels: int) -> Entry:
    return Entry(
        SpikeFPN,
        {"widths": widths, "channels": channels},
        "voc2012",
        SCENE,
        Preprocessing(resize=512, interpolation="bilinear"),
        official=Official(SDT2, note="150 outputs whatever the data set; VOC2012 uses the first 21"),
    )


SDT_DVS = {"in_channels": 2, "T": 10, "dvs": True}
SPIKFORMER_DVS = {
    "width": 256, "depth": 2, "heads": 16, "in_channels": 2, "T": 16, "pooling": "1111", "scale": 0.25,
    "kind": "conv1d", "tokens": 64,
}  # fmt: skip
QK_DVS = {
    "width": 256, "depths": (1, 1), "heads": 16, "in_channels": 2, "T": 16, "mlp_ratio": 1,
    "layout": "events",
}  # fmt: skip
SEW_CIFAR = {"depth": 18, "stem_kind": "cifar", "neuron": LIF}
SMALL, LARGE = (96, 192, 384, 480), (128, 256, 512, 640)
SDT_CIFAR = Official(SDT, note="no weights were published for CIFAR and CIFAR10-DVS")
SJ_SEW = Official(SPIKINGJELLY, note="sew_resnet18(cnf='ADD') with a 3x3 stem and no first pooling")
SJ_VGG = Official(SPIKINGJELLY, note="spiking_vgg16_bn with avgpool 1 and one linear layer behind it")
SJ_STOCK = Official(SPIKINGJELLY, note="spiking_vgg16_bn as it is")
FROM_SPIKFORMER = Official(SPIKFORMER)

PUBLISHED: dict[str, Entry] = {
    "sdt-2-256-cifar10": Entry(SpikeDrivenTransformer, {}, "cifar10", CIFAR, official=SDT_CIFAR),
    "sdt-2-256-cifar100": Entry(
        SpikeDrivenTransformer, {"num_classes": 100}, "cifar100", CIFAR, official=SDT_CIFAR
    ),
    "sdt-2-512-cifar10": Entry(SpikeDrivenTransformer, {"width": 512}, "cifar10", CIFAR, official=SDT_CIFAR),
    "sdt-2-256-cifar10-dvs": Entry(
        SpikeDrivenTransformer,
        SDT_DVS,
        "cifar10-dvs",
        (10, 2, 64, 64),
        Preprocessing(size=64, steps=10),
        official=SDT_CIFAR,
    ),
    "sdt-8-384-imagenet": sdt_image(8, 384, "8_384.pth.tar", 72.28),
    "sdt-6-512-imagenet": sdt_image(6, 512, None, 74.11),
    "sdt-8-512-imagenet": sdt_image(8, 512, None, 74.57),
    "sdt-10-512-imagenet": sdt_image(10, 512, None, 74.66),
    "sdt-8-768-imagenet": sdt_image(8, 768, None, 77.07, "reported at 288 x 288 pixels (resize 320)"),
    "metaspikeformer-8-384-imagenet": meta_image({"widths": SMALL}, Official(SDT2)),
    "metaspikeformer-8-512-imagenet": meta_image({"widths": LARGE}, Official(SDT2)),
    "metaspikeformer-8-512-kd-imagenet": meta_image(
        {"widths": LARGE, "kd": True},
        Official(SDT2, "55M_kd_T4.pth", 80.0, "55M_kd.pth is the same model before training at T = 4"),
    ),
    "metaspikeformer-fpn-15m-voc2012": fpn((64, 128, 256, 360), 128),
    "metaspikeformer-fpn-55m-voc2012": fpn(LARGE, 256),
    "sew-resnet18-imagenet": sew_image(18, 63.18),
    "sew-resnet34-imagenet": sew_image(34, 67.04),
    "sew-resnet50-imagenet": sew_image(50, 67.78),
    "sew-resnet18-cifar10": Entry(
        sew_resnet, {**SEW_CIFAR, "num_classes": 10}, "cifar10", CIFAR, official=SJ_SEW
    ),
    "sew-resnet18-cifar100": Entry(
        sew_resnet, {**SEW_CIFAR, "num_classes": 100}, "cifar100", CIFAR, official=SJ_SEW
    ),
    "vgg16-cifar10": Entry(SpikingVGG, {}, "cifar10", CIFAR, official=SJ_VGG),
    "vgg16-cifar100": Entry(SpikingVGG, {"num_classes": 100}, "cifar100", CIFAR, official=SJ_VGG),
    "vgg16-stock-cifar10": Entry(SpikingVGG, {"head": "stock"}, "cifar10", CIFAR, official=SJ_STOCK),
    "vgg16-imagenet": Entry(
        SpikingVGG,
        {"head": "stock", "num_classes": 1000},
        "imagenet",
        IMAGE,
        imagenet(256, "bilinear"),
        official=SJ_STOCK,
    ),
    "spikformer-4-384-cifar10": Entry(Spikformer, {}, "cifar10", CIFAR, official=FROM_SPIKFORMER),
    "spikformer-4-384-cifar100": Entry(
        Spikformer, {"num_classes": 100}, "cifar100", CIFAR, official=FROM_SPIKFORMER
    ),
    "spikformer-2-256-cifar10-dvs": Entry(
        Spikformer,
        SPIKFORMER_DVS,
        "cifar10-dvs",
        (16, 2, 128, 128),
        Preprocessing(size=128, steps=16),
        official=FROM_SPIKFORMER,
    ),
    "spikformer-8-512-imagenet": spikformer_image(512),
    "spikformer-8-768-imagenet": spikformer_image(768),
    "qkformer-4-384-cifar10": Entry(
        QKFormer, {}, "cifar10", CIFAR, official=Official(QKFORMER, None, 96.21, MERGED)
    ),
    "qkformer-4-384-cifar100": Entry(
        QKFormer,
        {"num_classes": 100},
        "cifar100",
        CIFAR,
        CIFAR10_COLOURS,  # as its authors have it
        official=Official(QKFORMER, None, 81.22, MERGED),
    ),
    "qkformer-2-256-cifar10-dvs": Entry(
        QKFormer,
        QK_DVS,
        "cifar10-dvs",
        (16, 2, 128, 128),
        Preprocessing(size=128, steps=16),
        official=Official(QKFORMER, None, 84.1, MERGED),
    ),
    "qkformer-10-384-imagenet": qk_image(384, 6, "78.85/checkpoint-199", 78.80),
    "qkformer-10-512-imagenet": qk_image(512, 8, "82.08/checkpoint-196", 82.04),
    "qkformer-10-768-imagenet": qk_image(768, 12, "84.29/checkpoint-191", 84.22),
}
