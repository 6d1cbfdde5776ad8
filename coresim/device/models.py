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

NETS = ("resnet50", "resnet18", "vit_b_16", "tiny")
PRECISIONS = ("fp32", "bf16")


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
    """One of `NETS`: torchvision's where it imports and has it, else that of `coresim.device.networks`.

    Raises:
        InputError: an unknown name.
        MissingPartError: no torch.
    """
    if name not in NETS:
        raise InputError(f"model {name!r} is not known; use one of {', '.join(NETS)}")
    load_torch()
    from coresim.device import networks  # noqa: PLC0415 (torch is optional and heavy)

    vision = _torchvision(name)
    return getattr(networks if vision is None else vision.models, name)()


def describe_model(name: str) -> str:
    """A network's name and whose definition of it is used: ``resnet50 (torchvision 0.28.0)``."""
    vision = _torchvision(name)
    return f"{name} ({'coresim' if vision is None else f'torchvision {vision.__version__}'})"


def default_step(model: Any, device: Any, precision: str) -> Step:
    """A plain training step of a network, which is moved to the torch device; it never reads the loss.

    Forward, cross-entropy, backward, SGD with momentum. The precision ``fp32`` is torch's default (convolutions in
    TF32 where the device has it); ``bf16`` is autocast around the forward pass, with fp32 weights.

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
    return images, torch.randint(1000, (batch_size,))


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
