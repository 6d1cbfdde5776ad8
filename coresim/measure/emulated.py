"""An emulated device: asynchronous, with a queue of steps, a queue of copies, events and a line of time of its own.

What a real device does to the host it does too: a launch costs CPU time, a copy is a real copy of memory by a thread,
from pageable memory one by the caller before it, and waiting for it spins or blocks. What the device itself takes is
arithmetic on its own line of time: a step begins when it is launched and the one before has ended, and ends so many
seconds later, whatever the host's timers do. Its contract is that of torch's own out-of-tree test device
(``torch_openreg``, pytorch ``test/cpp_extensions/open_registration_extension``): work in order, events that can be
queried, waited for and timed, more than nothing between two of them.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields
from typing import Any

from coresim.errors import InputError
from coresim.measure.device import Device
from coresim.measure.device_queue import DeviceHost, Queue, Work
from coresim.measure.models import Step, load_torch
from coresim.units import parse_duration

#: The marks of a tensor whose memory the device reads by itself, and of one that lies on it.
PINNED, THERE = "pinned_for_emulation", "on_the_emulated_device"
DURATIONS = ("step", "launch", "decode", "event")


@dataclass(frozen=True)
class Emulated:
    """What the device is like.

    Attributes:
        step: seconds of one training step on the device.
        launch: CPU seconds of the host to launch one.
        decode: seconds of the device to decode a batch, where it decodes.
        bus: bytes per second of a copy to it.
        event: seconds of the device to record an event: two in a row are not at the same moment.
        sync: how the host waits for it: ``spin``, as CUDA does, or ``block``.
    """

    step: float = 0.02
    launch: float = 0.001
    decode: float = 0.002
    bus: float = 8e9
    event: float = 5e-7
    sync: str = "spin"

    def __post_init__(self) -> None:
        """InputError for a value that cannot be."""
        if min(self.step, self.bus) <= 0 or min(self.launch, self.decode, self.event) < 0:
            raise InputError("device emulated: step and bus must be above 0, launch, decode and event not below")
        if self.sync not in ("spin", "block"):
            raise InputError(f"device emulated: sync={self.sync}: use spin or block")


def emulated(name: str) -> Emulated:
    """What ``emulated:step=20ms,launch=1ms,decode=2ms,bus=8e9,sync=spin`` says; all of it may be left out.

    Raises:
        InputError: an unknown setting or a bad value.
    """
    known: dict[str, Any] = {}
    for part in filter(None, name.partition(":")[2].split(",")):
        key, _, text = part.partition("=")
        if key not in (item.name for item in fields(Emulated)):
            names = ", ".join(item.name for item in fields(Emulated))
            raise InputError(f"device {name!r}: {key!r} is not known; use {names}, such as emulated:step=20ms")
        known[key] = _value(key, text, f"device {name!r}: {key}")
    return Emulated(**known)


def _value(key: str, text: str, where: str) -> str | float:
    if key in DURATIONS:
        return parse_duration(text, where)
    if key == "sync":
        return text
    try:
        return float(text)
    except ValueError:
        raise InputError(f"{where} = {text!r}: bytes per second are needed, such as 8e9") from None


class EmulatedDevice(Device):
    """A device of these `Emulated` properties.

    Args:
        like: what it is like.
        place: where torch puts its tensors: the CPU.
        host: clocks, waiting and working.
    """

    asynchronous = True

    def __init__(self, like: Emulated, place: Any = None, host: DeviceHost | None = None) -> None:
        super().__init__(place)
        self.like, self._host, self.sync = like, host or DeviceHost(), like.sync
        self._steps, self._copies = Queue(self._host), Queue(self._host)

    def record(self) -> Work:
        """An event on the queue of the steps."""
        return self._steps.add(Work(self._host.wall(), self.like.event))

    def query(self, event: Work) -> bool:
        """Whether the device has reached an event."""
        return event.end is not None and event.end <= self._host.wall()

    def elapsed(self, start: Work, end: Work) -> float:
        """Device seconds between two events; ValueError where one is not reached."""
        if not (self.query(start) and self.query(end)) or start.end is None or end.end is None:
            raise ValueError("an event is not reached: synchronise first")
        return end.end - start.end

    def synchronise(self, event: Work | None = None) -> None:
        """Wait for an event, or for both queues."""
        for queue in (self._steps, self._copies) if event is None else (self._steps,):
            self._wait(queue, event or queue.last)

    def _wait(self, queue: Queue, work: Work) -> None:
        spin = self.like.sync == "spin"
        while spin and work.end is None:
            self._host.spin()
        self._host.wait(queue.known(work), spin)

    def hold(self, seconds: float) -> None:
        """Idle work on the queue of the steps."""
        self._steps.add(Work(self._host.wall(), seconds))

    def launch(self, seconds: float, cpu: float) -> None:
        """Queue a step: the host works on its launch, and the device may begin, but not end, before that is done."""
        issued = self._host.wall()
        self._host.work(cpu)
        self._steps.add(Work(issued, seconds, least=self._host.wall()))

    def copy(self, tensor: Any, *, ahead: bool = False) -> Any:
        """From pageable memory the caller copies it to a buffer first, and waits until the device has it."""
        if getattr(tensor, THERE, False):
            return tensor
        pinned = self.is_pinned(tensor)
        source = tensor if pinned else tensor.clone()
        there = load_torch().empty_like(source)
        setattr(there, THERE, True)
        seconds = tensor.numel() * tensor.element_size() / self.like.bus
        queue = self._copies if ahead else self._steps
        work = queue.add(Work(self._host.wall(), seconds, copies=lambda: there.copy_(source)))
        if ahead or not pinned:
            self._wait(queue, work)
        return there

    def pin(self, tensor: Any) -> Any:
        """A copy that bears the mark of pinned memory."""
        pinned = tensor.clone()
        setattr(pinned, PINNED, True)
        return pinned

    def is_pinned(self, tensor: Any) -> bool:
        """Whether it bears the mark."""
        return bool(getattr(tensor, PINNED, False))

    def step(self, model: str, precision: str) -> Step:
        """A step of the declared length, whatever the network."""
        return lambda batch: self.launch(self.like.step, self.like.launch)

    def decoder(self, make: Callable[[Any], Callable[[Any], Any]]) -> Callable[[Any], Any]:
        """Takes the device's time, and none of the host's."""

        def decode(batch: Any) -> Any:
            self.hold(self.like.decode)
            return batch

        return decode

    @contextlib.contextmanager
    def loading(self) -> Iterator[None]:
        """Torch's loader takes this for its accelerator, so that its own thread pins."""
        torch = load_torch()
        accelerator, tensor = torch.accelerator, torch.Tensor
        names = ("is_available", "current_accelerator", "current_device_index", "set_device_index")
        usual = {name: getattr(accelerator, name) for name in names} | {"pin_memory": tensor.pin_memory}
        accelerator.is_available = lambda: True
        accelerator.current_accelerator = lambda check_available=False: torch.device("cpu")
        accelerator.current_device_index = lambda: 0
        accelerator.set_device_index = lambda device: None
        tensor.pin_memory = lambda batch: self.pin(batch)
        try:
            yield
        finally:
            tensor.pin_memory = usual.pop("pin_memory")
            for name, function in usual.items():
                setattr(accelerator, name, function)

    def facts(self) -> dict[str, str | int | None]:
        """What it is like."""
        like = ", ".join(f"{item.name} {getattr(self.like, item.name)}" for item in fields(self.like))
        return {"device": f"emulated ({like})", "memory_peak_bytes": None, "uuid": None}

    def wall(self) -> float:
        """Host wall clock, s."""
        return self._host.wall()

    def cpu(self) -> float:
        """CPU seconds of this process, all threads."""
        return self._host.cpu()
