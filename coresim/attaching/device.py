"""The CUDA device's own time for the loop's steps, by events; nothing where the program does not use one."""

from __future__ import annotations

import sys
from typing import Any

from coresim.attaching.batches import tensors

#: Copies of a batch that are timed.
COPIES = 8


def cuda() -> Any:
    """``torch.cuda`` where the program has begun to use a device, else None."""
    torch = sys.modules.get("torch")
    return torch.cuda if torch is not None and torch.cuda.is_initialized() else None


class DeviceEvents:
    """Events around each step.

    A step's first event is recorded when its batch is handed over, and the device comes to it when it has done what was
    launched before; its last one when the next batch is asked for. What lies between is the device's time for the step.

    Args:
        runtime: ``torch.cuda``, or None: then nothing is recorded.
    """

    def __init__(self, runtime: Any) -> None:
        self._runtime = runtime
        self._steps: list[tuple[Any, Any]] = []
        self._begun: Any = None
        self._idle: list[bool] = []

    def got(self) -> None:
        """A batch is handed over."""
        if self._runtime is not None:
            self._begun = self._event()

    def asked(self) -> None:
        """The next batch is asked for."""
        if self._begun is not None:
            # A device that has nothing to do at this point was waited for in the step.
            self._idle.append(bool(self._runtime.current_stream().query()))
            self._steps.append((self._begun, self._event()))
            self._begun = None

    def _event(self) -> Any:
        event = self._runtime.Event(enable_timing=True)
        event.record()
        return event

    def seconds(self, last: int) -> list[float]:
        """Device time of the last so many steps, s; empty without a device."""
        if self._runtime is None or not self._steps:
            return []
        self._runtime.synchronize()
        return [first.elapsed_time(end) / 1e3 for first, end in self._steps[-last:]]

    @property
    def synchronises(self) -> bool:
        """Whether most steps waited for the device themselves."""
        return not self._idle or 2 * sum(self._idle) > len(self._idle)

    def copies(self, batch: Any) -> list[float]:
        """Seconds to copy a batch to the device, several times; empty without a device."""
        found = []
        parts = list(tensors(batch))
        for _ in range(COPIES if self._runtime is not None else 0):
            begun = self._event()
            for tensor in parts:
                tensor.to("cuda", non_blocking=True)
            end = self._event()
            end.synchronize()
            found.append(begun.elapsed_time(end) / 1e3)
        return found
