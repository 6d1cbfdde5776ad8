"""The notes that a loader's worker takes of each batch while the real loader runs, and how it prepares the batch.

A note travels with its batch. It is small, because a large one would make the hand-over itself slow.
"""

from __future__ import annotations

import ctypes
import math
import os
import time
from array import array
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from coresim.errors import InputError
from coresim.workloads.base import PreparationStep, Workload, describe

#: The C library; Python has no name for sched_getcpu(3) before 3.13.
_C = ctypes.CDLL(None)
#: One of so many samples is split into its steps if the data set shows them: splitting takes time too.
SPLIT_EVERY = 8
#: Samples of a batch whose times travel with it. Notes of 1,024 samples are 16 KiB, of which a pipe holds four
#: (pipe(7)). With them batches came out of order, probably because workers waited for one another to send.
MOST_NOTED = 64


class Note(NamedTuple):
    """What one batch cost its worker, in seconds; clocks as `time.perf_counter` and `time.thread_time`.

    Attributes:
        began, made: when its first sample was begun, and when the batch was ready.
        wall, cpu: per sample; packed while the note travels, see `unpacked`.
        collate: CPU seconds of the collation.
        worker: the process that made it.
        cpu_number: the CPU that the worker was on when the batch was ready.
        process: CPU seconds of the worker's process when it began the batch; for its first batch, its start-up.
        steps: CPU seconds of each step of those samples that were split, summed, in the order of `Prepared.names`.
        fetch: seconds that its samples' fetches took in threads of their own; in ``cpu``, not in ``wall``.
        copy: CPU seconds of copying it in a thread of its own.
        queued: seconds of ``wall`` in which its thread wanted a core and had none; None if the system does not tell.
        waited: the same, over its thread's life until it began the batch.
        message: bytes of the message that carries the batch; noted for the first batch of each worker only.
        pickling: CPU seconds to pickle that message.
        pinned: when the loader's own thread had pinned it and had let go of what was sent; 0 where none pins.
        pin_clock: CPU seconds that this thread had spent by then.
        broken: what went wrong with each sample that was left out.
    """

    began: float
    made: float
    wall: Any
    cpu: Any
    collate: float
    worker: int
    cpu_number: int
    process: float = 0.0
    steps: tuple[float, ...] = ()
    fetch: float = 0.0
    copy: float = 0.0
    queued: float | None = None
    waited: float | None = None
    message: int = 0
    pickling: float = 0.0
    pinned: float = 0.0
    pin_clock: float = 0.0
    broken: tuple[str, ...] = ()

    @property
    def there(self) -> float:
        """When the trainer can have it: it is made and, where the loader pins, pinned."""
        return max(self.made, self.pinned)

    def with_message(self, batch: Any) -> Note:
        """The note with the size of the message as which a batch is sent, and what it takes to pickle it.

        Raises:
            InputError: it cannot be sent; the message names the type.
        """
        from multiprocessing.reduction import ForkingPickler  # noqa: PLC0415 (a trainer needs it not)

        began = time.thread_time()
        try:
            size = len(ForkingPickler.dumps(batch))
        except Exception as error:
            raise InputError(
                f"a batch of type {type(batch).__name__} cannot be sent from a worker to the trainer: "
                f"{describe(error)}; return arrays, tensors, numbers or text, or give a collate function that does"
            ) from None
        return self._replace(message=size, pickling=time.thread_time() - began)


class PinMark:
    """Travels before a batch: tells when the loader's thread that pins has the batch in pinned memory.

    The thread calls ``pin_memory`` of whatever has one, part after part, lets go of what the worker sent, and puts what
    it pinned into the trainer's queue (``torch/utils/data/_utils/pin_memory.py``). To let go of a batch of 38 MB takes
    milliseconds. Parts of a tuple are let go from its end, so this mark is the last: then the batch is there.
    """

    _clocks: list[float] | None = None

    def pin_memory(self) -> list[float]:
        """What will hold the moment, and the CPU seconds of this thread by then."""
        self._clocks = [0.0, 0.0]
        return self._clocks

    def __del__(self) -> None:
        if self._clocks is not None:
            self._clocks[:] = time.perf_counter(), time.thread_time()


def duty_of(notes: Sequence[Note]) -> float:
    """Share of the time of making a batch in which its worker wants a core; 1 if no time passed."""
    spent = sum(sum(note.cpu) + note.collate + (note.queued or 0.0) for note in notes)
    passed = sum(note.made - note.began for note in notes)
    return min(1.0, spent / passed) if passed > 0 else 1.0


def queued_seconds() -> float | None:
    """Seconds that this thread has ever waited for a core; None where the system does not tell.

    The second number of the thread's ``schedstat``: time on a run queue, in ns (Linux, Documentation/scheduler/
    sched-stats.rst).
    """
    try:
        with open("/proc/thread-self/schedstat", encoding="ascii") as file:
            return int(file.read().split()[1]) * 1e-9
    except (OSError, IndexError, ValueError):
        return None


def packed(values: Sequence[float]) -> bytes:
    """Numbers as bytes, which pickle quickly and which the thread that pins memory does not walk.

    First how many and their sum, then at most `MOST_NOTED` of them at equal distances.
    """
    return array("d", [len(values), math.fsum(values), *values[:: _step(len(values))]]).tobytes()


