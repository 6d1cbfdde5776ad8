"""The device as seen from the host: one small interface to torch.cuda, to an emulated device and to the host itself.

A device performs what is queued on it in order and in its own time, while the host goes on. The same code measures and
trains on all of them.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from coresim.device.models import Step, build_model, default_step, load_torch
from coresim.device.queues import DeviceHost
from coresim.workloads.base import mapped

#: Cycles of one reading of a CUDA device's clock.
_CYCLES = 10_000_000
#: A device raises its clock under load: it is read for so long, s, and until two readings agree within that share.
_LOAD_S, _AGREED = 0.5, 0.05
#: Readings at the most.
_READINGS = 1000


class Device:
    """The host as its own device: every call returns with its work done.

    Tensors lie at ``place``, a torch device; ``wall`` and ``cpu`` are the clocks of ``host``.
    """

    asynchronous = False  # whether it works while the host goes on, so that a host timer alone misleads
    sync = "spin"  # whether waiting for it holds a core (as CUDA does by default) or not (``block``)

    def __init__(self, place: Any, host: DeviceHost | None = None) -> None:
        self.place, self.host = place, host or DeviceHost()
        self.wall, self.cpu = self.host.wall, self.host.cpu

    def record(self) -> Any:
        """An event: the moment at which the device has done all that is queued so far."""
        return time.perf_counter()

    def elapsed(self, start: Any, end: Any) -> float:
        """Device seconds between two events; both must be reached."""
        return float(end - start)

    def synchronise(self, event: Any = None) -> None:
        """Wait until the device has reached an event, or has nothing left to do."""

    def hold(self, seconds: float) -> None:
        """Queue idle work of that length, without waiting for it; on the host, sleep."""
        time.sleep(seconds)

    def copy(self, tensor: Any, *, ahead: bool = False) -> Any:
        """A tensor of the host on the device.

        From pinned memory the copy is queued behind the steps, and the host does not wait; from pageable memory it
        waits. ``ahead``: the copy has its own queue, beside the steps, and the host waits. A tensor that is there
        already stays.
        """
        return tensor.to(self.place)

    def pin(self, tensor: Any) -> Any:
        """The tensor in memory that the device reads by itself, where there is such memory."""
        return tensor

    def step(self, model: str, precision: str) -> Step:
        """A training step of one of `coresim.device.models`' networks on this device."""
        return default_step(build_model(model), self.place, precision)

    def decoder(self, make: Callable[[Any], Callable[[Any], Any]]) -> Callable[[Any], Any]:
        """What decodes on this device: ``make`` makes it for a torch device."""
        return make(self.place)

    def loading(self) -> AbstractContextManager[None]:
        """A context around a loader that pins memory for this device."""
        return nullcontext()

    def name(self) -> str:
        """What it is called."""
        return "cpu"


class CudaDevice(Device):
    """torch.cuda: events on the current stream of one device.

    A step that works on other streams must join the current one before it returns, or its events miss that work;
    ``accelerator.step.wall`` beside ``accelerator.step`` shows it. ``cuda`` is the module ``torch.cuda``.
    """

    asynchronous = True

    def __init__(self, cuda: Any, place: Any) -> None:
        super().__init__(place)
        self._cuda = cuda
        self._cycles_per_second: float | None = None
        self._copies: Any = None

    def record(self) -> Any:
        """A timing event, recorded on the current stream."""
        event = self._cuda.Event(enable_timing=True)
        event.record(self._cuda.current_stream(self.place))
        return event

    def elapsed(self, start: Any, end: Any) -> float:
        """Seconds between two events (CUDA gives milliseconds, resolved to about half a microsecond)."""
        return float(start.elapsed_time(end)) / 1e3

    def synchronise(self, event: Any = None) -> None:
        """Wait for an event, or for all streams of the device."""
        if event is None:
            self._cuda.synchronize(self.place)
        else:
            event.synchronize()

    def hold(self, seconds: float) -> None:
        """A spinning kernel; its cycles are calibrated against events once."""
        if self._cycles_per_second is None:
            self._cycles_per_second = self._clock()
        self._cuda._sleep(int(seconds * self._cycles_per_second))

    def _clock(self) -> float:
        """Cycles per second under load: a device that has rested begins at a low clock."""
        rate, loaded = 0.0, 0.0
        for _ in range(_READINGS):
            start, before = self.record(), rate
            self._cuda._sleep(_CYCLES)
            end = self.record()
            self.synchronise()
            seconds = self.elapsed(start, end)
            rate, loaded = _CYCLES / seconds, loaded + seconds
            if loaded >= _LOAD_S and abs(rate - before) <= _AGREED * before:
                break
        return rate

    def copy(self, tensor: Any, *, ahead: bool = False) -> Any:
        """On the current stream, or on a stream of its own for a thread that copies ahead."""
        if not ahead:
            return tensor.to(self.place, non_blocking=tensor.is_pinned())
        if self._copies is None:
            self._copies = self._cuda.Stream(self.place)
        with self._cuda.stream(self._copies):
            there = tensor.to(self.place)
        # Its memory must not be given to the next copy while the step still reads it.
        there.record_stream(self._cuda.default_stream(self.place))
        return there

    def pin(self, tensor: Any) -> Any:
        """The tensor in pinned memory."""
        return tensor.pin_memory()

    def name(self) -> str:
        """As torch tells it."""
        return str(self._cuda.get_device_properties(self.place).name)


def map_tensors(batch: Any, change: Callable[[Any], Any]) -> Any:
    """A batch with ``change`` applied to every tensor in it."""
    is_tensor = load_torch().is_tensor
    return mapped(batch, lambda part: change(part) if is_tensor(part) else part)


def batch_bytes(batch: Any) -> int:
    """Bytes in a batch's tensors: what crosses the bus."""
    sizes: list[int] = []
    map_tensors(batch, lambda tensor: sizes.append(tensor.numel() * tensor.element_size()))
    return sum(sizes)
