"""The training steps that are timed: a default image network, or the user's own callable.

torch is imported here by one function, when a step is made and not before: ``coresim --help`` never pays.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from coresim.errors import InputError, MissingPartError
from coresim.workloads.named import load_object

Step = Callable[[Any], object]

PRECISIONS = ("fp32", "bf16")
CLASSES = 1000


def load_torch() -> Any:
    """The ``torch`` module.

    Raises:
        MissingPartError: torch is not installed, or its libraries do not load.
    """
    try:
        import torch  # noqa: PLC0415
    except (ImportError, OSError) as error:
        raise MissingPartError(
            f"measuring a training step needs PyTorch, which does not import here ({one_line(error)}): "
            "pip install torch, or give the step time with --step-time"
        ) from error
    return torch


def build_model(name: str) -> Any:
    """A network by name.

    ``resnet50``, ``resnet18`` and ``vit_b_16`` are torchvision's where it imports, else the same layers from here;
    ``tiny`` is two layers, for trying things out.

    Raises:
        InputError: an unknown name.
        MissingPartError: no torch.
    """
    if name not in _NETS:
        raise InputError(f"model {name!r} is not known; use one of {', '.join(_NETS)}")
    load_torch()
    vision = _torchvision(name)
    return _NETS[name]() if vision is None else getattr(vision.models, name)()


def describe_model(name: str) -> str:
    """A network's name and whose definition of it is used: ``resnet50 (torchvision 0.28.0)``."""
    vision = _torchvision(name)
    return f"{name} ({'coresim' if vision is None else f'torchvision {vision.__version__}'})"


def resnet50() -> Any:
    """ResNet-50 with the stride in the 3x3 convolution, as torchvision has it: 25,557,032 parameters.

    Source: He, Zhang, Ren and Sun, *Deep Residual Learning for Image Recognition*, 2015, table 1.
    """
    return _resnet(_bottleneck, (3, 4, 6, 3), expansion=4)


def resnet18() -> Any:
    """ResNet-18: 11,689,512 parameters. Source: as for ResNet-50."""
    return _resnet(_basic, (2, 2, 2, 2), expansion=1)


def vit_b_16() -> Any:
    """ViT-B/16 for 224 px: 86,567,656 parameters.

    Source: Dosovitskiy et al., *An Image is Worth 16x16 Words*, ICLR 2021, table 1 (12 layers, width 768, 12 heads).
    """
    return _vision_transformer()()


def tiny() -> Any:
    """One strided convolution and one linear layer: a step of microseconds to milliseconds."""
    nn = load_torch().nn
    layers = [nn.Conv2d(3, 8, 3, stride=2), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten()]
    return nn.Sequential(*layers, nn.Linear(8, CLASSES))


def default_step(model: Any, device: Any, precision: str) -> Step:
    """A plain training step: forward, cross-entropy, backward, SGD with momentum; it never reads the loss.

    Args:
        model: the network; it is moved to ``device``.
        device: torch device.
        precision: ``fp32`` is torch's default (convolutions in TF32 where the device has it); ``bf16`` is
            autocast around the forward pass, with fp32 weights.

    Raises:
        InputError: an unknown precision.
    """
    torch = load_torch()
    cast = _autocast(torch, device, precision)
    model.to(device).train()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    loss_of = torch.nn.CrossEntropyLoss()

    def train_step(batch: Any) -> None:
        images, labels = batch
        optimizer.zero_grad(set_to_none=True)
        with cast():
            loss = loss_of(model(images), labels)
        loss.backward()
        optimizer.step()

    return train_step


def synthetic_batch(batch_size: int, image_size: int) -> tuple[Any, Any]:
    """A host batch of the shape that an image loader delivers: float32 images and int64 labels."""
    torch = load_torch()
    images = torch.randn(batch_size, 3, image_size, image_size)
    return images, torch.randint(CLASSES, (batch_size,))


def user_step(name: str) -> Step:
    """The user's step that ``package.module:name`` stands for; raises as `as_step` and `load_object`."""
    return as_step(load_object(name, "training step"), name)