def unpacked(note: Note) -> Note:
    """The note as it is read in the trainer: ``wall`` and ``cpu`` are arrays of seconds.

    Of more than `MOST_NOTED` samples, each that was noted stands for its neighbours too; the sum is that of all.
    """
    return note._replace(wall=_restored(note.wall), cpu=_restored(note.cpu))


def _step(count: int) -> int:
    return max(1, math.ceil(count / MOST_NOTED))


def _restored(noted: bytes) -> array[float]:
    count, whole, *values = array("d", noted)
    if len(values) == count:
        return array("d", values)
    # In arrays, because this is done while the trainer receives the batch.
    every = np.repeat(values, _step(int(count)))[: int(count)]
    return array("d", (every * (whole / max(1e-300, every.sum()))).tobytes())


class Sample(NamedTuple):
    """A prepared sample with the clocks around it."""

    value: Any
    began: float
    wall: float
    cpu: float


def timed(call: Callable[[], Any]) -> Sample:
    """Call and read the clocks around it."""
    began, cpu = time.perf_counter(), time.thread_time()
    value = call()
    return Sample(value, began, time.perf_counter() - began, time.thread_time() - cpu)


def noted(
    samples: Sequence[Sample], collate: Callable[[list[Any]], Any], steps: Sequence[float] = (), process: float = 0.0
) -> tuple[Any, Note]:
    """The collated batch of those samples, and what it cost."""
    began = time.thread_time()
    batch = collate([sample.value for sample in samples])
    spent, made = time.thread_time() - began, time.perf_counter()
    wall, cpu = packed([sample.wall for sample in samples]), packed([sample.cpu for sample in samples])
    first = samples[0].began
    return batch, Note(first, made, wall, cpu, spent, os.getpid(), _C.sched_getcpu(), process, tuple(steps))


def through(steps: Sequence[PreparationStep], value: Any, rng: np.random.Generator) -> Any:
    """Apply the steps to a value, one after the other."""
    for step in steps:
        value = step.call(value, rng)
    return value


class Prepared:
    """A workload as a map-style data set; an index beyond its length starts over.

    Each process that prepares has random numbers of its own: they are made after the fork.
    """

    def __init__(self, workload: Workload) -> None:
        self.workload = workload
        self._steps = workload.steps()
        self._size = min(len(workload), 10**6)
        self._rng: np.random.Generator | None = None
        self._calls = 0
        self._spent = [0.0] * len(self._steps)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the steps of one sample."""
        return tuple(step.name for step in self._steps)

    def __len__(self) -> int:
        return self._size

    def __getitem__(self, index: int) -> Any:
        if self._rng is None:
            self._rng = np.random.default_rng()
        self._calls += 1
        if self._calls % SPLIT_EVERY == 1 and len(self._steps) > 1:
            return self._split(index % self._size)
        return through(self._steps, index % self._size, self._rng)

    def _split(self, value: Any) -> Any:
        for place, step in enumerate(self._steps):
            began = time.thread_time()
            value = step.call(value, self._rng)  # type: ignore[arg-type]  # __getitem__ has made it
            self._spent[place] += time.thread_time() - began
        return value

    def seed(self, seed: int) -> None:
        """Draw the random numbers of that seed from here on."""
        self._rng = np.random.default_rng(seed)

    def take_steps(self) -> tuple[float, ...]:
        """CPU seconds per step of the samples that were split since the last call."""
        found, self._spent = tuple(self._spent), [0.0] * len(self._steps)
        return found


class Reader:
    """Prepares batches of a data set as torch's own fetchers do, and notes what each part costs.

    The data set is map-style, with ``__getitems__`` or without, or ``iterable``. ``batched``: whether an index stands
    for a batch of samples, which ``collate`` joins; else for one item that is a batch already, which it converts.
    """

    def __init__(self, dataset: Any, iterable: bool, batched: bool, collate: Callable[[Any], Any]) -> None:
        self._dataset, self._iterable, self._batched, self._collate = dataset, iterable, batched, collate
        self._items: Iterator[Any] | None = iter(dataset) if iterable else None
        noting = isinstance(dataset, Prepared)
        self._take_steps: Callable[[], tuple[float, ...]] = dataset.take_steps if noting else tuple

    def fetch(self, index: Any) -> tuple[Any, Note]:
        """One batch with its note."""
        process, before = time.process_time(), queued_seconds()
        at_once = self._batched and not self._iterable and getattr(self._dataset, "__getitems__", None)
        places = index if self._batched else [index]
        samples = self._together(index) if at_once else [timed(partial(self._value, place)) for place in places]
        after = queued_seconds()
        batch, note = noted(samples, self._join, self._take_steps() if self._batched else (), process)
        queued = None if before is None or after is None else after - before
        return batch, note._replace(queued=queued, waited=before)

    def _join(self, values: list[Any]) -> Any:
        return self._collate(values if self._batched else values[0])

    def _value(self, index: Any) -> Any:
        return self._next() if self._iterable else self._dataset[index]

    def _together(self, indices: Any) -> list[Sample]:
        """Samples that the data set gives all at once; each gets an equal share of the time."""
        whole = timed(lambda: self._dataset.__getitems__(indices))
        values, count = list(whole.value), max(1, len(whole.value))
        return [Sample(value, whole.began, whole.wall / count, whole.cpu / count) for value in values]

    def _next(self) -> Any:
        """The next item; a stream that ends is started over, because a calibration must not end with it."""
        for _ in range(2):
            for item in self._items or ():
                return item
            self._items = iter(self._dataset)
        raise InputError("the data set is empty: its iterator ends at once; give at least one sample")
