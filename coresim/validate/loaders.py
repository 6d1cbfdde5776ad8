"""The three organisations of the input pipeline, for real: each gives batches that say when they were ready.

Option 1 is the loader in the trainer's own process (``num_workers=0``), option 2 a PyTorch ``DataLoader`` with worker
processes, option 3 three stages in threads joined by bounded queues. All run the same `Timed` data set, which notes
what every sample and batch cost, so that calibration and trial see the very same code.
"""

from __future__ import annotations

import itertools
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from coresim.errors import CoresimError
from coresim.workloads.base import Workload, default_collate


class Cost(NamedTuple):
    """What a worker noted of one batch, in seconds; clocks as `time.perf_counter` and `time.thread_time`.

    Attributes:
        began, made: when its first sample was begun, and when the batch was ready.
        wall, cpu: per sample, if asked for; else the sums alone.
        collate: wall seconds of the collation.
        copy: CPU seconds of copying it in a thread of its own (option 3).
    """

    began: float
    made: float
    wall: tuple[float, ...]
    cpu: tuple[float, ...]
    collate: float
    copy: float = 0.0


class Sample(NamedTuple):
    """A prepared sample with the clocks around it."""

    value: Any
    began: float
    wall: float
    cpu: float


class Timed:
    """A map-style data set over a workload; ``index`` may exceed its length and then starts over."""

    def __init__(self, workload: Workload, detail: bool = False) -> None:
        self.workload, self.detail = workload, detail
        self._steps = workload.steps()
        self._size = min(len(workload), 10**6)
        self._rng: np.random.Generator | None = None

    def __len__(self) -> int:
        return 2**62

    def __getitem__(self, index: int) -> Sample:
        if self._rng is None:  # one for each worker: it is made after the fork
            self._rng = np.random.default_rng()
        began, cpu = time.perf_counter(), time.thread_time()
        value: Any = index % self._size
        for step in self._steps:
            value = step.call(value, self._rng)
        return Sample(value, began, time.perf_counter() - began, time.thread_time() - cpu)

    def collate(self, samples: list[Sample]) -> tuple[Any, Cost]:
        """The batch and what it cost; torch's default collation where the workload has none of its own."""
        began = time.perf_counter()
        batch = collation(self.workload)([sample.value for sample in samples])
        made = time.perf_counter()
        wall = tuple(sample.wall for sample in samples)
        cpu = tuple(sample.cpu for sample in samples)
        if not self.detail:
            wall, cpu = (sum(wall),), (sum(cpu),)
        return batch, Cost(samples[0].began, made, wall, cpu, made - began)


def collation(workload: Workload) -> Any:
    """What a DataLoader would do: torch's default, which collates into shared memory inside a worker."""
    own = type(workload).collate is not Workload.collate
    if own:
        return workload.collate
    try:
        from torch.utils.data import default_collate as torch_collate  # noqa: PLC0415 (torch is optional and heavy)
    except ModuleNotFoundError:
        return default_collate
    return lambda samples: _collate_or_list(torch_collate, samples)


def _collate_or_list(torch_collate: Any, samples: list[Any]) -> Any:
    try:
        return torch_collate(samples)
    except TypeError:  # what torch cannot stack, such as bytes, our own default keeps as a list
        return default_collate(samples)


@dataclass(frozen=True)
class Layout:
    """How to organise the real pipeline; the fields mean what they mean in a scenario."""

    option: int
    workers: int
    batch_size: int
    prefetch_factor: int = 2
    ordered: bool = True
    fetchers: int = 4
    buffer: int = 2


class Pipe:
    """Batches in the trainer's hands, one for each call of ``next``; close it when done."""

    #: Whether the trainer itself prepares: then nothing was ready before it asked.
    inline = False

    def next(self) -> tuple[Any, Cost]:
        """Wait for the next batch."""
        raise NotImplementedError

    def close(self) -> None:
        """End every worker."""


def open_pipe(data: Timed, layout: Layout, seed: int) -> Pipe:
    """The organisation that the layout names."""
    indices = batches_of(len(data.workload), layout.batch_size, seed)
    if layout.option == 3:
        return StagedPipe(data, layout, indices)
    return LoaderPipe(data, layout, indices)


def batches_of(samples: int, batch_size: int, seed: int) -> Iterator[list[int]]:
    """Endless batches of shuffled sample numbers."""
    rng = np.random.default_rng(seed)
    size = min(samples, 10**6)
    held: list[int] = []
    while True:
        while len(held) < batch_size:
            held += rng.permutation(size).tolist()
        yield held[:batch_size]
        held = held[batch_size:]


class LoaderPipe(Pipe):
    """Options 1 and 2: torch's own DataLoader."""

    def __init__(self, data: Timed, layout: Layout, indices: Iterator[list[int]]) -> None:
        from torch.utils.data import DataLoader  # noqa: PLC0415 (torch is optional and heavy)

        workers = 0 if layout.option == 1 else layout.workers
        own: dict[str, Any] = {"prefetch_factor": layout.prefetch_factor, "in_order": layout.ordered} if workers else {}
        batches: Any = _Endless(indices)
        source: Any = data
        self.inline = not workers
        self._loader = DataLoader(source, batch_sampler=batches, num_workers=workers, collate_fn=data.collate, **own)
        self._batches: Any = iter(self._loader)

    def next(self) -> tuple[Any, Cost]:
        """The loader's next batch."""
        found: tuple[Any, Cost] = next(self._batches)
        return found

    def close(self) -> None:
        """Let torch shut its workers down."""
        if not self.inline:
            self._batches._shutdown_workers()


