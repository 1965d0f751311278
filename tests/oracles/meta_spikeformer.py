"""Small versions of Meta-SpikeFormer and its segmentation model, and what is to be found in them."""

from __future__ import annotations

import functools
from typing import Any

import torch
from torch import Tensor, nn

from ptq4snn.discovery.discover import Discovery, discover
from ptq4snn.models.fpn import SpikeFPN
from ptq4snn.models.meta_spikeformer import MetaSpikeFormer

SMALL_TABLE = """
ConvBlock1_1.0.Conv.lif1   pair    downsample1_1.encode_conv
ConvBlock1_1.0.Conv.lif2   pair    ConvBlock1_1.0.Conv.pwconv1
ConvBlock1_1.0.lif1        stream  downsample1_1.encode_conv ConvBlock1_1.0.Conv.pwconv2
ConvBlock1_1.0.lif2        pair    ConvBlock1_1.0.conv1
downsample1_2.encode_lif   stream  downsample1_1.encode_conv ConvBlock1_1.0.Conv.pwconv2 ConvBlock1_1.0.conv2
ConvBlock1_2.0.Conv.lif1   pair    downsample1_2.encode_conv
ConvBlock1_2.0.Conv.lif2   pair    ConvBlock1_2.0.Conv.pwconv1
ConvBlock1_2.0.lif1        stream  downsample1_2.encode_conv ConvBlock1_2.0.Conv.pwconv2
ConvBlock1_2.0.lif2        pair    ConvBlock1_2.0.conv1
downsample2.encode_lif     stream  downsample1_2.encode_conv ConvBlock1_2.0.Conv.pwconv2 ConvBlock1_2.0.conv2
ConvBlock2_1.0.Conv.lif1   pair    downsample2.encode_conv
ConvBlock2_1.0.Conv.lif2   pair    ConvBlock2_1.0.Conv.pwconv1
ConvBlock2_1.0.lif1        stream  downsample2.encode_conv ConvBlock2_1.0.Conv.pwconv2
ConvBlock2_1.0.lif2        pair    ConvBlock2_1.0.conv1
ConvBlock2_2.0.Conv.lif1   stream  downsample2.encode_conv ConvBlock2_1.0.Conv.pwconv2 ConvBlock2_1.0.conv2
ConvBlock2_2.0.Conv.lif2   pair    ConvBlock2_2.0.Conv.pwconv1
ConvBlock2_2.0.lif1        stream  = ConvBlock2_2.0.Conv.lif1 ConvBlock2_2.0.Conv.pwconv2
ConvBlock2_2.0.lif2        pair    ConvBlock2_2.0.conv1
downsample3.encode_lif     stream  = ConvBlock2_2.0.lif1 ConvBlock2_2.0.conv2
block3.0.attn.head_lif     pair    downsample3.encode_conv
block3.0.attn.q_lif        pair    block3.0.attn.q_conv.0.body.2.1
block3.0.attn.k_lif        pair    block3.0.attn.k_conv.0.body.2.1
block3.0.attn.v_lif        pair    block3.0.attn.v_conv.0.body.2.1
block3.0.attn.attn_lif     bare
block3.0.mlp.fc1_lif       stream  downsample3.encode_conv block3.0.attn.proj_conv.0.body.2.1
block3.0.mlp.fc2_lif       pair    block3.0.mlp.fc1_conv
downsample4.encode_lif     stream  = block3.0.mlp.fc1_lif block3.0.mlp.fc2_conv
block4.0.attn.head_lif     pair    downsample4.encode_conv
block4.0.attn.q_lif        pair    block4.0.attn.q_conv.0.body.2.1
block4.0.attn.k_lif        pair    block4.0.attn.k_conv.0.body.2.1
block4.0.attn.v_lif        pair    block4.0.attn.v_conv.0.body.2.1
block4.0.attn.attn_lif     bare
block4.0.mlp.fc1_lif       stream  downsample4.encode_conv block4.0.attn.proj_conv.0.body.2.1
block4.0.mlp.fc2_lif       pair    block4.0.mlp.fc1_conv
lif                        stream  = block4.0.mlp.fc1_lif block4.0.mlp.fc2_conv
"""  # "= neuron": also what feeds that one


def lively(model: nn.Module) -> nn.Module:
    """Random BatchNorms under which every neuron fires, also those of the attention."""
    for name, m in model.named_modules():
        if isinstance(m, nn.modules.batchnorm._BatchNorm):
            nn.init.constant_(m.weight, 1.5)
            attends = name.endswith(("q_conv.1", "k_conv.1", "v_conv.1"))
            nn.init.normal_(m.bias, 1.5 if attends else 1.0 if name.startswith("decode") else 0.3, 0.3)
            nn.init.normal_(m.running_mean, 0.0, 0.3)  # type: ignore[arg-type]
            nn.init.uniform_(m.running_var, 0.2, 1.0)  # type: ignore[arg-type]
        elif name.startswith("neck.") and isinstance(m, nn.Conv2d):  # no BatchNorm follows
            nn.init.normal_(m.weight, 0.0, 3 / m.weight[0].numel() ** 0.5)
            nn.init.normal_(m.bias, 0.5, 0.5)  # type: ignore[arg-type]
    return model.eval()


def build(kind: str, seed: int = 0) -> nn.Module:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        common: Any = {"widths": (8, 16, 16, 24), "depths": (1, 1), "heads": 2, "T": 3, "mlp_ratio": 2}
        if kind == "fpn":
            return lively(SpikeFPN(channels=16, num_classes=5, **common))
        return lively(MetaSpikeFormer(num_classes=10, kd=kind == "kd", **common))


small = functools.cache(build)


def pixels(n: int, size: int = 32) -> Tensor:
    g = torch.Generator().manual_seed(3)
    return (torch.randint(0, 256, (n, 3, size, size), generator=g) / 255 - 0.5) / 0.25


@functools.cache
def found(kind: str) -> Discovery:
    return discover(small(kind), pixels(2))


def expectation() -> dict[str, tuple[str, list[str]]]:
    table: dict[str, tuple[str, list[str]]] = {}
    for line in SMALL_TABLE.strip().splitlines():
        name, kind, *sources = line.split()
        table[name] = kind, [*table[sources[1]][1], *sources[2:]] if sources[:1] == ["="] else sources
    return table
