"""The device as seen from the host: its clocks, and copying a batch to it from pinned and pageable memory."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from coresim.errors import InputError, MissingPartError
from coresim.measuring.models import load_torch
from coresim.model.measurement import Measurement

COPY_WARM_UP = 3
_CALIBRATION_CYCLES = 10_000_000


class Clock(Protocol):
    """Times on the device's own line and on the host's, in seconds.

    Attributes:
        asynchronous: the device works while the host goes on, so that a host timer alone misleads.
    """

    asynchronous: bool

    def mark(self) -> Any:
        """Note the moment at which the device reaches this point of its queue."""

    def seconds(self, start: Any, end: Any) -> float:
        """Device seconds between two marks; both must be reached (``wait`` first)."""

    def wait(self) -> None:
        """Return when the device has nothing left to do."""

    def hold(self, seconds: float) -> None:
        """Queue idle work of that length on the device, without waiting for it."""

    def wall(self) -> float:
        """Host wall clock."""

    def cpu(self) -> float:
        """CPU seconds of this process, all threads: autograd launches the backward pass from its own thread."""


class HostClock:
    """The clock where the CPU is the device: every call returns with its work done."""

    asynchronous = False

    def mark(self) -> float:
        """Wall-clock moment."""
        return time.perf_counter()

    def seconds(self, start: float, end: float) -> float:
        """Wall seconds between two marks."""
        return end - start

    def wait(self) -> None:
        """Nothing is ever outstanding."""

    def hold(self, seconds: float) -> None:
        """The device is the host: idle work is a sleep."""
        time.sleep(seconds)

    def wall(self) -> float:
        """Host wall clock."""
        return time.perf_counter()

    def cpu(self) -> float:
        """CPU seconds of this process, all threads."""
        return time.process_time()


class CudaClock(HostClock):
    """CUDA events on the current stream of one device.

    A step that works on other streams must join the current one before it returns, or its events miss that work;
    ``accelerator.step.wall`` beside ``accelerator.step`` shows it.

    Args:
        cuda: the ``torch.cuda`` module.
        device: the CUDA device.
    """

    asynchronous = True

    def __init__(self, cuda: Any, device: Any) -> None:
        self._cuda, self._device = cuda, device
        self._cycles_per_second: float | None = None

    def mark(self) -> Any:
        """A timing event, recorded on the current stream."""
        event = self._cuda.Event(enable_timing=True)
        event.record(self._cuda.current_stream(self._device))
        return event

    def seconds(self, start: Any, end: Any) -> float:
        """Seconds between two events (CUDA gives milliseconds, resolved to about half a microsecond)."""
        return float(start.elapsed_time(end)) / 1e3

    def wait(self) -> None:
        """Wait for all streams of the device."""
        self._cuda.synchronize(self._device)

    def hold(self, seconds: float) -> None:
        """A spinning kernel; its cycles are calibrated against events once."""
        if self._cycles_per_second is None:
            self._cycles_per_second = self._calibrate()
        self._cuda._sleep(int(seconds * self._cycles_per_second))

    def _calibrate(self) -> float:
        start = self.mark()
        self._cuda._sleep(_CALIBRATION_CYCLES)
        end = self.mark()
        self.wait()
        return _CALIBRATION_CYCLES / self.seconds(start, end)


def open_device(name: str) -> Any:
    """The torch device of that name, made current; ``cuda``, ``cuda:N`` or ``cpu``.

    Raises:
        InputError: not such a name, or no CUDA device of that number.
        MissingPartError: no torch, or torch finds no CUDA device.
    """
    torch = load_torch()
    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise InputError(f"device {name!r}: not a device; use cuda, cuda:N or cpu") from error
    if device.type == "cuda":
        _require_cuda(torch, device)
        torch.cuda.set_device(device)
    elif device.type != "cpu":
        raise InputError(f"device {name!r} cannot be measured; use cuda, cuda:N or cpu")
    return device


def open_clock(device: Any) -> Clock:
    """The clock of a device from ``open_device``."""
    return CudaClock(load_torch().cuda, device) if device.type == "cuda" else HostClock()


def _require_cuda(torch: Any, device: Any) -> None:
    if not torch.cuda.is_available():
        raise MissingPartError(
            f"torch {torch.__version__} finds no CUDA device here, so no step was measured: take a recorded "
            "step with --gpu and --model, or give the step time with --step-time"
        )
    count = torch.cuda.device_count()
    if device.index is not None and device.index >= count:
        raise InputError(f"device {device}: this process sees {count} CUDA device(s), numbered from 0")


def map_tensors(batch: Any, change: Callable[[Any], Any]) -> Any:
    """A batch with ``change`` applied to every tensor in its mappings, lists and (named) tuples."""
    if load_torch().is_tensor(batch):
        return change(batch)
    if isinstance(batch, Mapping):
        return {key: map_tensors(value, change) for key, value in batch.items()}
    if isinstance(batch, tuple) and hasattr(batch, "_fields"):
        return type(batch)(*(map_tensors(value, change) for value in batch))
    if isinstance(batch, list | tuple):
        return type(batch)(map_tensors(value, change) for value in batch)
    return batch


def to_device(batch: Any, device: Any, non_blocking: bool = False) -> Any:
    """A batch with its tensors on ``device``, as training loops write it."""
    return map_tensors(batch, lambda tensor: tensor.to(device, non_blocking=non_blocking))


def batch_bytes(batch: Any) -> int:
    """Bytes in a batch's tensors: what crosses the bus."""
    sizes: list[int] = []
    map_tensors(batch, lambda tensor: sizes.append(tensor.numel() * tensor.element_size()))
    return sum(sizes)


