"""The queues of an emulated device, on which work is done in order, and the host as it sees it."""

from __future__ import annotations

import mmap
import os
import threading
import time
import weakref
import zlib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from coresim.device.models import load_torch

#: A piece of work of some ten microseconds: zlib lets go of the interpreter's lock for it, and keeps the core.
_PIECE = bytes(1 << 15)


class DeviceHost:
    """What the device asks of the host; a test passes one whose time moves only when it is told to.

    Working and spinning keep a core and let other threads have the interpreter's lock, as torch's calls do. A sleep of
    no length would do neither: it gives the core away for some fifty microseconds each time.
    """

    def wall(self) -> float:
        """Wall clock, s."""
        return time.perf_counter()

    def cpu(self) -> float:
        """CPU seconds of this process, all threads: autograd launches the backward pass from its own thread."""
        return time.process_time()

    def work(self, seconds: float) -> None:
        """Keep a core busy for so much CPU time of this thread."""
        until = time.thread_time() + seconds
        while time.thread_time() < until:
            self.spin()

    def wait(self, moment: float, spin: bool) -> None:
        """Until that moment of the wall clock."""
        while (left := moment - time.perf_counter()) > 0:
            if spin:
                self.spin()
            else:
                time.sleep(left)

    def spin(self) -> None:
        """Keep a core busy for a moment."""
        zlib.crc32(_PIECE)

    def engine(self) -> Callable[[Callable[[], None]], object]:
        """What runs jobs one after the other beside this thread."""
        return ThreadPoolExecutor(1, "emulated-device").submit

    def copying(self, begin: float, copies: Callable[[], object]) -> float:
        """Make a copy when that moment has come; the CPU seconds that it took."""
        self.wait(begin, spin=False)
        began = time.thread_time()
        copies()
        return time.thread_time() - began


def shared_memory(size: int) -> Any:
    """So many bytes of the host's memory, shared with forks of this process, which must leave them alone.

    The kernel copies every page of private memory that is written to while a fork has it too (fork(2)), so that each
    start of a loader's workers would make the next copies slower. Memory of a real device is not copied in a fork.
    """
    return np.frombuffer(mmap.mmap(-1, max(1, size)), dtype=np.uint8)


class PinnedMemory:
    """Memory of the host for tensors that a device reads by itself; freed blocks are used again.

    The block that was used last is given first, as CUDA's own allocator does (``CachingHostAllocator.h``): a copy then
    finds it in a cache. Finding new memory takes a host several times as long as copying to it.
    """

    def __init__(self) -> None:
        # By room, each block with a reference to the view of it that its last copy holds.
        self._blocks: dict[int, list[tuple[Any, weakref.ref[Any]]]] = {}
        self._lock, self._process = threading.Lock(), os.getpid()

    def copy_of(self, tensor: Any) -> Any:
        """A copy of the tensor in such memory, which is free when nothing shares the copy's memory any more.

        A tensor that does not lie in one piece is copied to memory of its own.
        """
        torch, tensor = load_torch(), tensor.detach()
        size = tensor.numel() * tensor.element_size()
        if not size or not tensor.is_contiguous():
            return tensor.clone()
        room = 1 << (size - 1).bit_length()
        with self._lock:
            if self._process != os.getpid():  # a fork, whose parent still has the blocks
                self._blocks, self._process = {}, os.getpid()
            blocks = self._blocks.setdefault(room, [])
            free = next((place for place in reversed(range(len(blocks))) if blocks[place][1]() is None), None)
            block = shared_memory(room) if free is None else blocks.pop(free)[0]
            view = block[:size]
            blocks.append((block, weakref.ref(view)))
            memory = torch.from_numpy(view)
        return memory.view(tensor.dtype).view(tensor.shape).copy_(tensor)


class Work:
    """A piece of work on one of the device's queues; ``end`` is None until it is known.

    The host asked for it at ``issued``, and it cannot end before ``least``. ``copies``: the copy of memory in it.
    """

    def __init__(
        self, issued: float, seconds: float, least: float = 0.0, copies: Callable[[], object] | None = None
    ) -> None:
        self.issued, self.seconds, self.least, self.copies = issued, seconds, least, copies
        self.end: float | None = None
        self._known = threading.Event()

    def do(self, host: DeviceHost, free: float) -> None:
        """Do it on a device that is free from that moment on."""
        begin = max(self.issued, free)
        try:
            if self.copies is not None:
                # Where the host's memory is slower than the bus, the copy takes as long. That its thread woke late is
                # no fault of the device.
                self.seconds = max(self.seconds, host.copying(begin, self.copies))
        finally:
            self.copies, self.end = None, max(self.least, begin + self.seconds)
            self._known.set()

    def known(self) -> float:
        """Its end, when that is known."""
        self._known.wait()
        assert self.end is not None
        return self.end


class Queue:
    """Work that is done in order; an engine of its own makes the copies of memory."""

    def __init__(self, host: DeviceHost) -> None:
        self._host, self._engine = host, host.engine()
        self.last = Work(0.0, 0.0)
        self.last.do(host, 0.0)

    def add(self, work: Work) -> Work:
        """Put it at the end."""
        before, self.last = self.last, work
        if before.end is not None and work.copies is None:
            work.do(self._host, before.end)
        else:  # the engine does one after the other, so that what is behind a copy comes after it
            self._engine(lambda: work.do(self._host, before.known()))
        return work
