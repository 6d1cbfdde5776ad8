"""The queues of an emulated device, on which work is done in order, and the host as it sees it."""

from __future__ import annotations

import threading
import time
import zlib
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

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
        """CPU seconds of this process, all threads."""
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


class Work:
    """A piece of work on one of the device's queues; ``end`` is None until it is known.

    Args:
        issued: when the host asked for it.
        seconds: how long it takes.
        least: a moment before which it cannot end.
        copies: the real copy of memory that belongs to it.
    """

    def __init__(
        self, issued: float, seconds: float, least: float = 0.0, copies: Callable[[], object] | None = None
    ) -> None:
        self.issued, self.seconds, self.least, self.copies = issued, seconds, least, copies
        self.end: float | None = None


class Queue:
    """Work that is done in order; an engine of its own makes the copies of memory."""

    def __init__(self, host: DeviceHost) -> None:
        self._host, self._engine = host, host.engine()
        self._changed = threading.Condition()
        self._open: deque[Work] = deque()
        self._ended = 0.0
        self.last = self.add(Work(0.0, 0.0))

    def add(self, work: Work) -> Work:
        """Put it at the end."""
        with self._changed:
            self._open.append(work)
            self.last = work
            self._settle()
        if work.copies is not None:
            self._engine(self._copy)
        return work

    def _settle(self) -> None:
        """Tell the ends of all that waits for no copy of memory any more."""
        while self._open and self._open[0].copies is None:
            work = self._open.popleft()
            self._ended = work.end = max(work.least, max(work.issued, self._ended) + work.seconds)
        self._changed.notify_all()

    def _copy(self) -> None:
        """Make the first copy, which begins when all before it has ended."""
        with self._changed:
            work = self._open[0]
            begin, copies = max(work.issued, self._ended), work.copies
        assert copies is not None
        taken = 0.0
        try:
            taken = self._host.copying(begin, copies)
        finally:
            with self._changed:
                # Where the host's memory is slower than the bus, the copy takes as long. That its thread woke late is
                # no fault of the device.
                work.seconds, work.copies = max(work.seconds, taken), None
                self._settle()

    def known(self, work: Work) -> float:
        """The end of a piece of work, when that is known."""
        with self._changed:
            self._changed.wait_for(lambda: work.end is not None)
        assert work.end is not None
        return work.end
