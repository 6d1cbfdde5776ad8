"""The device that ``--device`` names, and an emulated device.

The emulated device is asynchronous, with a queue of steps, a queue of copies, events and a time line of its own. It
costs the host what a real device does: a launch costs CPU time, a thread makes a real copy of memory (for pageable
memory the caller copies first), and waiting spins or blocks. The device's own time is arithmetic on its time line: a
step begins when it is launched and the one before has ended, and ends so many seconds later, whatever the host's timers
do. Its contract is that of torch's own out-of-tree test device (``torch_openreg``, pytorch
``test/cpp_extensions/open_registration_extension``): work in order, events that can be waited for and timed, more than
nothing between two of them.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields
from typing import Any

from coresim.device.interface import CudaDevice, Device
from coresim.device.models import Step, load_torch
from coresim.device.queues import DeviceHost, PinnedMemory, Queue, Work, shared_memory
from coresim.errors import InputError, MissingPartError
from coresim.model.keys import DURATION, Kind, choice, key, read_section

NAMES = "cuda, cuda:N, cpu or emulated"
#: The marks of a tensor whose memory the device reads by itself, and of one that lies on it.
PINNED, THERE = "pinned_for_emulation", "on_the_emulated_device"


def _read_rate(value: object, where: str) -> float:
    try:
        return float(str(value))
    except ValueError:
        raise InputError(f"{where} = {value!r}: bytes per second are needed, such as 8e9") from None


@dataclass(frozen=True)
class Emulated:
    """What the device is like; times in seconds."""

    step: float = key(DURATION, "one training step on the device", 0.02)
    launch: float = key(DURATION, "CPU time of the host to launch one", 0.001)
    tail: float = key(DURATION, "how long after its launch a step ends at the earliest", 0.0)
    decode: float = key(DURATION, "the device's time to decode a batch, where it decodes", 0.002)
    bus: float = key(Kind(_read_rate, {"type": "number"}), "bytes per second of a copy to it", 8e9)
    event: float = key(DURATION, "the device's time to record an event: two in a row are not at the same moment", 5e-7)
    sync: str = key(choice("spin", "block"), "how the host waits for it: spin, as CUDA does, or block", "spin")

    def __post_init__(self) -> None:
        """InputError for a device that is infinitely fast."""
        if min(self.step, self.bus) <= 0:
            raise InputError("device emulated: step and bus must be above 0")


class EmulatedDevice(Device):
    """A device of these `Emulated` properties; torch puts its tensors at ``place``, on the CPU."""

    asynchronous = True

    def __init__(self, like: Emulated, place: Any = None, host: DeviceHost | None = None) -> None:
        super().__init__(place, host)
        self.like, self.sync = like, like.sync
        self._steps, self._copies = Queue(self.host), Queue(self.host)
        self._memory: Any = None
        self._pinned = PinnedMemory()

    def record(self) -> Work:
        """An event on the queue of the steps."""
        return self._steps.add(Work(self.host.wall(), self.like.event))

    def query(self, event: Work) -> bool:
        """Whether the moment at which it ends is known and has passed."""
        return event.end is not None and event.end <= self.host.wall()

    def elapsed(self, start: Work, end: Work) -> float:
        """Device seconds between two events; ValueError where one is not reached."""
        if not (self.query(start) and self.query(end)):
            raise ValueError("an event is not reached: synchronise first")
        return end.known() - start.known()

    def synchronise(self, event: Work | None = None) -> None:
        """Wait for an event, or for both queues."""
        for queue in (self._steps, self._copies) if event is None else (self._steps,):
            self._wait(event or queue.last)

    def _wait(self, work: Work) -> None:
        spin = self.like.sync == "spin"
        while spin and work.end is None:
            self.host.spin()
        self.host.wait(work.known(), spin)

    def hold(self, seconds: float) -> None:
        """Idle work on the queue of the steps."""
        self._steps.add(Work(self.host.wall(), seconds))

    def launch(self, seconds: float, cpu: float) -> None:
        """Queue a step: the host works on its launch; the device may begin before that is done, and ends after it."""
        issued = self.host.wall()
        self.host.work(cpu)
        self._steps.add(Work(issued, seconds, least=self.host.wall() + self.like.tail))

    def copy(self, tensor: Any, *, ahead: bool = False) -> Any:
        """From pageable memory the caller waits for that queue, copies to a buffer, and waits until the device has it.

        CUDA's driver may do so (CUDA Runtime API, "API synchronization behavior"). The result shares its memory with a
        pinned tensor, and must not be written to.
        """
        if getattr(tensor, THERE, False):
            return tensor
        pinned = getattr(tensor, PINNED, False)
        queue = self._copies if ahead else self._steps
        if not pinned:
            self._wait(queue.last)
        source = tensor if pinned else self._pinned.copy_of(tensor)
        memory = self._memory_for(source)
        seconds = tensor.numel() * tensor.element_size() / self.like.bus
        work = queue.add(Work(self.host.wall(), seconds, copies=lambda: memory.copy_(source)))
        if ahead or not pinned:
            self._wait(work)
        there = source.detach()
        setattr(there, THERE, True)
        return there

    def _memory_for(self, source: Any) -> Any:
        """Memory that the host has already found, to copy a tensor like this to: one place for all copies.

        A device has memory of its own. New memory of the host for each copy would have to be found by the host first,
        which took up to 27 ms for 10 MB on a virtual machine, where the copy itself takes 1 ms.
        """
        size = source.numel() * source.element_size()
        if self._memory is None or self._memory.numel() < size:
            self._memory = load_torch().from_numpy(shared_memory(size))
            self._memory.fill_(1)
        return self._memory[:size].view(source.dtype).view(source.shape)

    def pin(self, tensor: Any) -> Any:
        """A copy that bears the mark of pinned memory."""
        pinned = self._pinned.copy_of(tensor)
        setattr(pinned, PINNED, True)
        return pinned

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
        """Make torch's loader take this for its accelerator, so that the loader's own thread pins."""
        torch = load_torch()
        ours = {
            (torch.accelerator, "is_available"): lambda: True,
            (torch.accelerator, "current_accelerator"): lambda check_available=False: torch.device("cpu"),
            (torch.accelerator, "current_device_index"): lambda: 0,
            (torch.accelerator, "set_device_index"): lambda device: None,
            (torch.Tensor, "pin_memory"): lambda batch: self.pin(batch),
        }
        with contextlib.ExitStack() as usual:
            for place, function in ours.items():
                usual.callback(setattr, *place, getattr(*place))
                setattr(*place, function)
            yield

    def name(self) -> str:
        """Its properties in words."""
        like = ", ".join(f"{item.name} {getattr(self.like, item.name)}" for item in fields(self.like))
        return f"emulated ({like})"


def open_device(name: str) -> Device:
    """The device of that name, made current.

    An emulated one is ``emulated:step=20ms,launch=1ms,decode=2ms,bus=8e9,sync=spin``; each setting may be left out.

    Raises:
        InputError: not such a name, an unknown setting or a bad value, or no CUDA device of that number.
        MissingPartError: no torch, or torch finds no CUDA device.
    """
    torch = load_torch()
    kind, _, settings = name.partition(":")
    if kind == "emulated":
        parts = [part.partition("=") for part in filter(None, settings.split(","))]
        like = read_section(Emulated, {key: text for key, _, text in parts}, f"device {name}")
        return EmulatedDevice(like, torch.device("cpu"))
    try:
        place = torch.device(name)
    except RuntimeError as error:
        raise InputError(f"device {name!r}: not a device; use {NAMES}") from error
    if place.type == "cpu":
        return Device(place)
    if place.type != "cuda":
        raise InputError(f"device {name!r} cannot be measured; use {NAMES}")
    if not torch.cuda.is_available():
        raise MissingPartError(
            f"torch {torch.__version__} finds no CUDA device here, so no step was measured: take a recorded "
            "step with --gpu and --model, or give the step time with --step-time"
        )
    count = torch.cuda.device_count()
    if place.index is None:
        place = torch.device("cuda", torch.cuda.current_device())
    elif place.index >= count:
        raise InputError(f"device {place}: this process sees {count} CUDA device(s), numbered from 0")
    torch.cuda.set_device(place)
    return CudaDevice(torch.cuda, place)
