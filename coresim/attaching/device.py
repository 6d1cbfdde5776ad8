"""The device's own time for the loop's steps, by events; nothing where the program does not use a device."""

from __future__ import annotations

import sys
from typing import Any

from coresim import stats
from coresim.attaching.batches import tensors
from coresim.device.interface import CudaDevice, Device

#: Copies of a batch that are timed.
COPIES = 8
#: A loop waits for its device where this share of a step, or less, is left to do when the next batch is asked for.
LEFT = 0.1


def device_of_program() -> Device | None:
    """The CUDA device that the program has begun to use, or None."""
    torch = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_initialized():
        return None
    return CudaDevice(torch.cuda, torch.device("cuda", torch.cuda.current_device()))


class DeviceEvents:
    """Events around each step.

    A step's first event is recorded when the loop gets its batch; the device reaches it when it has done all earlier
    launches. Its last event is recorded when the loop asks for the next batch. The time between them is the device's
    time for the step. Without a device nothing is recorded.
    """

    def __init__(self, device: Device | None) -> None:
        self._device = device
        self._begun: Any = None
        #: The first and the last event of each step, and the host's time when the next batch was asked for.
        self._steps: list[tuple[Any, Any, float]] = []

    def got(self) -> None:
        """A batch is handed over."""
        if self._device is not None:
            self._begun = self._device.record()

    def asked(self, counts: bool) -> None:
        """The next batch is asked for; ``counts``: nothing but a step came between."""
        if self._device is not None and self._begun is not None and counts:
            self._steps.append((self._begun, self._device.record(), self._device.wall()))
        self._begun = None

    def seconds(self, last: int) -> list[float]:
        """Device time of the last so many steps, s; empty without a device."""
        device = self._device
        if device is None:
            return []
        device.synchronise()
        return [device.elapsed(first, end) for first, end, _ in self._steps[-last:]]

    @property
    def synchronises(self) -> bool:
        """Whether the loop waits for the device in its steps; without a device it does all of them itself."""
        device = self._device
        if device is None or not self._steps:
            return True
        # An event that has just been waited for tells when, by the host's clock, the device came to all others.
        mark = device.record()
        device.synchronise(mark)
        now = device.wall()
        left = [now - device.elapsed(end, mark) - asked for _, end, asked in self._steps]
        return stats.median(left) <= LEFT * stats.median(self.seconds(len(self._steps)))

    def copies(self, batch: Any) -> list[float]:
        """Seconds of the device to copy a batch to it, several times; empty without a device."""
        device, found, parts = self._device, [], list(tensors(batch))
        if device is None:
            return []
        for _ in range(COPIES):
            device.synchronise()
            begun = device.record()
            for tensor in parts:
                device.copy(tensor)
            end = device.record()
            device.synchronise()
            found.append(device.elapsed(begun, end))
        return found
