"""The emulated device on a host whose time moves only when it is told to: what is timed on it is exact."""

from __future__ import annotations

from typing import Any

from coresim.device.emulated import Emulated, EmulatedDevice
from coresim.device.queues import DeviceHost

STEP, LAUNCH, COPY = 0.5, 0.0625, 0.25
#: Bytes of a batch that takes `COPY` to get there.
SIZE = 1024


class StillHost(DeviceHost):
    """A host whose clocks move by its own work and waiting alone; copies of memory take it no time."""

    def __init__(self) -> None:
        self.now = self.spent = 0.0

    def wall(self) -> float:
        return self.now

    def cpu(self) -> float:
        return self.spent

    def work(self, seconds: float) -> None:
        self.now, self.spent = self.now + seconds, self.spent + seconds

    def wait(self, moment: float, spin: bool) -> None:
        left = max(0.0, moment - self.now)
        self.now += left
        self.spent += left if spin else 0.0

    def engine(self) -> Any:
        return lambda job: job()

    def copying(self, begin: float, copies: Any) -> float:
        copies()
        return 0.0


def still(**like: Any) -> tuple[EmulatedDevice, StillHost]:
    host = StillHost()
    known = {"step": STEP, "launch": LAUNCH, "bus": SIZE / COPY, "event": 0.0} | like
    return EmulatedDevice(Emulated(**known), "cpu", host), host