class _Endless:
    """A batch sampler."""

    def __init__(self, indices: Iterator[list[int]]) -> None:
        self._indices = indices

    def __iter__(self) -> Iterator[list[int]]:
        return self._indices

    def __len__(self) -> int:
        return 2**62


class Closed(Exception):
    """The pipeline is being shut down."""


class Buffer:
    """A bounded buffer between two stages, filled in the order of the batches' numbers.

    A worker whose batch is not next, or that finds no room, waits with it: blocking after service.
    """

    def __init__(self, room: int) -> None:
        self._room, self._turn = room, 0
        self._items: deque[Any] = deque()
        self._changed = threading.Condition()
        self._closed = False

    def put(self, number: int, item: Any) -> None:
        """Hand batch ``number`` over once it is its turn and there is room."""
        with self._changed:
            self._changed.wait_for(lambda: self._closed or (self._turn == number and len(self._items) < self._room))
            self._check()
            self._items.append((number, item))
            self._turn += 1
            self._changed.notify_all()

    def take(self) -> tuple[int, Any]:
        """The oldest batch and its number."""
        with self._changed:
            self._changed.wait_for(lambda: self._closed or bool(self._items))
            self._check()
            found: tuple[int, Any] = self._items.popleft()
            self._changed.notify_all()
            return found

    def close(self) -> None:
        """Wake everyone who waits; they end."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def _check(self) -> None:
        if self._closed:
            raise Closed


class StagedPipe(Pipe):
    """Option 3: threads fetch, threads preprocess whole batches, a thread copies; bounded buffers between them."""

    def __init__(self, data: Timed, layout: Layout, indices: Iterator[list[int]]) -> None:
        self._data, self._indices = data, indices
        self._fetched, self._prepared, self._copied = (Buffer(layout.buffer) for _ in range(3))
        self._error: BaseException | None = None
        self._pool = ThreadPoolExecutor(layout.fetchers)
        self._threads = [
            threading.Thread(target=self._guard, args=(work,), daemon=True)
            for work in (self._fetch, *[self._prepare] * layout.workers, self._copy)
        ]
        for thread in self._threads:
            thread.start()

    def next(self) -> tuple[Any, Cost]:
        """The next batch in order; what went wrong in a thread is raised here."""
        try:
            found: tuple[Any, Cost] = self._copied.take()[1]
        except Closed:
            raise self._error or CoresimError("the staged pipeline ended") from None
        return found

    def close(self) -> None:
        """Stop the threads; each ends at the latest after its current batch."""
        self._end()
        self._pool.shutdown(wait=True, cancel_futures=True)
        for thread in self._threads:
            thread.join()

    def _end(self) -> None:
        for buffer in (self._fetched, self._prepared, self._copied):
            buffer.close()

    def _guard(self, work: Callable[[], None]) -> None:
        try:
            work()
        except Closed:
            return
        except BaseException as error:
            self._error = error
            self._end()

    def _fetch(self) -> None:
        """The pool never pauses between batches: the next one's fetches are queued before this one's are awaited."""
        first = self._data.workload.steps()[:1]
        rng = np.random.default_rng()
        waiting = deque([self._submit(first, rng)])
        for number in itertools.count():
            waiting.append(self._submit(first, rng))
            self._fetched.put(number, [job.result() for job in waiting.popleft()])

    def _submit(self, first: Any, rng: np.random.Generator) -> list[Any]:
        return [self._pool.submit(_finish, first, index, rng) for index in next(self._indices)]

    def _prepare(self) -> None:
        steps = self._data.workload.steps()[1:]
        rng = np.random.default_rng()
        while True:
            number, raws = self._fetched.take()
            began = time.perf_counter()
            samples = [_finish(steps, raw.value, rng) for raw in raws]
            # What the fetch took is waited for by nobody's core: it counts as the sample's wall time alone.
            samples = [s._replace(wall=s.wall + raw.wall) for s, raw in zip(samples, raws, strict=True)]
            batch, cost = self._data.collate(samples)
            self._prepared.put(number, (batch, cost._replace(began=began)))

    def _copy(self) -> None:
        while True:
            number, (batch, cost) = self._prepared.take()
            cpu = time.thread_time()
            batch = copied(batch)
            cost = cost._replace(made=time.perf_counter(), copy=time.thread_time() - cpu)
            self._copied.put(number, (batch, cost))


def _finish(steps: Any, value: Any, rng: np.random.Generator) -> Sample:
    began, cpu = time.perf_counter(), time.thread_time()
    for step in steps:
        value = step.call(value, rng)
    return Sample(value, began, time.perf_counter() - began, time.thread_time() - cpu)


def copied(batch: Any) -> Any:
    """A copy in new memory, as a transfer makes one; containers are followed."""
    if isinstance(batch, dict):
        return {name: copied(part) for name, part in batch.items()}
    if isinstance(batch, tuple | list):
        return [copied(part) for part in batch]
    for name in ("clone", "copy"):
        if hasattr(batch, name):
            return getattr(batch, name)()
    return batch
