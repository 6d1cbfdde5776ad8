"""What is noted of a batch, with a clock and work whose true cost is known: figures are exact."""

from __future__ import annotations

import math
import multiprocessing
import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from kit import Works

from coresim.errors import InputError
from coresim.measure import notes
from coresim.measure.notes import (
    MOST_NOTED,
    SPLIT_EVERY,
    Note,
    Prepared,
    Reader,
    packed,
    queued_seconds,
    unpacked,
)
from coresim.workloads.base import PreparationStep, Workload

# Powers of two, so that sums and quotients of the fake times are exact.
MS = 2.0**-10


@pytest.fixture
def works(monkeypatch: pytest.MonkeyPatch) -> Works:
    made = Works()
    monkeypatch.setattr(notes, "time", made.time)
    return made


class Map:
    """Sample i works for i + 1 ms and waits for as long again."""

    def __init__(self, works: Works) -> None:
        self.works = works

    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int) -> int:
        self.works.work((index + 1) * MS, wait=(index + 1) * MS)
        return index


def joined(works: Works, cpu: float = 64 * MS) -> Any:
    def collate(samples: list[int]) -> list[int]:
        works.work(cpu, wait=MS)
        return samples

    return collate


def test_each_part_of_a_batch_has_its_own_clock(works: Works) -> None:
    reader = Reader(Map(works), False, True, joined(works))
    works.work(5 * MS)
    batch, found = reader.fetch([1, 3])
    note = unpacked(found)
    assert batch == [1, 3]
    assert list(note.wall) == [4 * MS, 8 * MS] and list(note.cpu) == [2 * MS, 4 * MS]
    assert note.collate == 64 * MS  # CPU time alone
    assert (note.began, note.made) == (5 * MS, 5 * MS + 12 * MS + 65 * MS)
    assert note.process == 5 * MS  # what the process had spent when it began
    assert note.worker == os.getpid() and note.cpu_number in os.sched_getaffinity(0)
    assert (note.steps, note.fetch, note.copy) == ((), 0.0, 0.0)


def test_a_note_is_small_on_its_way(works: Works) -> None:
    _, found = Reader(Map(works), False, True, joined(works)).fetch(range(8))
    assert type(found.wall) is type(found.cpu) is bytes and len(found.wall) == (2 + 8) * 8
    values = (0.1, 2e-9, 12345.6)
    assert tuple(unpacked(Note(0.0, 1.0, packed(values), packed(()), 0.0, 1, 0)).wall) == values


@pytest.mark.parametrize("count", [MOST_NOTED + 1, 10 * MOST_NOTED - 3])
def test_of_many_samples_some_travel_with_the_sum_of_all(count: int):
    values = [1.0 + place % 7 for place in range(count)]
    noted = packed(values)
    assert len(noted) <= (2 + MOST_NOTED) * 8
    found = unpacked(Note(0.0, 1.0, noted, packed([0.0] * count), 0.0, 1, 0))
    assert len(found.wall) == len(found.cpu) == count and sum(found.cpu) == 0.0
    assert sum(found.wall) == pytest.approx(sum(values))
    scale = found.wall[0] / values[0]
    step = math.ceil(count / MOST_NOTED)
    assert list(found.wall) == pytest.approx([scale * values[place - place % step] for place in range(count)])


def test_samples_that_are_given_all_at_once_share_their_time(works: Works) -> None:
    asked: list[list[int]] = []

    class Together(Map):
        def __getitem__(self, index: int) -> int:
            raise AssertionError("asked one by one")

        def __getitems__(self, indices: list[int]) -> list[int]:
            asked.append(indices)
            works.work(6 * MS, wait=2 * MS)
            return indices

    data = Together(works)
    batch, found = Reader(data, False, True, joined(works)).fetch([5, 2])
    note = unpacked(found)
    assert batch == [5, 2] and asked == [[5, 2]]
    assert list(note.wall) == [4 * MS] * 2 and list(note.cpu) == [3 * MS] * 2


def test_a_stream_that_ends_is_started_over_and_an_empty_one_is_told(works: Works) -> None:
    class Stream:
        starts = 0

        def __init__(self, count: int) -> None:
            self.count = count

        def __iter__(self) -> Iterator[int]:
            Stream.starts += 1
            for number in range(self.count):
                works.work(MS)
                yield number

    reader = Reader(Stream(3), True, True, joined(works))
    batches = [reader.fetch([0] * 2) for _ in range(3)]
    assert [batch for batch, _ in batches] == [[0, 1], [2, 0], [1, 2]] and Stream.starts == 2
    assert all(list(unpacked(note).cpu) == [MS, MS] for _, note in batches)
    with pytest.raises(InputError, match="the data set is empty: its iterator ends at once"):
        Reader(Stream(0), True, True, joined(works)).fetch([0])


def test_without_batching_an_item_is_a_batch_already(works: Works) -> None:
    seen: list[Any] = []
    reader = Reader(Map(works), False, False, lambda item: seen.append(item) or item)
    batch, found = reader.fetch(3)
    assert batch == 3 and seen == [3] and list(unpacked(found).cpu) == [4 * MS]
    stream = Reader(iter_of(["a", "b"]), True, False, str.upper)
    assert [stream.fetch(None)[0] for _ in range(3)] == ["A", "B", "A"]