def measure_copies(batch: Any, device: Any, clock: Clock, count: int = 20) -> list[Measurement]:
    """Host-to-device copies of one batch from pinned memory (not waited for) and pageable memory (waited for).

    Args:
        batch: host batch with tensors.
        device: from ``open_device``.
        clock: from ``open_clock``.
        count: copies timed of each kind.

    Returns:
        The measurements of ``measure_copy`` for ``copy.pinned`` and ``copy.pageable``; none where the CPU is
        the device, which reads host memory as it is.
    """
    if not clock.asynchronous:
        return []
    pinned = map_tensors(batch, lambda tensor: tensor.pin_memory())
    size = batch_bytes(batch)
    return [
        *measure_copy("copy.pinned", lambda: to_device(pinned, device, True), size, clock, count),
        *measure_copy("copy.pageable", lambda: to_device(batch, device, False), size, clock, count),
    ]


def measure_copy(name: str, copy: Callable[[], object], size: int, clock: Clock, count: int) -> list[Measurement]:
    """One kind of copy: ``NAME`` and ``NAME.wall`` and ``NAME.cpu`` in s/batch, ``NAME.bandwidth`` in B/s.

    Args:
        name: prefix of the names.
        copy: puts the copy of one batch on the device's queue.
        size: bytes of one batch.
        clock: the device's clock.
        count: copies timed, after ``COPY_WARM_UP`` that are not.
    """
    for _ in range(COPY_WARM_UP):
        copy()
    device, wall, cpu = zip(*(_one_copy(copy, clock) for _ in range(count)), strict=True)
    rates = tuple(size / seconds for seconds in device)
    what = f"copy of a batch of {size} B to the device, alone on the machine"
    return [
        Measurement(name, "s/batch", (device,), f"{what}: between device events around it"),
        Measurement(f"{name}.wall", "s/batch", (wall,), f"{what}: host wall clock until the device is done"),
        Measurement(f"{name}.cpu", "s/batch", (cpu,), f"{what}: CPU time of the process until the call returns"),
        Measurement(f"{name}.bandwidth", "B/s", (rates,), f"{what}: bytes over the time between events"),
    ]


def _one_copy(copy: Callable[[], object], clock: Clock) -> tuple[float, float, float]:
    clock.wait()
    wall, start = clock.wall(), clock.mark()
    cpu = clock.cpu()
    copy()
    cpu = clock.cpu() - cpu
    end = clock.mark()
    clock.wait()
    return clock.seconds(start, end), clock.wall() - wall, cpu