def as_step(source: Callable[..., object], name: str) -> Step:
    """The user's step of that name: ``source`` itself, or what it returns where it is a factory.

    A callable with exactly one required positional parameter is a step, ``train_step(batch)``. One with none is a
    factory (a function, or a class with ``__call__(batch)``): it is called once, and its result is looked at
    in the same way. A step may carry an attribute ``device``: that is where its batches are put.

    Raises:
        InputError: neither a step nor a factory of one.
    """
    candidate: object = source
    for _ in range(3):
        if not callable(candidate):
            break
        required = _required_arguments(candidate)
        if required == 1:
            return candidate
        if required > 1:
            break
        candidate = candidate()
    raise InputError(f"training step {name}: write train_step(batch), or a function without arguments that returns one")


def one_line(error: BaseException) -> str:
    """An exception on one line, cut to 300 characters."""
    return " ".join(f"{type(error).__name__}: {error}".split())[:300]


def _required_arguments(function: Callable[..., object]) -> int:
    try:
        parameters = inspect.signature(function).parameters.values()
    except ValueError:  # a compiled callable without a signature: the step is the likelier reading
        return 1
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return sum(p.kind in positional and p.default is inspect.Parameter.empty for p in parameters)


def _autocast(torch: Any, device: Any, precision: str) -> Callable[[], AbstractContextManager[Any]]:
    if precision == "fp32":
        return nullcontext
    if precision == "bf16":
        return functools.partial(torch.autocast, torch.device(device).type, dtype=torch.bfloat16)
    raise InputError(f"precision {precision!r} is not known; use one of {', '.join(PRECISIONS)}")


def _torchvision(name: str) -> Any:
    if name == "tiny":
        return None
    try:
        import torchvision  # noqa: PLC0415
    except (ImportError, RuntimeError, OSError):  # built for another torch, it raises RuntimeError on import
        return None
    return torchvision


@functools.cache
def _residual_class() -> Any:
    nn = load_torch().nn
    base: Any = nn.Module

    class Residual(base):  # type: ignore[misc]
        def __init__(self, body: Any, shortcut: Any) -> None:
            super().__init__()
            self.body, self.shortcut, self.relu = body, shortcut, nn.ReLU(inplace=True)

        def forward(self, x: Any) -> Any:
            return self.relu(self.body(x) + self.shortcut(x))

    return Residual


@functools.cache
def _vision_transformer() -> Any:
    torch = load_torch()
    nn = torch.nn
    base: Any = nn.Module

    class VisionTransformer(base):  # type: ignore[misc]
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

        def forward(self, x: Any) -> Any:
            patches = self.patches(x).flatten(2).transpose(1, 2)
            tokens = torch.cat([self.token.expand(len(x), -1, -1), patches], dim=1)
            return self.head(self.encoder(tokens + self.position)[:, 0])

    return VisionTransformer


def _conv(inputs: int, outputs: int, size: int, stride: int = 1) -> list[Any]:
    nn = load_torch().nn
    convolution = nn.Conv2d(inputs, outputs, size, stride=stride, padding=size // 2, bias=False)
    return [convolution, nn.BatchNorm2d(outputs)]


def _bottleneck(inputs: int, width: int, stride: int) -> list[Any]:
    relu = load_torch().nn.ReLU
    narrow, wide = _conv(inputs, width, 1), _conv(width, 4 * width, 1)
    return [*narrow, relu(inplace=True), *_conv(width, width, 3, stride), relu(inplace=True), *wide]


def _basic(inputs: int, width: int, stride: int) -> list[Any]:
    relu = load_torch().nn.ReLU
    return [*_conv(inputs, width, 3, stride), relu(inplace=True), *_conv(width, width, 3)]


def _resnet(body: Callable[[int, int, int], list[Any]], depths: tuple[int, ...], expansion: int) -> Any:
    nn = load_torch().nn
    layers = [*_conv(3, 64, 7, 2), nn.ReLU(inplace=True), nn.MaxPool2d(3, stride=2, padding=1)]
    inputs = 64
    for stage, depth in enumerate(depths):
        width, outputs = 64 << stage, (64 << stage) * expansion
        for block in range(depth):
            stride = 2 if block == 0 and stage > 0 else 1
            same = stride == 1 and inputs == outputs
            shortcut = nn.Identity() if same else nn.Sequential(*_conv(inputs, outputs, 1, stride))
            layers.append(_residual_class()(nn.Sequential(*body(inputs, width, stride)), shortcut))
            inputs = outputs
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(inputs, CLASSES))


_NETS: dict[str, Callable[[], Any]] = {"resnet50": resnet50, "resnet18": resnet18, "vit_b_16": vit_b_16, "tiny": tiny}