def iter_of(items: list[Any]) -> Any:
    class Stream:
        def __iter__(self) -> Iterator[Any]:
            return iter(items)

    return Stream()


class Stepwise(Workload):
    """Fetching waits 1 ms, decoding works for 2 ms, transforming for 4 ms."""

    def __init__(self, works: Works) -> None:
        super().__init__(Path())
        self.works = works

    def __len__(self) -> int:
        return 5

    def fetch(self, index: int) -> int:
        self.works.work(0.0, wait=MS)
        return index

    def decode(self, raw: int) -> int:
        self.works.work(2 * MS)
        return raw

    def transform(self, x: int, rng: np.random.Generator) -> tuple[int, int]:
        self.works.work(4 * MS)
        return x, int(rng.integers(10**9))


def test_one_sample_in_eight_is_split_into_its_steps(works: Works) -> None:
    data = Prepared(Stepwise(works))
    reader = Reader(data, False, True, list)
    assert data.names == ("fetch", "decode", "transform")
    _, first = reader.fetch(range(SPLIT_EVERY))
    assert first.steps == (0.0, 2 * MS, 4 * MS)
    _, next_split = reader.fetch([0])
    assert next_split.steps == (0.0, 2 * MS, 4 * MS)
    _, rest = reader.fetch(range(SPLIT_EVERY - 1))
    assert rest.steps == (0.0, 0.0, 0.0)  # what is taken is taken once
    _, more = reader.fetch(range(2 * SPLIT_EVERY))
    assert more.steps == (0.0, 4 * MS, 8 * MS)


def test_what_shows_no_steps_is_not_split(works: Works) -> None:
    class Whole(Stepwise):
        def steps(self) -> tuple[PreparationStep, ...]:
            return (PreparationStep("sample", lambda index, _: self.decode(index)),)

    _, found = Reader(Prepared(Whole(works)), False, True, list).fetch([0])
    assert sum(found.steps) == 0.0 and list(unpacked(found).cpu) == [2 * MS]


def test_the_same_seed_prepares_the_same_samples_and_indices_wrap(works: Works) -> None:
    data = Prepared(Stepwise(works))
    assert len(data) == 5 and data[7][0] == 2
    data.seed(3)
    one = [data[index] for index in range(9)]
    data.seed(3)
    assert [data[index] for index in range(9)] == one
    assert len({drawn for _, drawn in one}) == 9


def test_each_process_draws_numbers_of_its_own(works: Works) -> None:
    data, fork = Prepared(Stepwise(works)), multiprocessing.get_context("fork")
    drawn = fork.SimpleQueue()
    for _ in range(2):
        process = fork.Process(target=lambda: drawn.put(data[0]))
        process.start()
        process.join()
    assert drawn.get() != drawn.get()


def test_a_batch_that_cannot_be_sent_is_named(works: Works) -> None:
    note = Note(0.0, 1.0, [1.0], [1.0], 0.0, 1, 0)
    small, large = (note.with_message(batch) for batch in ([np.zeros(2), "text", {"a": 1}], np.zeros(1000)))
    assert 0 < small.message < 1000 < large.message
    with pytest.raises(
        InputError, match=r"^a batch of type lock cannot be sent .*TypeError: .*collate function[^\n]*$"
    ):
        note.with_message(threading.Lock())


def burn(seconds: float) -> None:
    """Use ``seconds`` of CPU time of this thread."""
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        pass


def test_time_on_the_run_queue_is_no_time_asleep() -> None:
    if queued_seconds() is None:
        pytest.skip("the system does not tell how long a thread waits for a core")
    # Between two readings it may lose its core, too: the wall clock is read first and last.
    began, spent, before = time.perf_counter(), time.thread_time(), queued_seconds() or 0.0
    time.sleep(0.2)
    burn(0.1)
    queued, cpu, wall = (queued_seconds() or 0.0) - before, time.thread_time() - spent, time.perf_counter() - began
    # A machine that stands still meanwhile adds to the wall clock alone; the 10 ms are for counters that tick.
    assert 0.0 <= queued <= wall - cpu - 0.2 + 0.01


def test_two_that_share_a_core_wait_on_its_run_queue() -> None:
    """Two processes bound to one CPU have one core between them, however many others are here."""
    if queued_seconds() is None:
        pytest.skip("the system does not tell how long a thread waits for a core")
    fork = multiprocessing.get_context("fork")
    together, waited = fork.Barrier(2), fork.SimpleQueue()

    def work(cpu_number: int) -> None:
        os.sched_setaffinity(0, {cpu_number})
        together.wait()
        before = queued_seconds() or 0.0
        burn(0.2)
        waited.put((queued_seconds() or 0.0) - before)

    first = min(os.sched_getaffinity(0))
    both = [fork.Process(target=work, args=(first,)) for _ in range(2)]
    for process in both:
        process.start()
    for process in both:
        process.join()
        assert process.exitcode == 0
    # One of the two has to wait while the other works.
    assert waited.get() + waited.get() > 0.1
