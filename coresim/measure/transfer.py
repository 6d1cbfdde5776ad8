"""Copying a batch to the device, from pinned and from pageable memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from coresim.measure.device import Device, batch_bytes, map_tensors, to_device
from coresim.model.measurement import Measurement

COPY_WARM_UP = 3


def measure_copies(batch: Any, device: Device, count: int = 20) -> list[Measurement]:
    """Host-to-device copies of one batch from pinned memory (not waited for) and pageable memory (waited for).

    Args:
        batch: host batch with tensors.
        device: where it goes.
        count: copies timed of each kind.

    Returns:
        The measurements of ``measure_copy`` for ``copy.pinned`` and ``copy.pageable``; none where the CPU is
        the device, which reads host memory as it is.
    """
    if not device.asynchronous:
        return []
    pinned = map_tensors(batch, device.pin)
    size = batch_bytes(batch)
    return [
        *measure_copy("copy.pinned", lambda: to_device(pinned, device), size, device, count),
        *measure_copy("copy.pageable", lambda: to_device(batch, device), size, device, count),
    ]


def measure_copy(name: str, copy: Callable[[], object], size: int, device: Device, count: int) -> list[Measurement]:
    """One kind of copy: ``NAME`` and ``NAME.wall`` and ``NAME.cpu`` in s/batch, ``NAME.bandwidth`` in B/s.

    Args:
        name: prefix of the names.
        copy: puts the copy of one batch on the device's queue.
        size: bytes of one batch.
        device: the device.
        count: copies timed, after ``COPY_WARM_UP`` that are not.
    """
    for _ in range(COPY_WARM_UP):
        copy()
    there, wall, cpu = zip(*(_one_copy(copy, device) for _ in range(count)), strict=True)
    rates = tuple(size / seconds for seconds in there)
    what = f"copy of a batch of {size} B to the device, alone on the machine"
    return [
        Measurement(name, "s/batch", (there,), f"{what}: between device events around it"),
        Measurement(f"{name}.wall", "s/batch", (wall,), f"{what}: host wall clock until the device is done"),
        Measurement(f"{name}.cpu", "s/batch", (cpu,), f"{what}: CPU time of the process until the call returns"),
        Measurement(f"{name}.bandwidth", "B/s", (rates,), f"{what}: bytes over the time between events"),
    ]


def _one_copy(copy: Callable[[], object], device: Device) -> tuple[float, float, float]:
    device.synchronise()
    wall, start = device.wall(), device.record()
    cpu = device.cpu()
    copy()
    cpu = device.cpu() - cpu
    end = device.record()
    device.synchronise()
    return device.elapsed(start, end), device.wall() - wall, cpu
