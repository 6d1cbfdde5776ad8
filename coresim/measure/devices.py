"""The device of a name: what ``--device`` takes."""

from __future__ import annotations

from typing import Any

from coresim.errors import InputError, MissingPartError
from coresim.measure.device import CudaDevice, Device
from coresim.measure.emulated import EmulatedDevice, emulated
from coresim.measure.models import load_torch

NAMES = "cuda, cuda:N, cpu or emulated"


def open_device(name: str) -> Device:
    """The device of that name, made current; `coresim.measure.emulated.emulated` tells the settings of an emulated one.

    Raises:
        InputError: not such a name, or no CUDA device of that number.
        MissingPartError: no torch, or torch finds no CUDA device.
    """
    torch = load_torch()
    if name.partition(":")[0] == "emulated":
        return EmulatedDevice(emulated(name), torch.device("cpu"))
    try:
        place = torch.device(name)
    except RuntimeError as error:
        raise InputError(f"device {name!r}: not a device; use {NAMES}") from error
    if place.type == "cpu":
        return Device(place)
    if place.type != "cuda":
        raise InputError(f"device {name!r} cannot be measured; use {NAMES}")
    _require_cuda(torch, place)
    torch.cuda.set_device(place)
    return CudaDevice(torch.cuda, place)


def _require_cuda(torch: Any, place: Any) -> None:
    if not torch.cuda.is_available():
        raise MissingPartError(
            f"torch {torch.__version__} finds no CUDA device here, so no step was measured: take a recorded "
            "step with --gpu and --model, or give the step time with --step-time"
        )
    count = torch.cuda.device_count()
    if place.index is not None and place.index >= count:
        raise InputError(f"device {place}: this process sees {count} CUDA device(s), numbered from 0")
