"""Image networks whose training step is timed where torchvision is not installed, layer for layer as it has them."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

CLASSES = 1000


def resnet50() -> nn.Module:
    """ResNet-50 with the stride in the 3x3 convolution, as torchvision has it: 25,557,032 parameters.

    Source: He, Zhang, Ren and Sun, *Deep Residual Learning for Image Recognition*, 2015, table 1.
    """
    return _resnet(_bottleneck, (3, 4, 6, 3), expansion=4)


def resnet18() -> nn.Module:
    """ResNet-18: 11,689,512 parameters. Source: as for ResNet-50."""
    return _resnet(_basic, (2, 2, 2, 2), expansion=1)


def tiny() -> nn.Module:
    """One strided convolution and one linear layer: a step of microseconds to milliseconds, for trying things out."""
    layers = [nn.Conv2d(3, 8, 3, stride=2), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten()]
    return nn.Sequential(*layers, nn.Linear(8, CLASSES))


class vit_b_16(nn.Module):
    """ViT-B/16 for 224 px: 86,567,656 parameters.

    Source: Dosovitskiy et al., *An Image is Worth 16x16 Words*, ICLR 2021, table 1 (12 layers, width 768, 12 heads).
    """

    def __init__(self, width: int = 768, heads: int = 12, layers: int = 12, tokens: int = 14 * 14 + 1) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, width, 16, stride=16)
        self.token = nn.Parameter(torch.zeros(1, 1, width))
        self.position = nn.Parameter(0.02 * torch.randn(1, tokens, width))
        layer = nn.TransformerEncoderLayer(
            width, heads, 4 * width, dropout=0.0, activation="gelu", batch_first=True, norm_first=True
        )
        self.encoder = nn.TransformerEncoder(layer, layers, norm=nn.LayerNorm(width), enable_nested_tensor=False)
        self.head = nn.Linear(width, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        """From images (batch, 3, 224, 224) to one number for each class."""
        patches = self.patches(x).flatten(2).transpose(1, 2)
        tokens = torch.cat([self.token.expand(len(x), -1, -1), patches], dim=1)
        found: Tensor = self.head(self.encoder(tokens + self.position)[:, 0])
        return found


class _Residual(nn.Module):
    def __init__(self, body: nn.Module, shortcut: nn.Module) -> None:
        super().__init__()
        self.body, self.shortcut, self.relu = body, shortcut, nn.ReLU(inplace=True)

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = self.relu(self.body(x) + self.shortcut(x))
        return found


def _conv(inputs: int, outputs: int, size: int, stride: int = 1) -> list[nn.Module]:
    convolution = nn.Conv2d(inputs, outputs, size, stride=stride, padding=size // 2, bias=False)
    return [convolution, nn.BatchNorm2d(outputs)]


def _bottleneck(inputs: int, width: int, stride: int) -> list[nn.Module]:
    narrow, wide = _conv(inputs, width, 1), _conv(width, 4 * width, 1)
    return [*narrow, nn.ReLU(inplace=True), *_conv(width, width, 3, stride), nn.ReLU(inplace=True), *wide]


def _basic(inputs: int, width: int, stride: int) -> list[nn.Module]:
    return [*_conv(inputs, width, 3, stride), nn.ReLU(inplace=True), *_conv(width, width, 3)]


def _resnet(body: Callable[[int, int, int], list[nn.Module]], depths: tuple[int, ...], expansion: int) -> nn.Module:
    layers = [*_conv(3, 64, 7, 2), nn.ReLU(inplace=True), nn.MaxPool2d(3, stride=2, padding=1)]
    inputs = 64
    for stage, depth in enumerate(depths):
        width, outputs = 64 << stage, (64 << stage) * expansion
        for block in range(depth):
            stride = 2 if block == 0 and stage > 0 else 1
            same = stride == 1 and inputs == outputs
            shortcut = nn.Identity() if same else nn.Sequential(*_conv(inputs, outputs, 1, stride))
            layers.append(_Residual(nn.Sequential(*body(inputs, width, stride)), shortcut))
            inputs = outputs
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(inputs, CLASSES))
