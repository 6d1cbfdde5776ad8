"""``torch.cuda`` as far as it is used, played by an emulated device: `CudaDevice` itself runs without a GPU."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from coresim.device.emulated import PINNED, THERE, EmulatedDevice, open_device
from coresim.device.interface import CudaDevice


class Cuda:
    """``torch.cuda`` as far as it is used, on an emulated device; its spin takes 1 ns a cycle."""

    def __init__(self, device: EmulatedDevice) -> None:
        self.device, self.synchronised, self.current = device, 0, "steps"
        #: The stream of each copy to the device.
        self.copied: list[str] = []

    def Event(self, enable_timing: bool) -> Any:
        assert enable_timing
        return Event(self.device)

    def current_stream(self, place: Any) -> str:
        return f"stream of {place}"

    def default_stream(self, place: Any) -> str:
        return "steps"

    def Stream(self, place: Any) -> str:
        return "copies"

    @contextlib.contextmanager
    def stream(self, name: str) -> Iterator[None]:
        self.current = name
        yield
        self.current = "steps"

    def synchronize(self, place: Any) -> None:
        self.synchronised += 1
        self.device.synchronise()

    def _sleep(self, cycles: int) -> None:
        self.device.hold(cycles * 1e-9)

    def get_device_properties(self, place: Any) -> Any:
        return SimpleNamespace(name="played")


class Event:
    def __init__(self, device: EmulatedDevice) -> None:
        self._device, self.mark = device, None

    def record(self, stream: str) -> None:
        assert stream.startswith("stream of cuda")
        self.mark = self._device.record()

    def elapsed_time(self, end: Event) -> float:
        return 1e3 * self._device.elapsed(self.mark, end.mark)

    def synchronize(self) -> None:
        self._device.synchronise(self.mark)

    def query(self) -> bool:
        return self._device.query(self.mark)


@contextlib.contextmanager
def played(settings: str) -> Iterator[CudaDevice]:
    """A `CudaDevice`, its ``torch.cuda`` and its tensors' way there played by ``emulated:settings``, in real time."""
    import torch

    below = open_device(f"emulated:{settings}")
    assert isinstance(below, EmulatedDevice)
    cuda, usual = Cuda(below), torch.Tensor.to
    device = CudaDevice(cuda, "cuda:0")

    def to(tensor: Any, *where: Any, **more: Any) -> Any:
        if where[:1] != ("cuda:0",):
            return usual(tensor, *where, **more)
        assert more.get("non_blocking", False) == (tensor.is_pinned() and cuda.current == "steps")
        if not getattr(tensor, THERE, False):
            cuda.copied.append(cuda.current)
        return below.copy(tensor, ahead=cuda.current == "copies")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch.Tensor, "to", to)
        patch.setattr(torch.Tensor, "is_pinned", lambda tensor: getattr(tensor, PINNED, False))
        patch.setattr(torch.Tensor, "pin_memory", lambda tensor: below.pin(tensor))
        patch.setattr(torch.Tensor, "record_stream", lambda tensor, stream: None, raising=False)
        yield device
